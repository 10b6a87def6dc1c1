"""Spectra of feature kernels against closed forms, drawn networks and digits."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import largen as lg
from largen.errors import InvalidInput, NoTheory

ACTIVATIONS = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0)}
Z = np.array([-0.03, -0.1, -0.5, -2.0])


def drawn_resolvents(x, name, weight_std, bias_std, widths, draws=8):
    """Return (1/P) tr(S − z)⁻¹ of networks, (draw, z)."""
    rng, found = np.random.default_rng(5), []
    for _ in range(draws):
        h = x
        for width in widths:
            weights = rng.standard_normal((h.shape[1], width)) * weight_std / h.shape[1] ** 0.5
            h = ACTIVATIONS[name](h @ weights + bias_std * rng.standard_normal(width))
        values = np.linalg.eigvalsh(weight_std**2 * h @ h.T / widths[-1])
        found.append(np.mean(1 / (values[:, None] - Z), axis=0))
    return np.array(found)


@pytest.mark.parametrize("width", [40, 100, 250])
def test_one_linear_layer_is_marchenko_pastur(width):
    x = np.sqrt(100) * np.eye(100)
    found = lg.finite_width.kernel_spectrum(lg.mlp(1, "linear"), x, width=width)
    ratio = 100 / width
    b = 1 - ratio - Z
    assert np.allclose(found.resolvent(Z), (b - np.sqrt(b**2 - 4 * ratio * Z)) / (2 * ratio * Z))
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2
    values = np.linspace(low + 0.1 * (high - low), high - 0.1 * (high - low), 9)
    density = np.sqrt((high - values) * (values - low)) / (2 * np.pi * ratio * values)
    assert np.allclose(found.density(values), density, rtol=1e-3)
    assert found.density([1.2 * high])[0] < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_infinite_width_gives_the_kernel(name):
    x = np.random.default_rng(0).standard_normal((60, 30))
    net = lg.mlp(1, name, weight_std=1.2)
    found = lg.finite_width.kernel_spectrum(net, x - x.mean(0), width=10**7)
    kernel = np.linalg.eigvalsh(lg.nngp_kernel(net, x - x.mean(0)))
    assert np.allclose(found.covariance_eigenvalues, kernel, rtol=1e-10)
    assert np.allclose(found.resolvent(Z), np.mean(1 / (kernel[:, None] - Z), axis=0), rtol=1e-4)


@pytest.mark.slow
def test_the_mass_is_one_and_the_mean_is_the_kernels():
    x = np.random.default_rng(0).standard_normal((100, 60))
    found = lg.finite_width.kernel_spectrum(lg.mlp(2, "tanh"), x, width=(150, 200))
    data = found.to_xarray()
    values, density = data["feature_eigenvalue"].values, data["density"].values
    assert abs(np.trapezoid(density * values, np.log(values)) - 1) < 2e-3
    narrow = lg.finite_width.kernel_spectrum(lg.mlp(2, "tanh"), x, width=(150, 60)).to_xarray()
    values, density = narrow["feature_eigenvalue"].values, narrow["density"].values
    assert abs(np.trapezoid(density * values, np.log(values)) - 0.6) < 2e-3
    kernel = np.trace(lg.nngp_kernel(lg.mlp(2, "tanh"), x)) / 100
    far = -1e4  # −z(1 + zm) is the mean, up to the second moment over |z|
    assert np.isclose(-far * (1 + far * found.resolvent(far)), kernel, rtol=1e-2)


@pytest.mark.parametrize(
    ("name", "weight_std", "bias_std", "widths"),
    [
        ("tanh", 1.3, 0.0, (400,)),
        ("tanh", 1.3, 0.0, (500, 300)),
        ("relu", 2**0.5, 0.0, (500, 400)),
        ("relu", 1.0, 0.6, (500,)),
        ("tanh", 1.2, 0.5, (500, 600)),
    ],
)
def test_networks_have_the_resolvent(name, weight_std, bias_std, widths):
    x = np.random.default_rng(1).standard_normal((400, 250))
    net = lg.mlp(len(widths), name, weight_std=weight_std, bias_std=bias_std)
    found = lg.finite_width.kernel_spectrum(net, x, width=widths)
    assert found.trusted
    drawn = drawn_resolvents(x, name, weight_std, bias_std, widths)
    error = drawn.std(axis=0, ddof=1) / len(drawn) ** 0.5
    assert np.all(np.abs(found.resolvent(Z) - drawn.mean(0)) < 4.5 * error + 0.012 * drawn.mean(0))


@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_digits(name):
    x = np.asarray(load_digits(return_X_y=True)[0])[:300] / 8
    x = x - np.mean(x, axis=0)
    one = lg.finite_width.kernel_spectrum(lg.mlp(1, name), x, width=400)
    two = lg.finite_width.kernel_spectrum(lg.mlp(2, name), x, width=400)
    assert one.approximation_error == 0
    assert not two.trusted
    drawn = drawn_resolvents(x, name, 1.0, 0.0, (400,))
    assert np.allclose(one.resolvent(Z), drawn.mean(0), rtol=0.015)
    deep = drawn_resolvents(x, name, 1.0, 0.0, (400, 400), draws=4).mean(0)
    off = np.abs(two.resolvent(Z) / deep - 1)
    assert 0.01 < off[0] < two.approximation_error


@pytest.mark.slow
def test_errors():
    x = np.random.default_rng(0).standard_normal((10, 4))
    found = lg.finite_width.kernel_spectrum(lg.mlp(1, "tanh"), x, width=20)
    assert "10 samples, hidden layers of 20" in repr(found)
    assert np.imag(found.resolvent(0.5 + 1e-3j)) > 0
    for z in (0.0, 1.0, 1 - 1j, float("nan")):
        with pytest.raises(InvalidInput, match="z"):
            found.resolvent(z)
    with pytest.raises(InvalidInput, match="values: wanted positive"):
        found.density([1.0, -1.0])
    with pytest.raises(InvalidInput, match="at least 2 samples"):
        lg.finite_width.kernel_spectrum(lg.mlp(1, "tanh"), x[:1], width=20)
    with pytest.raises(InvalidInput, match="the same signal"):
        lg.finite_width.kernel_spectrum(lg.mlp(2, "tanh"), np.ones((3, 2)), width=20)
    with pytest.raises(NoTheory, match="Dense"):
        lg.finite_width.kernel_spectrum(lg.serial(lg.Dense(), lg.Dense()), x, width=20)
