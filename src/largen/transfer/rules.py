"""The transfer rule table: scheme × optimizer × role, in powers of the ratios n and l.

Every entry is that of the :class:`largen.scaling.Parameterization`: its rule table for a small
network that has each kind of weight once, with N → n = N/N₀ and L → l = L/L₀, so that every entry
is 1 at the base shape. This module adds the following, each with its derivation:

* **One form.** A multiplier m in front of θ is folded into it by the abc-symmetry, θ' = mθ, so
  that the user's model computes what it computed before: see :func:`fold`. Only the read-out's
  multiplier is separate, since a tied embedding needs it in the forward pass.
* **Vectors in branches, routers in branches.** Powers of depth do not depend on the role: the
  backward signal within a branch is L^(−α) for all. They are taken from the hidden weights' rows.
* **Finite weights** (a read-out's bias, a gate, a temperature) have rule 1 in width: the gradient
  of the loss with respect to a quantity of order one is of order one.
* **Attention logits.** At initialisation q·k is a sum of d_head random terms, and 1/√d_head
  keeps it of order one. Where features move at order one (d = ½), q and k become correlated and
  the sum is coherent: 1/d_head. The power beyond 1/√d_head is taken as −d, which is exact in
  both cases.
* **Muon.** A rank-one update with entries of size r has the spectral norm r·√(fan_in·fan_out),
  that is r·N; an orthogonalised update of rate η has η. Equal updates at rates r ↔ η = r·N, so
  that Muon's power is Adam's plus one: 0 for μP, as in Yang, Simon and Bernstein 2023.
* **Shampoo** orthogonalises every weight. A rank-one update of a matrix with k growing sides,
  with entries of size r, has the spectral norm r·n^(k/2), so that the power is Adam's plus k/2: 0
  for hidden weights, and n^½ and n^(−½) for embeddings and read-outs of μP.
* **Shared features.** A matrix W with n growing inputs and a fixed number of outputs inside the
  model, as v = Wx of grouped queries, which ∝ n heads read. v is of order one if W starts at
  n^(−½). Gradients with respect to features are 1/n each, and those of v are a sum over ∝ n
  readers, between n^(−½) (random) and 1 (once they have learned to agree). Then Δv = ΔW x is of
  order one if a normalised rate is n^(−1), as a hidden weight's, and a proportional one n^(−1),
  as a read-out's; an orthogonalised update of rate η has entries η/√n, hence n^(−½).
* **Products of signals.** A hidden matrix that maps the products of k signals to one has the
  fan-in n^k and the fan-out n: gradients are 1/n each, as those of any hidden matrix, and
  Δy = η Σ g x² over n^k terms is of order one at the proportional rate n^(1−k).
* **ε** is in units of the gradient it is added to; **coupled decay** under a normalised update
  keeps λθ in proportion to the gradient, λ ∝ |∇|/|θ|, since otherwise one of the two terms
  dominates the other; decoupled decay keeps ηλ, independent decay keeps λ.
"""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from functools import cache
from typing import Any

from largen.architectures import Activation, Dense, Residual, serial
from largen.parameterizations import Parameterization, Power, Rule, adam, gd
from largen.text import aligned
from largen.transfer.roles import FAMILIES, family
from largen.transfer.schemes import as_built, scheme_of
from largen.transfer.updates import Update, update, update_of

ONE = Power()
GROWING_SIDES = {"hidden": 2, "shared": 1, "input": 1, "output": 1, "vector": 1, "finite": 0}


def rule(
    param: Parameterization, optimizer: Update, role: str, in_branch: bool = False
) -> Rule[Power]:
    """Return one entry of the table: the weight's own rule, without the read-out's multiplier.

    Parameters
    ----------
    param
        The scheme.
    optimizer
        From :func:`largen.transfer.updates.update`.
    role
        One of :data:`largen.transfer.roles.ROLES`.
    in_branch
        Whether the weight is inside a residual branch.

    Returns
    -------
    Rule
        Powers of n (as width) and l (as depth), constants 1.

    Raises
    ------
    InvalidInput
        If the role is not known.

    Examples
    --------
    >>> import largen as lg
    >>> from largen.transfer.updates import update
    >>> print(rule(lg.mup(), update("adamw"), "hidden").lr)
    N⁻¹
    >>> print(rule(lg.depth_mup(), update("sgd"), "hidden", in_branch=True).lr)
    1
    """
    kind = family(role)
    moved_by = update_of(optimizer, kind)
    rows = _rows(param, moved_by.kind != "proportional")
    own = _shared(rows, moved_by) if kind == "shared" else rows[kind]
    if in_branch:
        own = _times(own, rows["branch"], rows["hidden"])
    if kind == "finite":
        own = replace(fold(own, own.multiplier**-1, moved_by), init_std=ONE)
    elif kind != "output":
        own = fold(own, own.multiplier**-1, moved_by)
    stated = param.hidden.adaptive_rate is not None
    if moved_by.kind == "orthogonal" and not stated:
        own = replace(own, lr=own.lr * Power(width=Fraction(GROWING_SIDES[kind], 2)))
    return with_decay(own, moved_by)


def fold(own: Rule[Power], factor: Power, optimizer: Update) -> Rule[Power]:
    """Apply the abc-symmetry: the multiplier is multiplied by ``factor``, training is unchanged.

    With m' = m·c and θ' = θ/c the function is the same, and the gradient of θ' is c times that of
    θ. Training is the same at the rate η/c² for a proportional update, η/c with ε·c for a
    normalised one (:meth:`largen.scaling.Parameterization.shift`), and η/c for an orthogonalised
    one.
    """
    power = 2 if optimizer.kind == "proportional" else 1
    return Rule(
        own.multiplier * factor,
        own.init_std / factor,
        own.lr / factor**power,
        own.weight_decay,
        own.eps * factor,
    )


