r"""Time filters: a weight under gradient descent as a sum over earlier gradients.

Gradient descent with momentum and weight decay,

    v(t) = βv(t−1) + κ_t γ(t) − η_t λ θ(t),   θ(t+1) = θ(t) + v(t),   κ_t = η_t γ₀,

is linear in the gradients γ(s), which are sums over samples without normalisation:

    θ(t) = d(t) θ(0) + Σ_{s<t} k(t, s) γ(s).

With β = λ = 0 these are d = 1 and k(t, s) = κ_s. In the equations of the limit of infinite width
k takes the place of κ, and all terms of the initial random weights at the times t and s, noise as
well as responses, are multiplied by d(t)d(s).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from largen.theories.chains.constants import MapConstants


class Filter(NamedTuple):
    """d and k of all pairs of times; k is 0 unless s < t."""

    kept: Float[np.ndarray, " time"]
    taken: Float[np.ndarray, "time time"]

    @classmethod
    def of(
        cls,
        rates: Float[np.ndarray, " step"],  # η₀ of each step
        # gamma, momentum, decay: γ₀, β and λ₀.
        gamma: float,
        momentum: float = 0.0,
        decay: float = 0.0,
    ) -> Filter:
        """Return the filter of weights that train, at the times 0 … number of steps."""
        times = len(rates) + 1
        both = np.zeros((times, 1 + times))  # d beside k
        both[0, 0], velocity = 1.0, np.zeros(1 + times)
        for t, rate in enumerate(rates):
            velocity = momentum * velocity - rate * decay * both[t]
            velocity[1 + t] += rate * gamma
            both[t + 1] = both[t] + velocity
        return cls(both[:, 0], both[:, 1:])

    @property
    def standing(self) -> Filter:
        """The filter of weights that do not train."""
        return Filter(np.ones_like(self.kept), np.zeros_like(self.taken))


class Link(NamedTuple):
    """The action of an affine map, or of several in a row, on kernels between two times.

    The map's output has the covariance noise ∘ Φ + bias_noise of the kernel Φ of what it reads,
    and drifts by Σ_s [tangent ∘ Φ + bias_tangent](t, s) Δ(s) g(s).
    """

    # noise, bias_noise: σ² d(t)d(s) and σ_b² d(t)d(s).
    noise: Float[np.ndarray, "time time"]
    # tangent, bias_tangent: ρσ² k(t, s) and ρσ_b² k(t, s).
    tangent: Float[np.ndarray, "time time"]
    bias_noise: Float[np.ndarray, "time time"]
    bias_tangent: Float[np.ndarray, "time time"]
    # rate, bias_rate: contribution of the map to the tangent kernel at t: ρσ² and ρσ_b², as a
    # function of t.
    rate: Float[np.ndarray, " time"]
    bias_rate: Float[np.ndarray, " time"]

    @classmethod
    def of(cls, constants: MapConstants, filter: Filter) -> Link:
        """Return the link of one map, whose weights have a filter if they train."""
        noise, tangent, own = _parts(constants.std, constants.rate, filter)
        bias = _parts(constants.bias_std, constants.bias_rate, filter)
        return cls(noise, tangent, *bias[:2], own, bias[2])

    @property
    def quiet(self) -> Link:
        """Return the link without noise."""
        nothing = np.zeros_like(self.noise)
        return self._replace(noise=nothing, bias_noise=nothing)


def _parts(std: float, rate: float, filter: Filter) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    kept, taken = filter if rate else filter.standing
    square = std**2
    return square * np.multiply.outer(kept, kept), rate * square * taken, rate * square + 0 * kept


def in_a_row(links: Sequence[Link]) -> Link:
    """Return the link of linear maps in a row, each of which changes little.

    The changes of all maps add up: Bordelon et al., Depthwise hyperparameter transfer in residual
    networks, (141)-(143), have only the change of the last map, which is wrong at order one.
    """
    first, *rest = links
    noise, tangent, bias_noise, bias_tangent, rate, bias_rate = first
    for link in rest:
        here = link.noise
        tangent = here * tangent + link.tangent * noise
        bias_tangent = here * bias_tangent + link.tangent * bias_noise + link.bias_tangent
        rate = here.diagonal() * rate + link.rate * noise.diagonal()
        bias_rate = here.diagonal() * bias_rate + link.rate * bias_noise.diagonal() + link.bias_rate
        noise, bias_noise = here * noise, here * bias_noise + link.bias_noise
    return Link(noise, tangent, bias_noise, bias_tangent, rate, bias_rate)
