r"""The linear response of neurons to their own Gaussian fields.

A neuron of layer l obeys, over times and samples (and in g, z and r over outputs), the equations

    h = u + C g + h_below,   z = r + D φ(h),   g = φ'(h) z + g_above,
    C(t, s) = s_t s_s σ²A^(l−1)(t, s) + K(t, s) [ρσ²Φ^(l−1)(t, s) + ρ_b σ_b²] Δ(s),    s < t,
    D(t, s) = s_t s_s σ²B^l(t, s) + K(t, s) ρσ² G^(l+1)(t, s) Δ(s),               B for s ≤ t too.

u and r are the Gaussian fields with the maps' σ. K(t, s) is what is left at t of an update at s,
and s_t of the initial weights: η₀γ₀/P and 1 without momentum and decay. h_below and g_above are
those of the neighbours in a residual stream, whose layers share their neurons. With the layers of
a stream side by side, S that adds up the u of a layer and of those below it, and the matrix
M = φ''z + φ'Dφ' over times and samples,

    δh = S(δu + C δg),   δg = Sᵀ(φ'δr + M δh),
    ∂φ(h)/∂r = φ' (1 − SCSᵀM)⁻¹ SCSᵀ φ',   ∂g/∂u = SᵀM (1 − SCSᵀM)⁻¹ S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Float

from largen.expectations import ActivationFunction
from largen.interrupts import check

CHUNK = 2**27  # bytes of the matrices of the neurons that are treated at the same time


class Neurons(NamedTuple):
    """φ, φ' and φ'' of the neurons of a layer, and their g and z."""

    value: Float[np.ndarray, "neuron step_sample"]
    slope: Float[np.ndarray, "neuron step_sample"]
    bend: Float[np.ndarray, "neuron step_sample"]
    g: Float[np.ndarray, "neuron step_sample output"]
    z: Float[np.ndarray, "neuron step_sample output"]

    @classmethod
    def of(cls, phi: ActivationFunction, h: np.ndarray, g: np.ndarray, z: np.ndarray) -> Neurons:
        """Return the linearisation of φ at given fields."""
        with jax.enable_x64(True):
            at = jnp.asarray(h, jnp.float64)
            value, slope, bend = (np.asarray(x) for x in (phi(at), *phi.derivatives(at)))
        return cls(value, slope, bend, g.astype(np.float64), z.astype(np.float64))

    @property
    def feature_kernel(self) -> Float[np.ndarray, "n n"]:
        """Φ between all times and samples."""
        return self.value.T @ self.value / len(self.value)

    @property
    def gradient_kernel(self) -> Float[np.ndarray, "m m"]:
        """G between all times, samples and outputs."""
        g = self.g.reshape(len(self.g), -1)
        return g.T @ g / len(g)


class Responses(NamedTuple):
    """⟨∂φ(h)/∂r⟩ and ⟨∂g/∂u⟩ of a layer; n are times and samples, m also outputs."""

    forward: Float[np.ndarray, "n m"]
    backward: Float[np.ndarray, "m n"]


def stream_responses(
    stream: Sequence[Neurons],  # the layers that share their neurons, from below
    sums: Float[np.ndarray, "layer layer"],  # S
    c: Sequence[Float[np.ndarray, "n m"]],
    d: Sequence[Float[np.ndarray, "m n"]],
) -> list[Responses]:
    """Return the responses of the layers of a residual stream, or of a single layer."""
    layers, (n, m) = len(stream), c[0].shape
    outputs, count = m // n, len(stream[0].value)
    across = np.einsum("al,lnm,bl->anbm", sums, np.stack(c), sums).reshape(layers * n, layers * m)
    forward, backward = np.zeros((layers, n, m)), np.zeros((layers, m, n))
    at_once = max(1, CHUNK // (8 * (layers * n) * (layers * m)))
    for begin in range(0, count, at_once):
        check()
        some = [Neurons(*(x[begin : begin + at_once] for x in one)) for one in stream]
        slopes = [np.repeat(one.slope, outputs, axis=1) for one in some]
        bends = np.zeros((len(some[0].value), layers, m, layers, n))
        for l, (one, slope) in enumerate(zip(some, slopes, strict=True)):
            at = bends[:, l, :, l]
            at += slope[:, :, None] * d[l] * one.slope[:, None, :]
            curved = (one.bend[:, :, None] * one.z).reshape(len(at), m)
            at[:, np.arange(m), np.arange(m) // outputs] += curved
        bends = bends.reshape(len(bends), layers * m, layers * n)
        inverse = np.linalg.inv(np.eye(layers * n) - across @ bends)
        ahead = (inverse @ across).reshape(-1, layers, n, layers, m)
        back = (bends @ inverse).reshape(-1, layers, m, layers, n).sum(0)
        for l, (one, slope) in enumerate(zip(some, slopes, strict=True)):
            forward[l] += np.einsum("in,inm,im->nm", one.slope, ahead[:, l, :, l], slope)
            backward[l] += np.einsum("a,ambn,b->mn", sums[:, l], back, sums[:, l])
    return [Responses(*both) for both in zip(forward / count, backward / count, strict=True)]


@dataclass(frozen=True)
class RoundedKinks:
    """φ(h) + Σ_k j_k δ ρ((h − k)/δ) as a function, ρ(x) = E max(0, x + ξ) − max(0, x).

    Of a φ whose derivative jumps by j_k at k this is smooth; of piecewise linear φ it is
    E φ(h + δξ) with a standard Gaussian ξ.
    """

    phi: ActivationFunction
    kinks: tuple[float, ...]
    jumps: tuple[float, ...]
    width: float  # δ

    def __call__(self, h: Any) -> Any:
        """Return the rounded φ(h)."""
        return self.phi(h) + sum(j * self.width * _rest(x) for j, x in self._near(h))

    def derivative(self, h: Any) -> Any:
        """Return its derivative."""
        return self.phi.derivative(h) + sum(j * (ndtr(x) - (x > 0)) for j, x in self._near(h))

    def _near(self, h: Any) -> list[tuple[float, Any]]:
        return [(j, (h - k) / self.width) for k, j in zip(self.kinks, self.jumps, strict=True)]

    def as_activation(self) -> ActivationFunction:
        """Return it as an activation."""
        return ActivationFunction(f"{self.phi} rounded by {self.width:g}", self, self.derivative)


def _rest(x: Any) -> Any:
    return jnp.exp(-(x**2) / 2) / (2 * jnp.pi) ** 0.5 - abs(x) * ndtr(-abs(x))
