"""Fixed points, the edge and its classes, against known numbers and by iteration."""

import jax
import numpy as np
import pytest

import largen as lg
from largen.criticality.maps import expectations, next_correlation
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.expectations import as_activation, gaussian_moments


def critical(name, kind):
    return next(
        p for p in lg.criticality.edge_of_chaos(name, [1.0]).critical_points if p.kind == kind
    )


@pytest.mark.parametrize(
    ("name", "place", "weight", "bias", "other", "attracts"),
    [
        ("gelu", (3 + 17**0.5) / 2, 1.98305826, 0.17292239, 3.0349815, "above"),
        pytest.param(
            "silu", 14.3201736, 1.98800468, 0.55514317, 14.5931050, "below", marks=pytest.mark.slow
        ),
    ],
)
def test_half_stable_points_and_their_neighbours(name, place, weight, bias, other, attracts):
    point = critical(name, "half-stable")
    assert abs(point.variance - place) < 1e-7
    assert abs(point.weight_std**2 - weight) < 1e-8
    assert abs(point.bias_std**2 - bias) < 1e-8
    assert point.attracts == attracts
    found = lg.criticality.variance_fixed_points(name, point.weight_std, point.bias_std)
    variances = [p.variance for p in found.points]
    assert np.allclose(sorted(variances), sorted([place, other]), rtol=0, atol=1e-7)
    (double,) = [p for p in found.points if p.half_stable]
    assert abs(double.variance - place) < 1e-7
    assert double.stable_from_below == (attracts == "below")


def test_inputs_reach_the_fixed_point_of_their_side():
    point = critical("gelu", "half-stable")
    found = lg.criticality.variance_fixed_points("gelu", point.weight_std, point.bias_std)
    assert found.reached_from(0.5).variance == found[0].variance
    assert found.reached_from(3.3).variance == found[0].variance
    assert found.reached_from(9.0).half_stable
    point = critical("silu", "half-stable")
    found = lg.criticality.variance_fixed_points("silu", point.weight_std, point.bias_std)
    assert found.reached_from(1.0).half_stable
    assert found.reached_from(14.4).variance > 14.5


def test_relu_has_every_variance_or_one():
    found = lg.criticality.variance_fixed_points("relu", 2**0.5)
    assert found.every_variance
    assert found[0].chi_parallel == pytest.approx(1, abs=1e-14)
    one = lg.criticality.variance_fixed_points("relu", 1.0, 0.3)
    assert one[0].variance == pytest.approx(0.18, rel=1e-13)
    assert one.reached_from(7.0) == one[0]
    with pytest.raises(NumericalFailure, match="without bound"):
        lg.criticality.variance_fixed_points("relu", 2.0, 0.1)
    assert len(lg.criticality.variance_fixed_points("relu", 2.0, 0.1, throw=False)) == 0


def test_chaos_of_tanh_and_erf_in_closed_form():
    found = lg.criticality.variance_fixed_points("erf", 1.5, 0.3)
    point = found.reached_from(0.1)
    K = point.variance  # E[erf²] = (2/π) arcsin(2K/(1 + 2K)), E[erf'²] = (4/π)/√(1 + 4K)
    assert 0.09 + 2.25 * 2 / np.pi * np.arcsin(2 * K / (1 + 2 * K)) == pytest.approx(K, rel=1e-12)
    assert point.chi_perp == pytest.approx(2.25 * 4 / np.pi / np.sqrt(1 + 4 * K), rel=1e-12)
    value, slope = gaussian_moments("erf", K, point.correlation * K, K)
    assert 0.09 + 2.25 * float(value) == pytest.approx(point.correlation * K, rel=1e-10)
    assert point.correlation_depth == pytest.approx(-1 / np.log(2.25 * float(slope)), rel=1e-8)
    ordered = lg.criticality.variance_fixed_points("erf", 0.5, 0.3)[0]
    assert ordered.correlation == 1
    assert ordered.correlation_depth > 0