def with_decay(own: Rule[Power], optimizer: Update) -> Rule[Power]:
    """Return the rule with its weight decay derived from its rate, standard deviation and ε."""
    if optimizer.kind != "proportional" and optimizer.decay == "coupled":
        return replace(own, weight_decay=own.eps / own.init_std)
    return replace(own, weight_decay=own.lr**-1)


def branch_multiplier(param: Parameterization) -> Power:
    """Return l^(−α), the factor of every residual branch."""
    return Power(depth=-param.branch)


def attention_multiplier(param: Parameterization, built: Fraction = Fraction(-1, 2)) -> Power:
    """Return the factor of logits with the power ``built`` of d_head, in powers of its ratio."""
    if as_built(param):
        return ONE
    return Power(width=Fraction(-1, 2) - param.canonical_d - built)


def tied_multiplier(param: Parameterization, optimizer: Update) -> Power:
    """Return the factor of a read-out whose weight is the input embedding.

    The tensor has the embedding's σ and rate; the factor makes logits start as large as those of an
    untied read-out. For every scheme but :func:`largen.standard` both uses then need the same rate.
    """
    if as_built(param):
        return ONE
    out, into = rule(param, optimizer, "output"), rule(param, optimizer, "embedding")
    return out.multiplier * out.init_std / into.init_std


def rule_table(
    scheme: Any = "depth_mup",
    optimizer: str = "adamw",
    *,
    decay: str | None = None,
    alpha: Any = None,
) -> str:
    """Return the whole table of a scheme and an optimizer in words.

    Parameters
    ----------
    scheme, alpha
        As in :func:`largen.transfer.schemes.scheme_of`.
    optimizer, decay
        As in :func:`largen.transfer.updates.update`.

    Raises
    ------
    InvalidInput
        If one of them is not known.

    Examples
    --------
    >>> print(rule_table("complete_p", "adamw"))  # doctest: +ELLIPSIS
    complete_p(gamma=1), adamw, decoupled decay
    role                 multiplier  init_std  lr   weight_decay  eps
    ...
    hidden               1           n⁻¹ᐟ²     n⁻¹  n             n⁻¹
    hidden in a branch   1           n⁻¹ᐟ²     n⁻¹  n             n⁻¹·l⁻¹
    ...
    residual branches × l⁻¹, attention logits × h⁻¹ᐟ² (h: ratio of head dimensions)
    """
    param, moved_by = scheme_of(scheme, alpha), update(optimizer, decay)
    columns = [f.name for f in fields(Rule)]
    cells = [["role".ljust(19), *columns]]
    for kind in ("input", "vector", "hidden", "shared", "output", "finite"):
        names = ", ".join(r for r, f in FAMILIES.items() if f == kind)
        for in_branch in (False, True) if param.branch else (False,):
            own = rule(param, moved_by, names.split(", ")[0], in_branch)
            label = f"{kind} in a branch" if in_branch else kind
            cells.append([label, *(ratios(getattr(own, c)) for c in columns)])
    lines = aligned(cells, ruled=False)
    logits = ratios(attention_multiplier(param)).replace("n", "h")
    lines.append(
        f"residual branches × {ratios(branch_multiplier(param))}, attention logits × {logits} "
        "(h: ratio of head dimensions)"
    )
    return "\n".join([f"{param}, {moved_by.name}, {moved_by.decay} decay", *lines])


def ratios(power: Power) -> str:
    """Return a power in words, with n and l for the ratios to the base."""
    return str(power).replace("N", "n").replace("L", "l")


def value(power: Power, n: float, l: float) -> float:
    """Return a power's number at the ratios n and l; exactly 1 at the base."""
    return power.constant * n ** float(power.width) * l ** float(power.depth)


@cache
def _rows(param: Parameterization, adaptive: bool) -> dict[str, Rule[Power]]:
    """Return the parameterization's rows, one for each family, and hidden weights in branches."""
    affine = Dense(bias_std=1.0)
    inside = Residual(serial(Activation("relu"), affine))
    net = serial(affine, Activation("relu"), affine, inside, affine)
    table = param.table(net, adam(1.0) if adaptive else gd(1.0))
    names = {
        "input": "0.weight",
        "vector": "2.bias",
        "hidden": "2.weight",
        "branch": "3.0.1.weight",
        "output": "4.weight",
        "finite": "4.bias",
    }
    return {kind: _bare(table[name]) for kind, name in names.items()}


def _bare(own: Rule[Power]) -> Rule[Power]:
    """Drop constants and the number of inputs: neither changes between base and target."""
    return Rule(
        **{f.name: replace(getattr(own, f.name), constant=1.0, inputs=0) for f in fields(Rule)}
    )


def _shared(rows: dict[str, Rule[Power]], optimizer: Update) -> Rule[Power]:
    """Return the rule of an inner matrix with a fixed number of outputs."""
    hidden, out = rows["hidden"], rows["output"]
    hidden = fold(hidden, hidden.multiplier**-1, optimizer)
    if optimizer.kind == "proportional":
        return replace(hidden, lr=fold(out, out.multiplier**-1, optimizer).lr)
    return hidden


def _times(own: Rule[Power], above: Rule[Power], below: Rule[Power]) -> Rule[Power]:
    return Rule(
        **{
            f.name: getattr(own, f.name) * getattr(above, f.name) / getattr(below, f.name)
            for f in fields(Rule)
        }
    )
