"""Fluctuations of convolutions and residual branches: exact tensors, infinite width, networks."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoRule, NoTheory
from largen.finite_width import fluctuations
from largen.finite_width.layered_network import layered_network
from largen.finite_width.neuron_paths import limits_of

RNG = np.random.default_rng(3)
X, IMAGE = RNG.normal(size=(2, 4)), RNG.normal(size=(2, 5, 3))
SAMPLES = 20_000
I, J = np.array([0, 0, 1]), np.array([0, 1, 1])
CONVOLUTION = lg.serial(
    lg.Conv((3,), padding="SAME", bias_std=0.3), lg.Activation("tanh"),
    lg.Conv((3,), strides=(2,)), lg.Activation("relu"), lg.Flatten(), lg.Dense(bias_std=0.1),
)  # fmt: skip
RESIDUAL = lg.serial(
    lg.Conv((3,), padding="SAME"),
    lg.Residual(lg.serial(lg.Activation("erf"), lg.Conv((3,), padding="CIRCULAR"))),
    lg.Activation("tanh"), lg.GlobalAvgPool(), lg.Dense(),
)  # fmt: skip
STREAM = lg.residual_mlp(2, "tanh", layers_per_block=2, weight_std=0.8, bias_std=0.2)


def products(samples):
    chosen = samples[:, I, J].astype(np.float64)
    chosen = chosen - chosen.mean(0)
    return chosen[:, :, None] * chosen[:, None]


def check(samples, wanted, slack=0.0):
    seen = products(samples)
    error = seen.std(0) / len(samples) ** 0.5
    assert np.all(np.abs(seen.mean(0) - wanted) < 4 * error + slack * np.abs(wanted).max())


@pytest.mark.parametrize(
    "net", [lg.mlp(3, "tanh", weight_std=1.3, bias_std=0.2), lg.mlp(2, "relu")]
)
def test_paths_of_chains_have_the_exact_tensors(net, monkeypatch):
    exact = lg.finite_width.width_corrections(net, X, width=50)
    monkeypatch.setattr(fluctuations, "_is_chain", lambda net: False)
    monkeypatch.setattr(fluctuations, "has_shifts", lambda network: False)  # test_path_shifts.py
    found = lg.finite_width.width_fluctuations(net, X, width=50, draws=SAMPLES)
    np.testing.assert_allclose(found.kernel, exact.kernel, rtol=1e-12)
    np.testing.assert_allclose(found.ntk, exact.ntk, rtol=1e-12)
    check(found.kernel_samples, exact.kernel_covariance)
    check(found.ntk_samples, exact.ntk_covariance)
    assert found.kernel_shift is None
    assert "ntk_shift" not in found.to_xarray()


@pytest.mark.parametrize("net", [CONVOLUTION, RESIDUAL])
def test_limits_are_those_of_the_recursions(net):
    found = limits_of(layered_network(net, 30, "here", None, IMAGE.shape[1:]), IMAGE)
    wanted = lg.kernel(net, IMAGE)
    np.testing.assert_allclose(found.kernel, wanted.nngp, rtol=1e-12)
    np.testing.assert_allclose(found.tangent, wanted.ntk, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("param", [lg.ntk(), lg.depth_mup()])
def test_streams_have_the_exact_covariance_of_kernels(param):
    exact = lg.finite_width.width_corrections(STREAM, X, width=50, param=param)
    found = lg.finite_width.width_fluctuations(STREAM, X, width=50, draws=SAMPLES, param=param)
    np.testing.assert_allclose(found.kernel, exact.kernel, rtol=1e-12)
    np.testing.assert_allclose(found.ntk, lg.ntk_kernel(STREAM, X, param=param), rtol=1e-9)
    check(found.kernel_samples, exact.kernel_covariance)


def test_one_linear_convolution_in_closed_form():
    # f = Σ_p v_p·u_p/√(nQ) with u_p of covariance C: S = Σ_p u_p·u_p/(nQ), n Var S = 2 tr C²/Q².
    net = lg.serial(
        lg.Conv((2,), padding="VALID"), lg.Activation("linear"), lg.Flatten(), lg.Dense()
    )
    found = lg.finite_width.width_fluctuations(net, IMAGE[:1], width=20, draws=40_000, key=1)
    windows = np.stack([IMAGE[0, p : p + 2].ravel() for p in range(4)])
    C = windows @ windows.T / 6
    assert found.kernel[0, 0] == pytest.approx(np.trace(C) / 4)
    seen = found.kernel_samples[:, 0, 0].astype(float) ** 2
    wanted = 2 * np.trace(C @ C) / 16 / 20
    assert abs(seen.mean() - wanted) < 4 * seen.std() / len(seen) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "x"), [(STREAM, X), (CONVOLUTION, IMAGE), (RESIDUAL, IMAGE)], ids=range(3)
)
def test_tangent_kernels_of_networks(net, x):
    width, count = 64, 3000
    data = lg.Dataset(x, np.array([1.0, -1.0]))
    run = lg.Run(net, lg.ntk(), data, optimizer=lg.gd(1e-3), steps=1)
    nets = lg.train(run, width, count, 5, record=["ntk"], record_at=[0])
    found = lg.finite_width.width_fluctuations(net, x, width=width, draws=40_000)
    seen, theory = products(nets.ntk[:, 0]), products(found.ntk_samples)
    error = np.hypot(seen.std(0) / count**0.5, theory.std(0) / 200)
    wanted = theory.mean(0)
    left = 4 / width * np.abs(wanted).max()
    assert np.all(np.abs(seen.mean(0) - wanted) < 3.5 * error + left)
    assert np.all(np.abs(wanted) > 0)


def test_what_is_refused():
    fluctuating = lg.finite_width.width_fluctuations
    with pytest.raises(NoRule, match="LayerNorm"):
        fluctuating(lg.serial(lg.Dense(), lg.LayerNorm(), lg.mlp(1)), X, width=9)
    with pytest.raises(NoTheory, match="read-out"):
        fluctuating(
            lg.serial(lg.Conv((3,)), lg.Activation("tanh"), lg.GlobalAvgPool()), IMAGE, width=9
        )
    with pytest.raises(NoTheory, match="one output of a sample"):
        fluctuating(lg.serial(lg.Conv((3,)), lg.Activation("tanh"), lg.Dense()), IMAGE, width=9)
    with pytest.raises(InvalidInput, match="512"):
        fluctuating(CONVOLUTION, np.zeros((200, 5, 3)), width=9)
    kinked = lg.residual_mlp(2, "relu")
    with pytest.raises(NoTheory, match="branches for activations without kinks"):
        lg.finite_width.corrected_posterior(kinked, X, np.ones(2), X + 1, width=9, draws=8)