def test_a_variance_may_oscillate():
    # E[cos²] = (1 + e^(−2K))/2 falls with K. For sin, sometimes named here, χ_∥ = σ_w² e^(−2K) > 0.
    point = lg.criticality.variance_fixed_points("cos", 1.5)[0]
    K = point.variance
    assert point.oscillates
    assert point.chi_parallel == pytest.approx(-2.25 * np.exp(-2 * K), rel=1e-10)
    assert point.variance_depth == pytest.approx(-1 / np.log(2.25 * np.exp(-2 * K)), rel=1e-10)
    assert lg.criticality.variance_fixed_points("cos", 1.5).reached_from(3.0) == point
    assert not lg.criticality.variance_fixed_points("sin", 1.5)[-1].oscillates


def test_edge_of_erf_in_closed_form():
    edge = lg.criticality.edge_of_chaos("erf", [0.1, 1.0, 30.0])
    K = edge.variance
    assert np.allclose(edge.weight_std**2, np.pi / 4 * np.sqrt(1 + 4 * K), rtol=1e-12)
    # The file's line has χ_∥ = 1/(1 + 2K): criticality in both only at K = 0.
    assert np.allclose(edge.chi_parallel, 1 / (1 + 2 * K), rtol=1e-11)
    tanh = lg.criticality.edge_of_chaos("tanh", [0.5])
    found = tanh.weight_std[0], tanh.bias_std[0], tanh.chi_parallel[0]
    assert found == pytest.approx((1.29922, 0.19504, 0.548), abs=1e-3)


def test_the_whole_line_has_gradients_of_one():
    edge = lg.criticality.edge_of_chaos("silu", [0.5, 3.0, 100.0])
    for w, b, K in zip(edge.weight_std, edge.bias_std, edge.variance, strict=True):
        near = min(
            lg.criticality.variance_fixed_points("silu", w, b).points,
            key=lambda p: abs(p.variance - K),
        )
        assert near.variance == pytest.approx(K, rel=1e-8)
        assert near.chi_perp == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize("name", ["erf", pytest.param("gelu", marks=pytest.mark.slow)])
def test_critical_weights_at_given_biases_are_fixed_points_of_chi_one(name):
    biases = [0.5, 0.1]
    edge = lg.criticality.edge_of_chaos(name, bias_std=biases)
    assert edge.bias_std.tolist() == biases
    for w, b, K, chi in zip(
        edge.weight_std, edge.bias_std, edge.variance, edge.chi_parallel, strict=True
    ):
        found = lg.criticality.variance_fixed_points(name, w, b)
        near = min(found.points, key=lambda p, K=K: abs(p.variance - K))
        assert near.variance == pytest.approx(K, rel=1e-9)
        assert (near.chi_perp, near.chi_parallel) == pytest.approx((1, chi), rel=1e-9)
        if name == "erf":
            assert w == pytest.approx((np.pi / 4) ** 0.5 * (1 + 4 * K) ** 0.25, rel=1e-12)
            image = np.arcsin(2 * K / (1 + 2 * K)) / 2 * (1 + 4 * K) ** 0.5
            assert b**2 == pytest.approx(K - image, rel=1e-11)


def test_critical_weights_that_are_known_and_those_that_are_not():
    edge = lg.criticality.edge_of_chaos
    # σ_w² = 1.76 at σ_b² = 0.05 is the usual critical point of tanh (Schoenholz et al. 2017).
    assert edge("tanh", bias_std=0.05**0.5).weight_std ** 2 == pytest.approx([1.76], abs=2e-3)
    none = edge("tanh", bias_std=0.0)
    assert (none.variance.tolist(), none.weight_std.tolist()) == ([0.0], [1.0])
    assert len(edge("relu", bias_std=0.1).variance) == 0
    assert edge("relu", bias_std=0.0).weight_std == pytest.approx([2**0.5])
    for wrong in (-0.1, 26.0, [0.1, np.inf]):
        with pytest.raises(InvalidInput, match="bias_std"):
            edge("tanh", bias_std=wrong)
    with pytest.raises(InvalidInput, match="only one of both"):
        edge("tanh", [1.0], bias_std=0.1)
    with pytest.raises(NumericalFailure, match="below 1e-06"):
        edge("tanh", bias_std=1e-12)


