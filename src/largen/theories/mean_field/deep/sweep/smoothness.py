"""Which activations are smooth, so that features and gradients span few directions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.expectations import ActivationFunction
from largen.theories.chains.normalized import elementwise
from largen.theories.chains.problem import Problem

REACH = 6.0  # range of preactivations in which φ' is examined


def smooth_throughout(problem: Problem) -> bool:
    """Whether φ' is continuous in all hidden layers."""
    return all(smooth(elementwise(phi)) for phi in problem.phi)


@lru_cache(maxsize=64)
def smooth(phi: ActivationFunction) -> bool:
    """Whether φ' has no jump, found by halving the interval in which it changes most."""
    with jax.enable_x64(True):

        def slope(x: Any) -> np.ndarray:
            return np.asarray(phi.derivative(jnp.asarray(x)), np.float64)

        x = np.linspace(-REACH, REACH, 1024)
        values = slope(x)
        scale = np.abs(values).max()
        while True:
            steps = np.abs(np.diff(values))
            i = int(np.argmax(steps))
            if steps[i] <= 1e-3 * scale:
                return True
            if x[i + 1] - x[i] < 1e-9:
                return False
            x = np.linspace(x[i], x[i + 1], 64)
            values = slope(x)
