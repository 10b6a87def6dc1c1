"""Kernels of infinitely deep networks, against networks of finite depth and independent values."""

import math
from itertools import pairwise

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.kernels.rules.homogeneous_depth import _coefficients

RELU = lg.serial(lg.Activation("relu"), lg.Dense())


def around(block, blocks, read_out=None):
    read_out = read_out or lg.Dense()
    return lg.serial(lg.Dense(), lg.repeat(lg.Residual(block), blocks), read_out)


def pair(cosine):
    """Two samples of mean square 1 at this angle."""
    return np.sqrt(2) * np.array([[1.0, 0.0], [cosine, np.sqrt(1 - cosine**2)]])


def samples(n=4, d=5):
    return np.random.default_rng(0).standard_normal((n, d))


def extrapolated(net, x, blocks=(16, 32, 64, 128), **options):
    """Kernels of finite depths, carried to infinite depth in powers of 1/L."""
    found = [np.stack(lg.kernel(net(n), x, **options)) for n in blocks]
    for order in range(1, len(found)):
        found = [(2**order * b - a) / (2**order - 1) for a, b in pairwise(found)]
    return found[0]


def erf_moments(q1, q2, q12):
    """E[φφ] and E[φ'φ'] for φ(x) = erf(x)."""
    root = mpmath.sqrt((1 + 2 * q1) * (1 + 2 * q2))
    det = mpmath.sqrt((1 + 2 * q1) * (1 + 2 * q2) - 4 * q12**2)
    return 2 / mpmath.pi * mpmath.asin(2 * q12 / root), 4 / (mpmath.pi * det)


def relu_moments(q1, q2, q12):
    root = mpmath.sqrt(q1 * q2)
    theta = mpmath.acos(max(min(q12 / root, mpmath.mpf(1)), mpmath.mpf(-1)))
    covariance = root * mpmath.sin(theta) + (mpmath.pi - theta) * q12
    return covariance / (2 * mpmath.pi), (mpmath.pi - theta) / (2 * mpmath.pi)


def by_taylor(moments, cosine, weight, bias):
    """Kernels of two samples of size 1 by mpmath's series, with covariances instead of gaps."""
    with mpmath.workdps(25):
        v, b = mpmath.mpf(weight) ** 2, mpmath.mpf(bias) ** 2

        def slope(_, y):
            q, q12, theta = y
            (alone, _), (covariance, derivative) = moments(q, q, q), moments(q, q, q12)
            return [
                v * alone + b,
                v * covariance + b,
                v * covariance + b + v * derivative * theta,
            ]

        start = [v + b, v * mpmath.mpf(cosine) + b, v * mpmath.mpf(cosine) + b]
        q, q12, theta = mpmath.odefun(slope, 0, start, tol=mpmath.mpf("1e-16"))(1)
        covariance, derivative = moments(q, q, q12)
        nngp = v * covariance + b
        return float(nngp), float(nngp + v * derivative * theta)


@pytest.mark.parametrize("cosine", [0.5, 0.0])
@pytest.mark.parametrize(
    ("phi", "moments", "weight", "bias"),
    [
        ("relu", relu_moments, 1.0, 0.0),
        ("relu", relu_moments, 1.5, 0.3),
        ("erf", erf_moments, 1.5, 0.0),
    ],
)
def test_values_of_many_digits(phi, moments, weight, bias, cosine):
    net = lg.residual_mlp(math.inf, phi, weight_std=weight, bias_std=bias)
    found = lg.kernel(net, pair(cosine), param=lg.depth_mup())
    wanted = by_taylor(moments, cosine, weight, bias)
    np.testing.assert_allclose([found.nngp[0, 1], found.ntk[0, 1]], wanted, 1e-8, 1e-10)


def test_one_sample_of_relu():
    # q(τ) = e^{τ/2} and Θ(1) = e^½ (1 + ½), through the read-out from φ.
    found = lg.kernel(lg.residual_mlp(math.inf, "relu"), pair(1.0)[:1], param=lg.depth_mup())
    np.testing.assert_allclose(found.nngp, math.exp(0.5) / 2, rtol=1e-11)
    np.testing.assert_allclose(found.ntk, math.exp(0.5) / 2 * 2.5, rtol=1e-11)


