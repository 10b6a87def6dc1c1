"""Recommended constants, Jacobians, phase diagrams and signals layer by layer."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.plots import edge_figure, phase_figure, propagation_figure

RNG = np.random.default_rng(0)


def test_recommendations_by_class():
    relu = lg.criticality.critical_initialization("relu", depth=50, widths=100)
    assert relu.weight_std**2 == pytest.approx(2, rel=1e-12)
    assert relu.effective_depth == pytest.approx(5 * 50 / 100, rel=1e-10)
    tanh = lg.criticality.critical_initialization("tanh", depth=400, widths=[400] * 400)
    assert (tanh.weight_std, tanh.bias_std) == (1.0, 0.0)
    assert tanh.effective_depth == pytest.approx(2 / 3, rel=0.02)
    elu = lg.criticality.critical_initialization("elu", depth=30)
    assert elu.gradient_growth == pytest.approx(1, rel=1e-3)
    # With φ = u², K = 1/(4σ_w²) on the edge, and differences of K grow by 6σ_w²K = 3/2 a layer.
    square = lg.criticality.critical_initialization(lambda u: u**2, depth=10)
    assert "multiplies differences of the variance by 1.5" in square.reason
    assert "nor does this one attract" in square.reason
    assert "nor does" not in elu.reason
    with pytest.raises(NoTheory, match="no edge of chaos"):
        lg.criticality.critical_initialization("softplus", depth=10)
    with pytest.raises(InvalidInput, match="widths"):
        lg.criticality.critical_initialization("relu", depth=3, widths=[10, 10])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rms", "layer"),
    [("relu", 1.0, 1.467), ("tanh", 1.178, 1.178), ("gelu", 1.072, 1.319), ("silu", 1.067, 1.212)],
)
def test_normalised_networks_are_chaotic(name, rms, layer):
    for network, expected in (("rms_norm", rms), ("layer_norm", layer)):
        found = lg.criticality.critical_initialization(name, depth=1, network=network)
        assert found.gradient_growth == pytest.approx(expected, abs=5e-4)
    inner = [lg.Activation(name), lg.LayerNorm(), lg.Dense()]
    net = lg.serial(lg.Dense(), *inner, *inner)
    found = lg.criticality.propagate(net, 2**0.5 * np.eye(2))
    assert np.allclose(found.variance[[0, 2, 4]], 1)
    # From behind one affine map to behind the next.
    assert found.chi_perp[-2, 0] * found.chi_perp[-1, 0] == pytest.approx(layer, abs=5e-4)


def test_residual_networks_need_no_tuning():
    shallow, deep = (
        lg.criticality.critical_initialization("gelu", depth=d, network="residual")
        for d in (200, 400)
    )
    assert deep.gradient_growth == pytest.approx(shallow.gradient_growth, rel=1e-2)
    assert deep.gradient_growth < 5


def test_depth_scales_are_relative_to_the_depth():
    elu = lg.criticality.critical_initialization("elu", depth=30, widths=100)
    assert elu.relative_depth == np.inf
    edge = lg.criticality.edge_of_chaos("elu", [1e-3])
    assert elu.variance_depth == pytest.approx(-1 / np.log(edge.chi_parallel[0]), rel=1e-6)
    layer = lg.criticality.critical_initialization(
        "relu", depth=50, widths=100, network="layer_norm"
    )
    assert layer.relative_depth == pytest.approx(-1 / np.log(1.467) / 50, rel=1e-3)
    assert layer.effective_depth == 0
    assert "ξ_c/L" in repr(layer)
    with pytest.raises(InvalidInput, match="residual"):
        lg.criticality.critical_initialization("relu", depth=2, widths=[3, 4], network="residual")


def test_normalised_kernels_are_the_same_in_every_network():
    # At any width: the normalised features of one input have mean square 1.
    rng = np.random.default_rng(1)
    f = np.maximum(rng.normal(size=(5, 7)), 0)
    f = f - f.mean(axis=1, keepdims=True)
    normalised = f / np.sqrt(np.mean(f**2, axis=1, keepdims=True))
    assert np.ptp(np.mean(normalised**2, axis=1)) < 1e-12


@pytest.mark.parametrize(("name", "phi"), [("tanh", np.tanh), ("relu", lambda z: np.maximum(z, 0))])
def test_streams_fluctuate_as_residual_networks(name, phi):
    rng, depth, draws, left = np.random.default_rng(0), 6, 8000, []
    for n in (40, 160):
        found = lg.criticality.critical_initialization(
            name, depth=depth, widths=n, network="residual"
        )
        h, Q = rng.normal(size=(draws, n)), np.ones(draws)
        for _ in range(depth):
            S = found.weight_std**2 * np.mean(phi(h) ** 2, axis=1) / depth
            h, Q = h + np.sqrt(S)[:, None] * rng.normal(size=(draws, n)), Q + S
        seen = Q.var() / Q.mean() ** 2
        error = np.std((Q - Q.mean()) ** 2) / np.sqrt(draws) / Q.mean() ** 2
        # With independent layers it would be about a third of this.
        left.append((seen - found.effective_depth) / error)
        assert abs(seen / found.effective_depth - 1) < 3.5 * error / seen + 3 / n
    assert abs(left[1]) < 3.5


@pytest.mark.slow
def test_propagation_is_the_kernels():
    net = lg.mlp(3, "gelu", weight_std=1.3, bias_std=0.4)
    x = RNG.normal(size=(3, 5))
    found = lg.criticality.propagate(net, x)
    nngp = lg.nngp_kernel(net, x)
    covariance = found.correlation[-1] * np.sqrt(np.outer(found.variance[-1], found.variance[-1]))
    assert np.allclose(covariance, nngp, rtol=1e-12)
    assert found.to_xarray().sizes == {"layer": 4, "sample": 3, "sample_2": 3}
    # χ_∥ and χ_⊥ of the second layer, from differences of the recursion.
    step = 1e-4
    larger = lg.criticality.propagate(net, (1 + step) * x).variance
    smaller = lg.criticality.propagate(net, (1 - step) * x).variance
    slope = (np.log(larger[2]) - np.log(smaller[2])) / (np.log(larger[1]) - np.log(smaller[1]))
    assert np.allclose(found.chi_parallel[2], slope, rtol=1e-6)
    near = lg.criticality.propagate(net, np.stack([x[0], x[0] + 1e-6 * x[1]]))
    # Of twins of nearly equal size the gap grows as χ_⊥ up to what their sizes differ by.
    assert near.chi_perp[2, 0] == pytest.approx(found.chi_perp[2, 0], rel=1e-5)


def test_propagation_of_residual_and_convolutional_networks():
    net = lg.residual_mlp(8, "relu", weight_std=2**0.5)
    found = lg.criticality.propagate(net, np.eye(3), param=lg.depth_mup())
    assert np.allclose(found.chi_perp[1:9], 1 + 1 / 8)
    assert np.allclose(found.chi_parallel, 1)
    first, second = (lg.Conv((3,), padding="CIRCULAR", weight_std=s) for s in (1.0, 2**0.5))
    net = lg.serial(first, lg.Activation("relu"), second, lg.Flatten(), lg.Dense())
    x = RNG.normal(size=(2, 6, 3))
    found = lg.criticality.propagate(net, x)
    assert np.allclose(found.chi_perp[1], 1)
    assert np.allclose(found.variance[-1], np.diag(lg.nngp_kernel(net, x)))


def test_an_overflow_is_named():
    with pytest.raises(NumericalFailure, match="overflows behind"):
        lg.criticality.propagate(lg.mlp(400, "relu", weight_std=20.0), np.eye(2))


def test_gradients_of_wide_networks_grow_by_chi():
    """Mean and variance of squared singular values, against networks."""
    n, layers, draws = 200, 3, 6
    slope = {"tanh": lambda z: 1 / np.cosh(z) ** 2, "relu": lambda z: (z > 0) * 1.0}
    value = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0)}
    for name, weight, weights in (("tanh", 1.3, "gaussian"), ("relu", 2**0.5, "orthogonal")):
        means, relative = [], []
        for _ in range(draws):
            z, J = RNG.normal(size=n), np.eye(n)
            for _ in range(layers):
                J = slope[name](z)[:, None] * J
                W = RNG.normal(size=(n, n)) / np.sqrt(n)
                W = np.linalg.qr(W)[0] if weights == "orthogonal" else W
                z, J = weight * W @ value[name](z), weight * W @ J
            eigenvalues = np.linalg.eigvalsh(J @ J.T)
            means.append(eigenvalues.mean())
            relative.append(eigenvalues.var() / eigenvalues.mean() ** 2)
        theory = lg.criticality.jacobian_moments(name, weight, layers=layers, weights=weights)
        for seen, expected in (
            (means, theory.mean[-1]),
            (relative, theory.variance[-1] / theory.mean[-1] ** 2),
        ):
            error = max(np.std(seen, ddof=1) / np.sqrt(draws), 0.02 * expected)
            assert abs(np.mean(seen) - expected) < 3.5 * error


def test_phase_diagram_agrees_with_fixed_points():
    diagram = lg.criticality.phase_diagram(
        "tanh", [0.8, 1.6, 2.4], [0.05, 0.4], width=100, depth=20
    )
    for i, w in enumerate(diagram.weight_std):
        for j, b in enumerate(diagram.bias_std):
            point = lg.criticality.variance_fixed_points("tanh", w, b)[-1]
            assert diagram.variance[i, j] == pytest.approx(point.variance, rel=1e-6)
            assert diagram.chi_perp[i, j] == pytest.approx(point.chi_perp, rel=1e-6)
            assert diagram.correlation[i, j] == pytest.approx(point.correlation, abs=1e-6)
            depth = abs(point.correlation_depth)
            assert diagram.correlation_depth[i, j] == pytest.approx(depth, rel=1e-5)
    assert diagram.to_xarray()["kernel_variance"].dims == ("weight_std", "bias_std")
    relu = lg.criticality.phase_diagram("relu", [1.0, 3.0], [0.1])
    assert np.isinf(relu.variance[1, 0])
    with pytest.raises(InvalidInput, match="width, depth"):
        lg.criticality.phase_diagram("tanh", width=10)


@pytest.mark.slow
def test_networks_over_the_phase_diagram():
    weight, bias, width, depth = [0.8, 2.0], [0.3], 300, 6
    found = lg.criticality.phase_diagram(
        "tanh", weight, bias, width=width, depth=depth, draws=12, key=0
    )
    drawn = found.networks
    for i, w in enumerate(weight):
        for j, b in enumerate(bias):
            # Two inputs of variance 1 and correlation ½, carried through the same layers.
            net = lg.mlp(depth, "tanh", weight_std=w, bias_std=b)
            a = np.array([[1.0, 0.0], [0.5, 0.75**0.5]])
            layers = [lg.Dense(), *net.layers[1:]]
            theory = lg.criticality.propagate(lg.serial(*layers), 2**0.5 * a)
            growth = np.log(theory.chi_perp[1:, 0]).mean()
            slack = 2 / width  # of order 1/width a layer
            assert abs(drawn.growth[i, j] - growth) < 3.5 * drawn.growth_error[i, j] + slack
            correlation = theory.correlation[-1, 0, 1]
            error = drawn.correlation_error[i, j]
            assert abs(drawn.correlation[i, j] - correlation) < 3.5 * error + 3 * slack
    assert "at 100% of points" in repr(found)
    assert found.to_xarray()["network_growth"].dims == ("weight_std", "bias_std")
    for given in ({"draws": 4}, {"draws": 1, "width": 5, "depth": 2, "key": 0}):
        with pytest.raises(InvalidInput, match="draws"):
            lg.criticality.phase_diagram("tanh", [1.0], [0.1], **given)


@pytest.mark.slow
def test_pictures_are_drawn(tmp_path):
    diagram = lg.criticality.phase_diagram(
        "tanh", np.linspace(0.5, 3, 9), np.linspace(0, 1, 7), width=50, depth=9, draws=2, key=0
    )
    figures = [
        phase_figure(diagram),
        edge_figure(lg.criticality.edge_of_chaos("gelu")),
        propagation_figure(lg.criticality.propagate(lg.mlp(4, "relu"), np.eye(3))),
    ]
    for number, figure in enumerate(figures):
        figure.savefig(tmp_path / f"{number}.png")
        assert figure.axes[0].get_xlabel()
