"""Fluctuations of the kernel of one input in residual networks of finite width.

The stream h ← h + βN(0, S), S = σ_w²⟨φ(h)²⟩, retains its neurons, so that averages over neurons in
different layers are correlated. With ε^ℓ the fluctuation of σ_w²⟨φ²⟩ in layer ℓ,

    δQ ← (1 + β²χ_∥) δQ + β²ε^ℓ,   Cov(ε^j, ε^ℓ) = (σ_w⁴/n) Cov(φ(h^j)², φ(h^ℓ)²),

where h^j and h^ℓ have the variances Q^j < Q^ℓ and the covariance Q^j. In Hermite coefficients a_k
of φ² the last covariance is Σ_{k>0} a_k(Q^j) a_k(Q^ℓ) (Q^j/Q^ℓ)^{k/2}.
"""

from __future__ import annotations

import numpy as np

from largen.expectations import ActivationFunction
from largen.expectations.nodes import derivatives_in_variance, nodes_for, values

_TERMS = 60


def relative_variance(
    phi: ActivationFunction, weight: float, branch: float, depth: int, width: int, start: float
) -> float:
    """Return V/Q² behind all branches of factor β to leading order; ``start`` is the first Q."""
    Q, V = start, 0.0
    places, coefficients, response = np.zeros(depth), np.zeros((depth, _TERMS)), np.zeros(depth)
    for layer in range(depth):
        at = np.array([Q])
        nodes = nodes_for(phi, at)
        square = values(phi, np.sqrt(at) * nodes.z)[0] ** 2
        second, slope = derivatives_in_variance(square, nodes, at, 1)[:, 0]
        own = _coefficients(nodes.z[:, 0], (square * nodes.weights)[:, 0])
        places[layer], coefficients[layer] = Q, own
        # Covariances with all layers up to this one.
        rho = np.sqrt(places[: layer + 1] / Q)[:, None] ** np.arange(1, _TERMS + 1)
        noise = weight**2 / width * np.sum(coefficients[: layer + 1] * own * rho, axis=1)
        growth = 1 + branch * weight * slope
        V = growth**2 * V + 2 * growth * branch * response[:layer] @ noise[:layer]
        V = float(V + branch**2 * noise[layer])
        response[:layer] *= growth
        response[layer] = branch
        Q = Q + branch * weight * second
    return V / Q**2


def _coefficients(z: np.ndarray, weighted: np.ndarray) -> np.ndarray:
    """Return E[f h_k] for k = 1, 2, …, with normalised Hermite polynomials h_k."""
    before, now = np.ones_like(z), z
    coefficients = np.empty(_TERMS)
    for k in range(1, _TERMS + 1):
        coefficients[k - 1] = weighted @ now
        before, now = now, (z * now - np.sqrt(k) * before) / np.sqrt(k + 1)
    return coefficients
