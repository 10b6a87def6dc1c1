"""Residual networks: closed equations, the kernel limit, ensembles of wide networks."""

import numpy as np
import pytest
from scipy import stats
from tests.theories.mean_field.deep import residual_equations
from tests.theories.mean_field.deep.test_against_networks import KERNELS, assert_chance

import largen as lg

RNG = np.random.default_rng(8)
X, XT = RNG.standard_normal((6, 9)), RNG.standard_normal((3, 9))
Y, YT = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0]), np.ones(3)
ALPHAS = {"depth_mup": (lg.depth_mup, 0.5, 1.0), "complete_p": (lg.complete_p, 1.0, 0.0)}


def run_of(net, param, *, lr=0.5, steps=20, samples=6):
    data = lg.Dataset(X[:samples], Y[:samples], XT, YT)
    return lg.Run(net, param, data, optimizer=lg.gd(lr), steps=steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALPHAS)
def test_linear_networks_solve_the_closed_equations(name):
    scheme, alpha, ends = ALPHAS[name]  # ends that stand still in one of them
    blocks, steps, phi0, y = 3, 4, X[:2] @ X[:2].T / 9, Y[:2]
    limit = lg.solve(
        run_of(
            lg.residual_mlp(blocks, "linear"),
            scheme(1.2).with_rates({"input": ends, "output": ends}),
            lr=0.6,
            steps=steps - 1,
            samples=2,
        ),
        record_at=range(steps),
    )
    constants = {"branch": blocks**-alpha, "rate": blocks ** (2 * alpha - 1), "ends": ends}
    f, h, g = residual_equations.solve(phi0, y, blocks, 1.2, 0.6, steps, **constants)
    assert np.abs(f[-1]).max() > (0.3 if ends else 0.1)
    np.testing.assert_allclose(limit.f_train, f, atol=1e-11)
    np.testing.assert_allclose(limit.feature_kernel, h, atol=1e-8)
    np.testing.assert_allclose(limit.gradient_kernel, g, atol=1e-8)


@pytest.mark.parametrize("equation", ["39", "40a", "53", "70", "147"])
def test_printed_equations_are_refuted(equation):
    """What Bordelon et al. print instead does not solve the network: see `residual_equations`."""
    blocks, gamma = 3, 1.2
    limit = lg.solve(
        run_of(lg.residual_mlp(blocks, "linear"), lg.depth_mup(gamma), steps=3, samples=2),
        record_at=range(4),
    )
    f, _, g = residual_equations.solve(
        X[:2] @ X[:2].T / 9, Y[:2], blocks, gamma, 0.5, 4, branch=3**-0.5, rate=1, printed=equation
    )
    off = [
        np.abs(ours / theirs - 1).max()
        for ours, theirs in ((f[1:], limit.f_train[1:]), (g[-1, 0], limit.gradient_kernel[-1, 0]))
    ]
    assert max(off) > 0.03


@pytest.mark.slow
def test_tangent_kernel_is_the_sum_over_branches():
    """K = (1/L)ΣG^(l+1)Φ^l + Φ_out + G¹Φ⁰; (15)-(16) divide the read-out's term by L as well."""
    blocks = 3
    run = run_of(lg.residual_mlp(blocks, "linear"), lg.depth_mup(), lr=0.15, samples=3)
    limit = lg.solve(run, record_at=[0, 20])
    phi, g = limit.feature_kernel, limit.gradient_kernel
    branches = (g[:, 1:] * phi[:, :-1]).sum(1) / blocks
    ends = g[:, 0] * (X[:3] @ X[:3].T / 9) + phi[:, -1]
    np.testing.assert_allclose(limit.ntk, branches + ends, atol=1e-9)
    nets = lg.train(run, width=512, seeds=8, key=0, record=["ntk"], record_at=[20])
    assert_chance(limit.ntk[1:], 0.0, nets.ntk)
    printed = (branches + ends - phi[:, -1] + phi[:, -1] / blocks)[1:]
    error = nets.ntk.std(0, ddof=1) / 8**0.5
    assert np.abs((printed - nets.ntk.mean(0)) / error).max() > 20


@pytest.mark.slow
def test_small_gamma_is_the_kernel_limit():
    """Any power α; the neurons are short of nothing."""
    net = lg.residual_mlp(3, "tanh", layers_per_block=2, bias_std=0.3)
    half = "1/2"
    scale = {"a": (0, half, half), "b": 0, "c": 0, "branch": "3/4", "branch_rate": half}
    lazy = lg.solve(run_of(net, lg.abc(**scale)))
    run = run_of(net, lg.abc(**scale, d=half, gamma=0.01, name="mean field"))
    limit = lg.solve(run, particles=512, replicates=1, rtol=1e-3, record_at=[0])
    np.testing.assert_allclose(limit.ntk[0], lazy.ntk, atol=1e-5)
    np.testing.assert_allclose(limit.f_train, lazy.f_train, atol=2e-3)
    np.testing.assert_allclose(limit.f_test, lazy.f_test, atol=2e-3)


@pytest.mark.slow
def test_fields_of_single_sites():
    """g = φ'z inside of branches and at the end of the stream; in it the next g is added."""
    run = run_of(lg.residual_mlp(2, "tanh", layers_per_block=2), lg.depth_mup(1.2), samples=4)
    sites = lg.solve(run, particles=512, replicates=2, sample_neurons=64, progress=False)
    h, g, z = (getattr(sites, f"neuron_{name}")[-1] for name in "hgz")
    handed_on = np.stack([g[2], 0 * g[1], g[4], 0 * g[3], 0 * g[4]])
    np.testing.assert_allclose((1 - np.tanh(h) ** 2) * z + handed_on, g, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "param"),
    [
        (lg.residual_mlp(4, "tanh"), lg.depth_mup()),
        (lg.residual_mlp(16, "relu"), lg.complete_p()),
        (lg.residual_mlp(3, "gelu", layers_per_block=2, bias_std=0.3), lg.depth_mup()),
    ],
    ids=["depth 4", "depth 16", "two layers a block"],
)
def test_ensembles_of_wide_networks(net, param):
    seeds = 16
    run = run_of(net, param, lr=0.3, steps=12, samples=4)
    limit = lg.solve(run, replicates=4, particles=512)
    records = ("feature_kernel", "gradient_kernel", "ntk")
    nets = lg.train(run, width=512, seeds=seeds, key=2, record=records, progress=False)
    assert np.abs(limit.f_train[-1]).max() > 0.2
    for what in ("f_train", "f_test", *KERNELS):
        ours, error = getattr(limit, what), getattr(limit, f"{what}_error")
        # The largest of so many variables, one time in a thousand.
        worst = float(stats.norm.isf(5e-4 / ours.size))
        assert_chance(ours, error, getattr(nets, what), worst, replicates=4)