@pytest.mark.parametrize("weight", [1.0, 1.5])
def test_opposite_samples_of_relu(weight):
    """θ = π − ψ with ψ as the time: τ(ψ) is smooth where ψ(τ) begins as a root."""
    v = weight**2

    def rates(psi, y):
        tau, body, gain = y
        if psi == 0:
            return [0.0, 0.0, 0.0]
        folded = np.sin(psi) + (np.pi - psi) * np.cos(psi)
        rate = 2 * np.pi * np.sin(psi) / (v * folded)  # dτ/dψ
        kernel = (np.sin(psi) - psi * np.cos(psi)) / (2 * np.pi) * np.exp(v * tau / 2)
        slope = psi / (2 * np.pi)
        return [rate, rate * v * (kernel + slope * body), rate * v * slope * gain]

    def at(psi):
        options = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-15}
        return solve_ivp(rates, (0, psi), [0.0, 0.0, 1.0], **options).y[:, -1]

    psi = brentq(lambda psi: at(psi)[0] - 1, 1e-3, 2.5, xtol=1e-14)
    _, body, gain = at(psi)
    size = v * math.exp(v / 2)
    covariance = size * (np.sin(psi) - psi * np.cos(psi)) / (2 * np.pi)
    theta = v * body - v * gain
    wanted = [v * covariance, v * covariance + v * psi / (2 * np.pi) * theta]
    net = lg.residual_mlp(math.inf, "relu", weight_std=weight)
    x = pair(0.0)[:1]
    for found in (
        lg.kernel(net, np.concatenate([x, -x]), param=lg.depth_mup()),
        lg.kernels.kernel_of_stds(net, np.concatenate([x, -x]), param=lg.depth_mup())(),
    ):
        np.testing.assert_allclose([found.nngp[0, 1], found.ntk[0, 1]], wanted, atol=2e-8)


