"""Rules for the number and the size of experts in a mixture.

A mixture of E experts of size n_e, of which K are active for an input x of width n, is

    f(x) = Σ_{k active} g_k(x) E_k(x),    E_k(x) = W_k φ(V_k x),

with g the softmax of the logits r_k·x over the active experts: the weights g_k sum to one, and f is
a mean. Jiang, Bordelon, Pehlevan and Hanin 2026 (arXiv 2601.20205) have a limit in n, n_e, E and
the depth at fixed K/E. The rules below are derived here. For Adam and n_e ∝ n, standard deviations
and rates are those of that paper's Table 2, as a public implementation has it; ε is not: it has no
power of E there, and n⁻¹ for the router.

**Number of experts.** Let e be the ratio of E to the base. Experts are a mean-field population: one
of them contributes 1/K of f. Averaged over inputs, an expert is active for a share K/E of them with
g_k ~ 1/K, so that the gradients of V_k, W_k and r_k, whose logit has the derivative
g_k (E_k − f)·∂L/∂f, are all 1/E of those of a single network. Each expert has to move at order one
for their mean to do so. This is the case for

==============  ============  =====  ======================  =======
update          initial size  rate   decoupled λ, coupled λ  ε
==============  ============  =====  ======================  =======
proportional    1             e      1/e, 1/e                –
normalised      1             1      1, 1/e                  1/e
orthogonalised  1             1      1, –                    –
==============  ============  =====  ======================  =======

in addition to the powers of n and l of the weight's role. It is the rule of μP for an input weight,
whose fan-out grows, with e in place of n, and is taken from there.
At fixed K/E the limit E → ∞ is deterministic: the sum over random experts is K^(−½) at
initialisation and vanishes against the learned part. At fixed K the averages are the same, but f
remains a sum of few random functions, and each expert is trained on a share 1/E of the inputs, so
that the noise of the gradients grows. A forward pass that sums over active experts without dividing
by their number needs the factor 1/e in addition; none is added here.

**Size of experts.** If n_e grows in proportion to n, V_k and W_k are hidden weights, with the power
of their own fan-in. If n_e grows at fixed n, an expert is a mean-field network with one hidden
layer: V_k is an input weight and W_k an output weight. With W_k of variance 1/n_e, the coherent
change of f would grow as √(n_e/n): its n_e terms have the size n_e^(−½), and a correlation n^(−½)
with the sign of ∂L/∂φ = W_kᵀ ∂L/∂f. A size and a width that both grow, by unequal ratios, have the
powers of hidden weights; the factor √(n/n_e) of W_k that this derivation asks for, and that the
paper has in W_k's standard deviation √n/n_e, is not applied.

**Router.** It has growing inputs and a fixed number of outputs, as a read-out, or rows that are
members of the population. Its logits start at n^(−½), and move at order one at the rate 1/n.

The rules were confirmed in training with the choice of active experts held. Where it is free, it
changes in the course of training, and differs between models as long as what the logits learn is
not large against their initial values, which is reached earlier in wide models. With the role
``"shared"`` a router's rates are the same (but Muon updates it), and its logits start at order
one, so that the choice changes alike at all widths; which experts an input is sent to then depends
on the initial values at any width. A router that starts at zero sends all inputs to the same
experts first, and all models then change their choice in the first steps.
"""

from __future__ import annotations

from dataclasses import replace

from largen.parameterizations import Power, Rule, mup
from largen.transfer.rules import rule
from largen.transfer.updates import Update

NOTE = (
    "the number of experts grows: forward passes are taken to be means over active experts "
    "(weights that sum to one), and initial values not to depend on the number"
)


def rule_of_number(optimizer: Update) -> Rule[Power]:
    """Return the rule of an expert's or a router's weight in their number, as ``width``."""
    alone = optimizer.kind == "orthogonal"  # each expert's matrix is orthogonalised by itself
    return rule(mup(), replace(optimizer, kind="normalised") if alone else optimizer, "input")


def with_experts(text: str, power: Power) -> str:
    """Return a power of n and l in words, multiplied by a power of e."""
    if power == Power():
        return text
    own = str(power).replace("N", "e")
    return own if text == "1" else f"{text}·{own}"
