"""Weight decay in the kernel limit: networks whose output is homogeneous in their weights.

Decay shrinks the initial weights too, θ = a(t)θ₀ + δ(t) with a of order one while δ stays small,
and with them features and tangent kernel. If the output is homogeneous of degree Λ in the
weights that decay (relu networks without biases; Λ is the number of trained affine maps that follow
one another),
f(aθ₀) = a^Λ f₀ and ∇f(aθ₀) = a^(Λ−1) ∇f₀, so that with δ = Σ_μ α_μ ρ∇f₀(x_μ)

    f = a^Λ f₀ + a^(Λ−1) Θα,

a step of gradient descent on P samples with momentum β and decay λ is

    w ← βw + λa,                       a ← a − η₀w,
    v ← βv + a^(Λ−1) Δ/P − λα,         α ← α + η₀v,

and gradient flow has a = e^(−η₀λt), dα/dt = η₀(a^(Λ−1) Δ/P − λα). For other networks the tangent
kernel changes its shape as well as its size.
"""

from __future__ import annotations

import numpy as np

from largen.errors import NoTheory
from largen.expectations import ActivationFunction
from largen.parameterizations import CanonicalForm
from largen.programs import (
    Affine,
    Concatenate,
    Function,
    Operation,
    Product,
    Program,
    Source,
    Sum,
    written_out,
)
from largen.programs.refusals import at

_POINTS = np.concatenate([side * np.geomspace(1e-3, 1e3, 41) for side in (-1, 1)])


def degree(program: Program, form: CanonicalForm) -> int:
    """Return Λ, the degree of the output in the weights that decay."""
    for name in form.weights:
        if name.endswith(".bias"):
            raise _not_homogeneous(f"it has the bias {name}")
    program, degrees = written_out(program), [0]
    for operation, source in zip(program.operations[1:], program.sources[1:], strict=True):
        behind = _behind(operation, source, [degrees[read] for read in operation.reads])
        if isinstance(operation, Affine):
            weight = program.weights[operation.weight]
            behind += int(form.weights[f"{weight.name}.weight"].rate > 0)
        degrees.append(behind)
    return degrees[-1]


def _behind(operation: Operation, source: Source, before: list[int]) -> int:
    """Return the degree of an operation's value for fixed weights, given those that it reads."""
    match operation:
        case Product():
            return sum(before)
        case Function(phi=phi) if not _of_degree_one(phi):
            raise _not_homogeneous(f"{phi!r} is not of degree one ({at(source)})")
        case Sum() | Concatenate() if len(set(before)) > 1:
            lowest, highest = min(before), max(before)
            raise _not_homogeneous(
                f"{at(source)} joins values of degrees {lowest} and {highest} in the weights"
            )
        case Affine() | Function() | Sum() | Concatenate():
            return before[0]
    if not operation.homogeneous:
        raise _not_homogeneous(f"{at(source)} is not linear and not a product with weights")
    return before[0]


def _of_degree_one(phi: ActivationFunction) -> bool:
    """Whether φ(2x) = 2φ(x), which is exact for piecewise linear functions of degree one."""
    value = np.asarray(phi(_POINTS.astype(np.float32)))
    return np.array_equal(np.asarray(phi(2 * _POINTS.astype(np.float32))), 2 * value)


def _not_homogeneous(why: str) -> NoTheory:
    return NoTheory(
        "weight decay shrinks the initial weights, too, and with them the tangent kernel; its "
        "limit is implemented where the output is homogeneous in the weights, as for relu "
        f"networks without biases, and this one is not: {why}."
    )