def test_the_backward_form_of_the_tangent_kernel():
    # Bordelon et al., Proposition 2: −∂τ G = G ⟨φ'φ'⟩, Θ = Φ(1) + ∫ G Φ + G(0) K⁰, with the
    # read-out's Φ(1), which their (8) leaves out.
    steps = 4000
    q = np.exp(np.linspace(0, 1, steps + 1) / 2)
    q12, phi, slope = np.zeros(steps + 1), np.zeros(steps + 1), np.zeros(steps + 1)
    for n in range(steps + 1):
        theta = np.arccos(q12[n] / q[n])
        phi[n] = (q[n] * np.sin(theta) + (np.pi - theta) * q12[n]) / (2 * np.pi)
        slope[n] = (np.pi - theta) / (2 * np.pi)
        if n < steps:
            q12[n + 1] = q12[n] + phi[n] / steps
    inside = np.concatenate([[0], np.cumsum((slope[1:] + slope[:-1]) / 2)]) / steps
    gradients = slope[-1] * np.exp(inside[-1] - inside)
    body = np.sum((gradients * phi)[1:] + (gradients * phi)[:-1]) / (2 * steps)
    found = lg.kernel(lg.residual_mlp(math.inf, "relu"), pair(0.0), param=lg.depth_mup())
    np.testing.assert_allclose(found.ntk[0, 1], phi[-1] + body, rtol=5e-4)
    assert abs(found.ntk[0, 1] - body) > 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    "block",
    [
        lg.serial(lg.LayerNorm(), lg.Activation("relu"), lg.Dense()),
        pytest.param(
            lg.serial(lg.Activation("tanh"), lg.Dense(weight_std=1.2, bias_std=0.4)),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lg.serial(lg.Activation("erf"), lg.Dense(), lg.Activation("relu"), lg.Dense()),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_networks_of_finite_depth_approach_it(block):
    x = samples()
    found = lg.kernel(around(block, math.inf), x, param=lg.depth_mup())
    wanted = extrapolated(lambda n: around(block, n), x, param=lg.depth_mup())
    np.testing.assert_allclose(np.stack(found), wanted, atol=2e-7)


@pytest.mark.slow
def test_blocks_that_alternate():
    one, two = lg.Residual(RELU), lg.Residual(lg.serial(lg.Activation("erf"), lg.Dense()))

    def net(n):
        return lg.serial(lg.Dense(), lg.repeat(lg.serial(one, two), n), lg.Dense())

    found = lg.kernel(net(math.inf), samples(), param=lg.depth_mup())
    wanted = extrapolated(net, samples(), param=lg.depth_mup())
    np.testing.assert_allclose(np.stack(found), wanted, atol=2e-7)


@pytest.mark.slow
@pytest.mark.parametrize("pool", [lg.Flatten(), lg.GlobalAvgPool()])
def test_convolutions(pool):
    x = np.random.default_rng(0).standard_normal((3, 3, 3, 2))
    block = lg.Residual(lg.serial(lg.Activation("erf"), lg.Conv((3, 3), bias_std=0.1)))

    def net(n):
        return lg.serial(lg.Conv((3, 3)), lg.repeat(block, n), pool, lg.Dense())

    found = lg.kernel(net(math.inf), x, param=lg.depth_mup())
    wanted = extrapolated(net, x, param=lg.depth_mup())
    np.testing.assert_allclose(np.stack(found), wanted, atol=2e-7)


@pytest.mark.parametrize("alpha", ["3/4", 1])
def test_streams_that_stand_still(alpha):
    """For α > ½: Θ(1) = K⁰ + ⟨φφ⟩ at τ = 0, without a term ⟨φ'φ'⟩Θ of the branches."""
    power = 1 if alpha == 1 else "1/2"
    param = lg.abc(
        a=(0, "1/2", "1/2"), b=0, c=0, d="1/2", branch=alpha, branch_rate=power, name="deep"
    )
    found = lg.kernel(lg.residual_mlp(math.inf, "relu"), pair(0.3), param=param)
    covariance, slope = (float(m) for m in relu_moments(*map(mpmath.mpf, ("1", "1", "0.3"))))
    np.testing.assert_allclose(found.nngp[0, 1], covariance, rtol=1e-10)
    np.testing.assert_allclose(found.ntk[0, 1], covariance + slope * (0.3 + covariance), rtol=1e-10)


def test_rates_of_branches_that_fall_behind_do_not_count():
    slower = lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, d="1/2", branch=1, branch_rate=0)
    frozen = lg.complete_p().with_rates({"hidden": 0.0})
    net = lg.residual_mlp(math.inf, "erf")
    one, two = (lg.ntk_kernel(net, samples(), param=param) for param in (slower, frozen))
    np.testing.assert_allclose(one, two, rtol=1e-12)


@pytest.mark.parametrize("variance", [0.5, 1.0, 2.0, 4.0, 8.0])
def test_relu_branches_of_usual_weights_have_tables_of_the_angle(variance):
    """Against arc-cosine kernels and their equation in depth."""
    tables = _coefficients(0.5, 0.5, variance)
    assert tables is not None

    def slope(_, y):
        q, k, body, gain = y  # variance, kernel, and tangent kernels of the branches and before
        theta = np.arccos(np.clip(k / q, -1, 1))
        mean = q * (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / (2 * np.pi)
        turned = (np.pi - theta) / (2 * np.pi)
        rest = mean + turned * body, turned * gain
        return variance * np.array([q / 2, mean, *rest])

    for theta in (0.4, 1.5, 2.8):
        w, body, gain = tables @ (2 * theta / np.pi - 1) ** np.arange(tables.shape[1])
        start = [1.0, np.cos(theta), 0.0, 1.0]
        q, k, *rest = solve_ivp(slope, (0, 1), start, "DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
        assert [body, gain] == pytest.approx(rest, rel=1e-9)
        assert (1 - w) * (1 - np.cos(theta)) == pytest.approx(1 - k / q, rel=1e-9)


@pytest.mark.slow
def test_tables_of_the_angle_and_steps_agree():
    """`kernel_of_stds` takes steps, since its constants may change."""
    x = np.concatenate([samples(6, 3), np.zeros((1, 3)), 1e-4 + samples(1, 3)])
    for phi in ("relu", lg.Activation(lambda x: jnp.where(x > 0, x, 0.2 * x)), "linear"):
        name = phi if isinstance(phi, str) else phi.function
        net = lg.residual_mlp(math.inf, name, weight_std=1.3)
        table = lg.kernel(net, x, param=lg.depth_mup())
        steps = lg.kernels.kernel_of_stds(net, x, param=lg.depth_mup())()
        np.testing.assert_allclose(np.stack(table), np.stack(steps), atol=3e-9)


def test_blocks_without_a_function_grow_exponentially():
    """Steps that change the scale of all kernels alike are as wrong as others."""
    x, dense = samples(4, 3), lg.Dense(weight_std=1.3)
    net = lg.serial(dense, lg.repeat(lg.Residual(dense), math.inf), dense)
    expected = 1.3**4 * np.exp(1.3**2) * (x @ x.T / 3)
    np.testing.assert_allclose(lg.nngp_kernel(net, x, param=lg.depth_mup()), expected, rtol=1e-9)


def test_near_twins_keep_their_digits():
    x = samples(1, 6)
    x = np.concatenate([x, x + 1e-7 * samples(2, 6)[1:]])
    net = lg.residual_mlp(math.inf, "relu")
    nngp = lg.nngp_kernel(net, x, param=lg.depth_mup())
    apart = (nngp[0, 0] + nngp[1, 1] - 2 * nngp[0, 1]) / 2
    assert 0 < apart < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("phi", ["relu", lg.Activation(lambda x: jnp.where(x > 0, x, 0.2 * x))])
def test_biases_without_growth_and_plain_steps_agree(phi):
    """`kernel_of_stds` takes plain steps, since its constants may change."""
    x = np.concatenate([samples(6, 3), -samples(2, 3), np.zeros((1, 3)), 3 * samples(1, 3)])
    name = phi if isinstance(phi, str) else phi.function
    net = lg.residual_mlp(math.inf, name, weight_std=1.3, bias_std=0.2)
    param = lg.depth_mup().with_rates({"hidden": 0.7})
    flat, steps = lg.kernel(net, x, param=param), lg.kernels.kernel_of_stds(net, x, param=param)()
    scale = np.sqrt(np.diagonal(flat.ntk))
    apart = np.stack(flat) - np.stack(steps)
    np.testing.assert_allclose(apart / np.outer(scale, scale), 0, atol=5e-9)


@pytest.mark.slow
def test_derivatives_in_samples_with_biases():
    net = lg.residual_mlp(math.inf, "relu", bias_std=0.3)
    with jax.enable_x64(True):
        x, toward = jnp.asarray(samples(3)), jnp.asarray(samples(3)[::-1])

        def total(step):
            return lg.ntk_kernel(net, x + step * toward, param=lg.depth_mup()).sum()

        slope, step = jax.grad(total)(0.0), 1e-4
        np.testing.assert_allclose(slope, (total(step) - total(-step)) / (2 * step), rtol=1e-6)


@pytest.mark.slow
def test_derivatives_by_standard_deviations():
    net = lg.residual_mlp(math.inf, "erf", weight_std=1.2, bias_std=0.3)
    kernels = lg.kernels.kernel_of_stds(net, samples(3), param=lg.depth_mup())
    names = ("1.0.0.1.weight_std", "1.0.0.1.bias_std")

    def total(weight, bias):
        return kernels(dict(zip(names, (weight, bias), strict=True))).ntk.sum()

    with jax.enable_x64(True):
        slopes = jax.grad(total, argnums=(0, 1))(1.2, 0.3)
        step = 1e-4
        wanted = [
            (total(1.2 + step, 0.3) - total(1.2 - step, 0.3)) / (2 * step),
            (total(1.2, 0.3 + step) - total(1.2, 0.3 - step)) / (2 * step),
        ]
    np.testing.assert_allclose(slopes, wanted, rtol=1e-6)


def test_tiles_are_symmetric_and_positive():
    x = np.random.default_rng(1).standard_normal((450, 3))
    for bias in (0.0, 0.2):
        net = lg.residual_mlp(math.inf, "relu", bias_std=bias)
        for kernel in lg.kernel(net, x, param=lg.depth_mup()):
            np.testing.assert_array_equal(kernel, kernel.T)
            values = np.linalg.eigvalsh(kernel)
            assert values.min() > -1e-12 * values.max()


def test_posteriors_and_estimators():
    x = samples(12, 3)
    y, net = np.sin(x[:, 0]), lg.residual_mlp(math.inf, "relu", bias_std=0.2)
    lazy = lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, branch="1/2")
    model = lg.NNGPRegressor(net=net, param=lazy, noise=1e-2, normalize_y=False)
    found = model.fit(x, y).predict(x[:3])
    k = lg.nngp_kernel(net, x, param=lazy)
    np.testing.assert_allclose(k, lg.nngp_kernel(net, x, param=lg.depth_mup()), rtol=1e-12)
    wanted = k[:3] @ np.linalg.solve(k + 1e-2 * np.eye(12), y)
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


def test_steps_that_do_not_suffice_are_reported():
    dense = lg.Dense(weight_std=4.0, bias_std=1.0)
    block = lg.serial(lg.Activation("relu"), dense, lg.Activation("relu"), dense)
    net = around(block, math.inf)
    with pytest.raises(NumericalFailure, match="steps in depth"):
        lg.kernel(net, samples(), param=lg.depth_mup())


def test_what_has_no_limit_is_refused():
    x, deep = samples(), lg.residual_mlp(math.inf)
    block = lg.serial(lg.Dense(), lg.Activation("relu"))
    twice = lg.serial(deep.layers[0], deep.layers[1], lg.Dense(), *deep.layers[1:])
    beside = lg.serial(deep.layers[0], lg.Residual(RELU), *deep.layers[1:])
    grows = lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, branch="1/2", branch_rate=1)
    for net, param, words in (
        (deep, lg.ntk(), "variance grow as L"),
        (around(lg.serial(lg.layers.BatchNorm(), RELU), math.inf), lg.depth_mup(), "whole batch"),
        (around(lg.Activation("tanh"), math.inf), lg.depth_mup(), "random weights"),
        (around(block, math.inf), lg.depth_mup(), "has a mean"),
        (twice, lg.depth_mup(), "more than one stack"),
        (beside, lg.depth_mup(), "leave it out"),
        (deep, grows, "its update"),
    ):
        with pytest.raises(NoTheory, match=words):
            lg.kernel(net, x, param=param)
    images = np.random.default_rng(0).standard_normal((2, 3, 4))
    net = lg.serial(around(lg.layers.SelfAttention(), math.inf), lg.Flatten(), lg.Dense())
    with pytest.raises(NoTheory, match="attention"):
        lg.kernel(net, images, param=lg.depth_mup())


def test_what_needs_a_number_of_blocks_says_so():
    data = lg.Dataset(samples(), np.ones(4))
    deep = lg.residual_mlp(math.inf)
    run = lg.Run(deep, lg.depth_mup(), data, loss="mse", optimizer=lg.gd(lr=0.1), steps=2)
    with pytest.raises(InvalidInput, match="a network to train needs a number of blocks"):
        lg.train(run, width=8, seeds=2, key=0)
    with pytest.raises(InvalidInput, match="a network to train needs a number of blocks"):
        lg.networks.monte_carlo_kernel(
            deep, samples(), param=lg.depth_mup(), width=8, draws=4, key=0
        )
    with pytest.raises(NoTheory, match="number of blocks"):
        lg.solve(run, theory="mean field, deep")


def test_what_is_repeated_without_end_is_checked():
    block = lg.Residual(RELU)
    for layer, words in (
        (lg.Dense(), "wanted a residual block"),
        (lg.Residual(RELU, lg.Dense()), "shortcut"),
        (lg.repeat(block, 2), "wanted a residual block"),
        (lg.repeat(block, math.inf), "infinitely deep already"),
    ):
        with pytest.raises(InvalidInput, match=words):
            lg.repeat(layer, math.inf)
    with pytest.raises(InvalidInput, match="infinitely deep already"):
        lg.repeat(lg.serial(lg.repeat(block, math.inf), lg.Dense()), 3)
