"""Weight decay in the kernel limit: networks whose output is homogeneous in their weights.

Decay shrinks the initial weights too, θ = a(t)θ₀ + δ(t) with a of order one while δ stays small,
and with them features and tangent kernel. If the output is homogeneous of degree Λ in the
weights that decay (relu networks without biases; Λ is the number of affine maps that are trained),
f(aθ₀) = a^Λ f₀ and ∇f(aθ₀) = a^(Λ−1) ∇f₀, so that with δ = Σ_μ α_μ ρ∇f₀(x_μ)

    f = a^Λ f₀ + a^(Λ−1) Θα,

a step of gradient descent on P samples with momentum β and decay λ is

    w ← βw + λa,                       a ← a − η₀w,
    v ← βv + a^(Λ−1) Δ/P − λα,         α ← α + η₀v,

and gradient flow has a = e^(−η₀λt), dα/dt = η₀(a^(Λ−1) Δ/P − λα). For other networks the tangent
kernel changes its shape as well as its size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.architectures import Affine, Elementwise, Layer, Parallel, Sequence, carry, copies_of
from largen.errors import NoTheory
from largen.expectations import ActivationFunction
from largen.parameterizations import CanonicalForm

_POINTS = np.concatenate([side * np.geomspace(1e-3, 1e3, 41) for side in (-1, 1)])


def degree(net: Layer, form: CanonicalForm) -> int:
    """Return Λ, the degree of the output in the weights that decay.

    Raises
    ------
    NoTheory
        If the output is not homogeneous in these weights.
    """
    for name in form.weights:
        if name.endswith(".bias"):
            raise _not_homogeneous(f"it has the bias {name}")
    return _degree(net, form)


def _degree(net: Layer, form: CanonicalForm) -> int:
    def leaf(layer: Layer, path: tuple[int, ...], found: int) -> int:
        if isinstance(layer, Affine):
            name = ".".join(map(str, path)) or "0"
            return found + int(form.weights[f"{name}.weight"].rate > 0)
        if isinstance(layer, Elementwise):
            if not _of_degree_one(layer.activation):
                raise _not_homogeneous(f"{layer.activation!r} is not of degree one")
        elif not layer.homogeneous:
            raise _not_homogeneous(f"{layer!r} is not linear and not a product with weights")
        return found

    def join(layer: Parallel, path: tuple[int, ...], found: int, ways: Any) -> int:
        raise _not_homogeneous(f"{layer!r} is not linear and not a product with weights")

    def again(layer: Sequence, path: tuple[int, ...], found: int, once: Any) -> int:
        return found + copies_of(layer) * once(0)

    return carry(net, 0, leaf=leaf, join=join, again=again)


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