def iterate_variance(name, point, K, layers):
    phi = as_activation(name)
    for _ in range(layers):
        second = float(expectations(phi, np.array([K])).second[0, 0])
        K = point.bias_std**2 + point.weight_std**2 * second
    return K


@pytest.mark.parametrize("name", ["tanh", pytest.param("sin", marks=pytest.mark.slow)])
def test_variance_falls_as_one_over_depth(name):
    point = critical(name, "K* = 0")
    before = iterate_variance(name, point, 0.05, 1500)
    after = iterate_variance(name, point, before, 1500)
    # 1/K grows by −a₁ a layer, whatever the start.
    assert (1 / after - 1 / before) / 1500 == pytest.approx(-point.curvature / 2, rel=1e-2)
    assert point.gradient_exponent == pytest.approx(1.0)
    assert np.isnan(point.correlation)
    expected = {"tanh": -4.0, "sin": -2.0}[name]
    assert point.curvature == pytest.approx(expected, rel=1e-12)


def iterate_gap(name, K, layers, gap):
    phi = as_activation(name)
    weight = 1 / float(expectations(phi, np.array([K])).slope[0, 0])
    for _ in range(layers):
        gap = float(next_correlation(phi, K, weight, np.array(gap))[0])
    return gap


@pytest.mark.parametrize(("name", "K", "power"), [("erf", 0.5, 1), ("relu", 1.0, 2)])
def test_correlations_come_to_one_by_a_power_of_the_depth(name, K, power):
    # gap^(−1/p) grows by a constant a layer.
    law = lg.criticality.edge_of_chaos(name, [K]).correlation_gap_after(1.0, K)
    start = iterate_gap(name, K, 400, 0.01)
    end = iterate_gap(name, K, 400, start)
    rate = (end ** (-1 / power) - start ** (-1 / power)) / 400
    assert rate ** (-power) == pytest.approx(float(law), rel=1e-2)


def test_variances_fall_to_critical_points_by_a_power_of_the_depth():
    (point,) = lg.criticality.edge_of_chaos("tanh").critical_points
    through = lg.criticality.propagate(lg.mlp(400, "tanh"), np.eye(1))
    # 1/K grows by a constant a layer, up to the logarithm of the depth.
    grown = 1 / through.variance[400, 0] - 1 / through.variance[200, 0]
    law = point.variance_after(np.array([200, 400]))
    assert grown == pytest.approx(np.diff(1 / law).item(), rel=2e-2)
    linear = next(p for p in lg.criticality.edge_of_chaos("relu", [1.0]).critical_points)
    assert linear.variance_after(7.0) == linear.variance


def test_laws_of_correlations_in_closed_form():
    assert lg.criticality.edge_of_chaos("relu", [1.0]).correlation_gap_after(
        10.0, 1.0
    ) == pytest.approx(4.5 * np.pi**2 / 100, rel=1e-9)


def test_correlations_at_the_critical_zero():
    assert critical("tanh", "K* = 0").attracts == "above"
    even = critical(lambda x: jax.numpy.sin(x) + 0.8 * (1 - jax.numpy.cos(x)), "K* = 0")
    assert even.correlation == 0.5
    # a₁ = s₃ + ¾ s₂² with s₂ = 0.8, s₃ = −1.
    assert even.curvature == pytest.approx(2 * (-1 + 0.75 * 0.64), rel=1e-12)
    assert even.gradient_exponent == pytest.approx((-1 + 0.64) / (-1 + 0.48), rel=1e-12)
    assert critical("gelu", "K* = 0").attracts == "nothing"


@pytest.mark.long_loops
@pytest.mark.slow
def test_correlation_of_tanh_stops_on_the_way():
    # The printed bound 1 − c ~ ℓ^(−δ) with δ in [1, 2] (Bahri and Hanin, Theorem 4.1) fails here.
    net = lg.mlp(1000, "tanh")
    x = np.array([[1.0, 0.0], [0.5, 0.75**0.5]])
    found = lg.criticality.propagate(net, x).correlation[:, 0, 1]
    assert 0.3 < found[-1] < 0.5
    assert abs(found[-1] - found[500]) < 2e-3


