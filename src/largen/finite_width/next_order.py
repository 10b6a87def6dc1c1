"""The size of the next order in 1/width, computed for each input separately."""

from __future__ import annotations

import numpy as np

from largen.expectations.nodes import derivatives_in_variance, nodes_for, values
from largen.finite_width.sized_network import SizedNetwork

SMALL = 0.2  # largest ratio of the next order to the leading one at which the series is trusted


def variance_at_next_order(network: SizedNetwork, K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance of each input's S at order 1/n, and its term of order 1/n².

    With M and C(K) = σ_w⁴ Var(φ²), and m, V, T as in :mod:`largen.finite_width.recursion`,

        V₂ ← M'²V₂ + 2M'M''mV + M'M''T + (½M''² + M'M''')V² + (C'm + ½C''V)/n.

    ``K``: variances of the first preactivations, (input,).
    """
    m, V, T, V2 = (np.zeros_like(K) for _ in range(4))
    for layer in network.hidden:
        w, n = layer.weight, layer.width
        nodes = nodes_for(layer.phi, K)
        square = values(layer.phi, np.sqrt(K) * nodes.z)[0] ** 2
        second = derivatives_in_variance(square, nodes, K, 3)
        fourth = derivatives_in_variance(square**2, nodes, K, 2)
        sixth = np.sum(square**3 * nodes.weights, axis=0)
        M1, M2, M3 = w * second[1:]
        C = w**2 * (fourth[0] - second[0] ** 2)
        C1 = w**2 * (fourth[1] - 2 * second[0] * second[1])
        C2 = w**2 * (fourth[2] - 2 * second[1] ** 2 - 2 * second[0] * second[2])
        third = w**3 * (sixth - 3 * fourth[0] * second[0] + 2 * second[0] ** 3)
        V2 = (
            M1**2 * V2
            + 2 * M1 * M2 * m * V
            + M1 * M2 * T
            + (M2**2 / 2 + M1 * M3) * V**2
            + (C1 * m + C2 * V / 2) / n
        )
        T = M1**3 * T + 3 * M2 * M1**2 * V**2 + 3 * M1 * V * C1 / n + third / n**2
        m, V = M1 * m + M2 * V / 2, M1**2 * V + C / n
        K = layer.bias + w * second[0]
    return V, V2
