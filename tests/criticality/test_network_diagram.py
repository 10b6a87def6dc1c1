"""Diagrams of networks over σ_w and σ_b."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput

X = np.eye(3)[:2] * np.sqrt(3)


@pytest.mark.slow
def test_deep_plain_networks_have_the_phases_of_their_limit():
    w, b = [0.8, 1.6, 2.5], [0.3]

    def at(depth):
        return lg.criticality.network_diagram(
            lambda w, b: lg.mlp(depth, "tanh", weight_std=w, bias_std=b), X, w, b
        )

    found, shallower, limit = at(60), at(50), lg.criticality.phase_diagram("tanh", w, b)
    factor = np.exp((found.gradient_growth - shallower.gradient_growth) / 10)
    np.testing.assert_allclose(factor, limit.chi_perp, rtol=1e-6)
    np.testing.assert_allclose(found.variance, limit.variance, rtol=1e-6)
    left = np.exp(-60 / limit.correlation_depth) + 1e-12  # of the distance to c*, and rounding
    assert (np.abs(found.correlation - limit.correlation) < left).all()


def test_linear_residual_networks_in_closed_form():
    w, b, depth = np.array([0.5, 1.2]), [0.0], 5
    found = lg.criticality.network_diagram(
        lambda w, b: lg.residual_mlp(depth, "linear", weight_std=w, bias_std=b), X, w, b
    )
    # The read-in and the read-out multiply by σ_w², each block by 1 + σ_w².
    variance = w**4 * (1 + w**2) ** depth
    np.testing.assert_allclose(found.variance[:, 0], variance, rtol=1e-12)
    growth = np.log(w**2 * (1 + w**2) ** depth)
    np.testing.assert_allclose(found.gradient_growth[:, 0], growth, rtol=1e-12)
    np.testing.assert_allclose(found.correlation, 0, atol=1e-12)


def test_overflow_is_left_out():
    def network(w, b):
        return lg.mlp(400, "linear", weight_std=w, bias_std=b)

    found = lg.criticality.network_diagram(network, X, [1.0, 100.0], [0.0])
    np.testing.assert_array_equal(np.isinf(found.variance[:, 0]), [False, True])
    np.testing.assert_array_equal(np.isnan(found.correlation[:, 0]), [False, True])
    assert "overflow at 50%" in repr(found)


def test_what_is_no_function_of_the_constants_is_refused():
    for wrong in (lambda w: lg.mlp(1, "tanh"), lambda w, b: "tanh"):
        with pytest.raises(InvalidInput, match="network: wanted a function"):
            lg.criticality.network_diagram(wrong, X, [1.0], [0.0])
    with pytest.raises(InvalidInput, match="at least two samples"):
        lg.criticality.network_diagram(lambda w, b: lg.mlp(1, "relu"), X[:1], [1.0], [0.0])


def test_a_network_in_place_of_an_activation_is_told_where_to_go():
    with pytest.raises(InvalidInput, match=r"to lg\.criticality\.network_diagram"):
        lg.criticality.phase_diagram(lg.residual_mlp(2, "tanh"))
    layer = lg.criticality.phase_diagram(lg.Activation("tanh"), [1.0], [0.1])
    assert layer.variance.shape == (1, 1)
