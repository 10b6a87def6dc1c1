"""Adaptive optimizers where features stand still: a step in closed form, descent, networks."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.theories import AdaptiveKernelLimit, KernelLimit

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 3))
DATA = lg.Dataset(X[:4], np.array([1.0, -1.0, 1.0, 0.5]), X[4:], np.array([1.0]))
FROM_ZERO = lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, d="1/4")
HALF_GAMMA = lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, gamma=0.5)
POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(200)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def first_step(phi, slope, x):
    """Return the change of f at x by a step of sign descent at the rate 1, of two hidden layers.

    Δf = Σ_d |x_d|/√D E|g₁| + E|g₂| E|φ(h₁)| + E|φ(h₂)| with g₂ = w φ'(h₂), g₁ = φ'(h₁) z, and
    z ~ N(0, E g₂²); weights, z and preactivations are independent.
    """
    size = np.sqrt(np.mean(x**2))
    one = size * POINTS
    two = np.sqrt(WEIGHTS @ phi(one) ** 2) * POINTS
    mean = np.sqrt(2 / np.pi)
    g2 = mean * (WEIGHTS @ abs(slope(two)))
    z = mean * np.sqrt(WEIGHTS @ slope(two) ** 2)
    g1 = z * (WEIGHTS @ abs(slope(one)))
    into = np.abs(x).sum() / np.sqrt(len(x))
    return into * g1 + g2 * (WEIGHTS @ abs(phi(one))) + WEIGHTS @ abs(phi(two))


@pytest.mark.parametrize(
    ("name", "phi", "slope"),
    [
        ("tanh", np.tanh, lambda h: 1 / np.cosh(h) ** 2),
        ("relu", lambda h: np.maximum(h, 0), lambda h: (h > 0).astype(float)),
    ],
)
@pytest.mark.parametrize("param", [lg.ntk(), FROM_ZERO], ids=str)
def test_the_first_step_is_sign_descent_in_closed_form(name, phi, slope, param):
    x = np.array([1.0, 2.0])
    data = lg.Dataset(x[None], np.array([50.0]))  # above all initial outputs
    run = lg.Run(lg.mlp(2, name), param, data, optimizer=lg.adam(0.1), steps=1)
    limit = lg.solve(run, replicates=16)
    f, error = limit.f_train[:, 0], limit.f_train_error[1, 0]
    assert abs(f[0]) < 1e-10
    assert error < 1e-2 * f[1]
    # relu's slope is 1/2 on average, as by the quadrature, whose points are in pairs.
    assert abs(f[1] - 0.1 * first_step(phi, slope, x)) < 4 * error + 3e-4 * f[1]


@pytest.mark.slow
def test_a_large_eps_is_the_kernel_limit_of_gradient_descent():
    eps, net = 1e5, lg.mlp(2, "tanh", bias_std=0.3)
    slow = lg.adam(0.5 * eps, beta1=0, beta2=0, eps=eps)
    run = lg.Run(net, FROM_ZERO.with_rates({"output": 0.5}), DATA, optimizer=slow, steps=6)
    limit = lg.solve(run, rtol=5e-3)
    exact = lg.solve(run.with_changes(optimizer=lg.gd(0.5)))
    assert (limit.theory, exact.theory) == ("kernel, adaptive", KernelLimit.name)
    off = (limit.f_train - exact.f_train)[1:]
    assert np.sqrt(np.mean((off / limit.f_train_error[1:]) ** 2)) < 3
    assert np.abs(off).max() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "optimizer"),
    [
        (lg.mlp(1, "tanh"), lg.adam(0.1)),
        (lg.mlp(2, "tanh", bias_std=0.4), lg.optimizers.rmsprop(0.05, beta=0.9)),
        (lg.residual_mlp(2, "relu"), lg.adam(0.1)),
        (lg.mlp(1, "relu"), lg.adam(0.1, weight_decay=0.8)),
    ],
    ids=["one hidden layer", "bias", "residual", "decay"],
)
def test_networks_from_their_initial_outputs(net, optimizer):
    run = lg.Run(net, HALF_GAMMA, DATA, optimizer=optimizer, steps=5)
    limit = lg.solve(run, particles=256, replicates=2)
    far, near = (lg.train(run, width=n, seeds=6, key=1) for n in (64, 1024))
    off = []
    for nets in (far, near):
        given = AdaptiveKernelLimit().condition(limit, nets.f_train[:, 0], nets.f_test[:, 0])
        found = zip(given, (nets.f_train, nets.f_test), strict=True)
        off.append(np.concatenate([(mine - f).ravel() for mine, f in found]))
    sizes = [np.sqrt(np.mean(each**2)) for each in off]
    moved = np.sqrt(np.mean((near.f_train - near.f_train[:, :1]) ** 2))
    assert sizes[1] < 0.09 * moved
    assert sizes[1] < 0.5 * sizes[0]  # 1/4 by the root of the width


def test_what_is_not_covered_is_refused():
    run = lg.Run(lg.mlp(2, "tanh"), lg.ntk(), DATA, optimizer=lg.adam(0.1), steps=3)
    decays = lg.adam(0.1, weight_decay=0.1)
    for change, words in (
        ({"param": lg.mup()}, "features stand still for"),
        ({"optimizer": lg.gd(0.1)}, r"limit of lg\.adam"),
        ({"optimizer": decays}, "is not of degree one"),
        ({"param": lg.standard()}, "grows as N"),
    ):
        with pytest.raises(NoTheory, match=words):
            AdaptiveKernelLimit.pose(run.with_changes(**change))
    assert AdaptiveKernelLimit.pose(run.with_changes(param=FROM_ZERO, optimizer=decays))
    limit = lg.solve(run, particles=64, replicates=2, record=[])
    with pytest.raises(InvalidInput, match="f0_test: wanted shape"):
        AdaptiveKernelLimit().condition(limit, np.zeros((2, 4)), np.zeros((2, 3)))
