"""Averages of two functions with kinks, against scipy's integrals between the kinks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from largen.expectations import as_activation
from largen.expectations.two_functions import cross_moments

Q1, Q2 = 1.3, 0.8


@pytest.mark.parametrize("correlation", [-0.7, 0.2, 0.95])
def test_two_functions_with_kinks(correlation):
    q12 = correlation * np.sqrt(Q1 * Q2)
    rest = np.sqrt(Q2 - q12**2 / Q1)

    def inner(u):
        """E[max(v − 0.4, 0) | u]."""
        above = (q12 / Q1 * u - 0.4) / rest
        return rest * (above * norm.cdf(above) + norm.pdf(above))

    def outer(u):
        return (1 - abs(u)) * inner(u) * np.exp(-(u**2) / (2 * Q1)) / np.sqrt(2 * np.pi * Q1)

    wanted = quad(outer, -1, 1, points=[0])[0]
    with jax.enable_x64(True):
        phi = as_activation(lambda x: jnp.maximum(1 - jnp.abs(x), 0))
        psi = as_activation(lambda x: jnp.maximum(x - 0.4, 0))
        found = cross_moments(phi, psi, *map(jnp.asarray, (Q1, Q2, q12)))
    assert float(found[0]) == pytest.approx(wanted, rel=1e-9)