def test_bad_inputs_are_named():
    with pytest.raises(NoTheory, match="jumps"):
        lg.criticality.variance_fixed_points("sign", 1.0)
    with pytest.raises(InvalidInput, match="weight_std"):
        lg.criticality.variance_fixed_points("tanh", 0.0)
    with pytest.raises(InvalidInput, match="constant"):
        lg.criticality.variance_fixed_points(lambda x: 0 * x + 1, 1.0)
    with pytest.raises(InvalidInput, match="variances"):
        lg.criticality.edge_of_chaos("tanh", [-1.0])
    with pytest.raises(NumericalFailure, match="not resolved"):
        lg.criticality.edge_of_chaos("exp", [40.0])


def test_results_become_data_sets():
    found = lg.criticality.variance_fixed_points("tanh", 1.5).to_xarray()
    assert found["variance"].dims == ("point",)
    assert found.attrs["activation"] == "tanh"
    edge = lg.criticality.edge_of_chaos("gelu", [1.0, 4.0]).to_xarray()
    assert edge["critical_kind"].values.tolist() == ["K* = 0", "half-stable"]


def test_variances_come_to_half_stable_points_from_their_side():
    # 1/(K − K*) grows by −M''/2 a layer, and χ_⊥ = 1 − p/ℓ.
    for name, side in (("gelu", 1), ("silu", -1)):
        point, phi = critical(name, "half-stable"), as_activation(name)
        K = point.variance * (1 + 1e-4 * side)  # silu's other fixed point is close by
        steps, slopes, last = 0.0, 0.0, K
        for _ in range(40):
            found = expectations(phi, np.array([last]))
            new = point.bias_std**2 + point.weight_std**2 * float(found.second[0, 0])
            steps += 1 / (new - point.variance) - 1 / (last - point.variance)
            # 1/ℓ is −M''(K − K*)/2.
            effective = -point.curvature * (last - point.variance) / 2
            slopes += (1 - point.weight_std**2 * float(found.slope[0, 0])) / effective
            last = new
        assert steps / 40 == pytest.approx(-point.curvature / 2, rel=1e-2)
        assert slopes / 40 == pytest.approx(point.gradient_exponent, rel=1e-2)
        assert point.correlation_exponent == 1
    assert lg.criticality.edge_of_chaos("relu", [1.0]).critical_points[0].correlation_exponent == 2


BENT = ("tanh", "sin", lambda x: jax.numpy.sin(x) + 0.8 * (1 - jax.numpy.cos(x)))


@pytest.mark.parametrize("name", BENT, ids=["tanh", "sin", "bent"])
def test_gradients_fall_by_their_exponent(name):
    point, phi, K, layers = critical(name, "K* = 0"), as_activation(name), 1e-3, 200
    start, growth = K, 0.0
    for _ in range(layers):
        found = expectations(phi, np.array([K]))
        growth += np.log(point.weight_std**2 * float(found.slope[0, 0]))
        K = point.weight_std**2 * float(found.second[0, 0])
    # K falls as 1/ℓ, and gradients as ℓ^(−p).
    assert growth / np.log(K / start) == pytest.approx(point.gradient_exponent, rel=1e-2)


def test_correlations_come_to_a_half_by_their_exponent():
    point, phi, K = critical(BENT[2], "K* = 0"), as_activation(BENT[2]), 1e-4
    assert point.correlation_exponent == pytest.approx(0.64 / (4 * 0.52), rel=1e-9)
    fall = np.log(float(expectations(phi, np.array([K])).second[0, 0]) / K)
    # Changes at ½ ± δ, whose difference is linear in δ: δ falls as K^p.
    above, below = (c_next(phi, BENT[2], K, c) - c for c in (0.6, 0.4))
    assert (above - below) / 0.2 / fall == pytest.approx(point.correlation_exponent, rel=1e-2)
    near_one = c_next(phi, BENT[2], K, 0.95) - 0.95
    assert near_one == pytest.approx(K * 0.16 * 0.05 * (1 - 1.9), rel=1e-2)


def c_next(phi, name, K, c):
    second = float(gaussian_moments(name, K, c * K, K)[0])
    return second / float(expectations(phi, np.array([K])).second[0, 0])
