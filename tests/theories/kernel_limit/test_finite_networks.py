"""The kernel limit against ensembles of finite networks: powers of the width and z-scores."""

import numpy as np
import pytest

import largen as lg
from largen.theories import KernelLimit

RNG = np.random.default_rng(6)
P, M, D = 8, 4, 6
X, XT = RNG.standard_normal((P, D)), RNG.standard_normal((M, D))
Y, YT = np.sign(RNG.standard_normal(P)), np.sign(RNG.standard_normal(M))
DATA = lg.Dataset(X.astype("f"), Y.astype("f"), XT.astype("f"), YT.astype("f"))
MLP = lg.mlp(2, "erf", weight_std=1.4, bias_std=0.3)
LAZY_DEPTH = lg.abc(  # the kernel limit with branches 1/√L
    a=(0, "1/2", "1/2"), b=0, c=0, branch="1/2", name="lazy depth-μP"
)
WIDTHS = (64, 256, 1024)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "param"),
    [
        (MLP, lg.ntk()),
        (lg.residual_mlp(3, "tanh", weight_std=1.3, bias_std=0.2), LAZY_DEPTH),
        (lg.residual_mlp(2, "relu", layers_per_block=2), LAZY_DEPTH),
        (lg.serial(lg.Activation("tanh"), *lg.mlp(1, "relu").layers), lg.ntk()),
    ],
)
def test_kernels_at_initialisation(net, param):
    # E[NTK] and E[f f'] differ from the limit at order 1/N: extrapolated from N and 2N they must
    # agree with it within their statistical error.
    run = lg.Run(net, param, DATA, optimizer=lg.gd(1e-3), steps=1)
    want = lg.kernel(net, DATA.x_train, param=param)
    estimates = []
    for width, seeds, key in ((64, 800, 0), (128, 800, 1)):
        nets = lg.train(run, width=width, seeds=seeds, key=key, record=("ntk",), record_at=[0])
        f = nets.f_train[:, 0].astype(float)
        products = f[:, :, None] * f[:, None, :]
        estimates.append([_mean(nets.ntk[:, 0].astype(float)), _mean(products)])
    for (coarse, fine), limit in zip(
        zip(*estimates, strict=True), (want.ntk, want.nngp), strict=True
    ):
        value = 2 * fine[0] - coarse[0]
        z = (value - limit) / np.sqrt(4 * fine[1] ** 2 + coarse[1] ** 2)
        assert np.abs(z).max() < 4.5, z


def _mean(samples):
    return samples.mean(0), samples.std(0, ddof=1) / np.sqrt(len(samples))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "optimizer"),
    [("mse", lg.gd(0.3, momentum=0.5)), ("mse", lg.sgd(0.2, 2)), ("logistic", lg.gd(0.5))],
)
def test_networks_approach_the_limit_given_their_start(loss, optimizer):
    run = lg.Run(MLP, lg.ntk(), DATA, loss, optimizer, steps=40)
    limit = lg.solve(run, draws=8)
    distances = []
    for width in WIDTHS:
        nets = lg.train(run, width=width, seeds=12, key=width)
        train, test = KernelLimit().condition(limit, nets.f_train[:, 0], nets.f_test[:, 0])
        error = np.concatenate([nets.f_train - train, nets.f_test - test], axis=2)
        distances.append(np.sqrt((error[:, -1] ** 2).mean()))
    power = np.polyfit(np.log(WIDTHS), np.log(distances), 1)[0]
    assert -0.65 < power < -0.35, distances


@pytest.mark.long_loops
@pytest.mark.slow
@pytest.mark.parametrize(("loss", "draws"), [("mse", 4), ("logistic", 2000)])
def test_mean_and_standard_deviation_over_initialisations(loss, draws):
    run = lg.Run(MLP, lg.ntk(), DATA, loss, lg.gd(0.3, momentum=0.5), steps=40)
    limit = lg.solve(run, draws=draws)
    width, seeds = 512, 200
    nets = lg.train(run, width=width, seeds=seeds, key=7)
    at = [0, 5, 40]
    given = KernelLimit().condition(limit, nets.f_train[:, 0], nets.f_test[:, 0])
    for name, predicted in zip(("f_train", "f_test"), given, strict=True):
        f, mean = getattr(nets, name)[:, at], getattr(limit, name)[at]
        std = getattr(limit, f"{name}_std")[at]
        z = (f.mean(0) - mean) / (f.std(0) / np.sqrt(seeds) + 1 / width)
        assert np.abs(z).max() < 4.5
        # The sampled deviation has the relative error 1/√(2 seeds); besides, networks have
        # fluctuations of order 1/√N of their own, which the distance to `given` measures.
        own = (f - predicted[:, at]).std(0)
        assert (np.abs(f.std(0) - std) < 4.5 * std / np.sqrt(2 * seeds) + own).all()
        assert own.max() < 4 / np.sqrt(width) * std.max()  # so that the bound says something
