"""Nodes of averages of functions with kinks, against their closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from largen.expectations import as_activation
from largen.expectations.nodes import derivatives_in_variance, kinks_of, nodes_for, values


@pytest.mark.parametrize("place", [0.0, 0.7, -2.5])
def test_panels_meet_at_kinks(place):
    phi = as_activation(lambda x: jnp.abs(x - place))
    assert kinks_of(phi) == pytest.approx((place,))
    q = np.array([0.04, 1.0, 30.0, 1e4])
    nodes, s = nodes_for(phi, q), np.sqrt(q)
    np.testing.assert_allclose(nodes.weights.sum(0), 1, rtol=1e-12)
    average = np.sum(nodes.weights * values(phi, s * nodes.z)[0], 0)
    folded = 2 * s * norm.pdf(place / s) + place * (1 - 2 * norm.cdf(-place / s))
    np.testing.assert_allclose(average, folded, rtol=1e-10)


def test_derivatives_of_moments_in_the_variance():
    """E h⁶ = 15 q³."""
    q = np.array([0.5, 2.0])
    nodes = nodes_for(as_activation("tanh"), q)
    found = derivatives_in_variance((np.sqrt(q) * nodes.z) ** 6, nodes, q, 3)
    np.testing.assert_allclose(found, [15 * q**3, 45 * q**2, 90 * q, 90 + 0 * q], rtol=1e-11)
