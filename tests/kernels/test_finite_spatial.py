"""Kernels of layers against ensembles of finite networks: means extrapolated in 1/width."""

import numpy as np
import pytest

import largen as lg

RNG = np.random.default_rng(9)
PLANE = RNG.standard_normal((3, 4, 4, 2)).astype("f")
LINE = RNG.standard_normal((3, 5, 3)).astype("f")
RELU, ERF = lg.Activation("relu"), lg.Activation("erf")
CONV = lg.Conv((3, 3), weight_std=1.2, bias_std=0.3)
BLOCK = lg.serial(RELU, lg.Conv((3, 3), strides=2, weight_std=1.2), RELU, lg.Conv((2, 2)))
SKIP = lg.Conv((1, 1), strides=2)
POOLED = (
    CONV, lg.Residual(BLOCK, SKIP), ERF, lg.layers.AvgPool((2, 2), strides=1, padding="SAME"),
    lg.layers.ConvTranspose((2, 2), strides=2), RELU, lg.GlobalAvgPool(), lg.Dense(),
)  # fmt: skip
BRANCHES = (
    lg.Conv((2,), padding="CIRCULAR", weight_std=1.5),
    RELU,
    lg.Residual(lg.serial(lg.Dense(weight_std=1.2, bias_std=0.3), RELU)),
    lg.LayerNorm(),
    lg.Dense(),
    lg.layers.Product(lg.RMSNorm(over_space=True), lg.serial(lg.Dense(), ERF)),
    lg.layers.LocallyConnected((3,), padding="VALID"),
    lg.Residual(ERF),
    lg.layers.Concatenate(lg.Dense(weight_std=0.7), RELU),
    lg.Flatten(),
    lg.Dense(),
)
ATTENTION = (
    lg.Dense(weight_std=1.3, bias_std=0.2),
    lg.Residual(
        lg.serial(
            lg.LayerNorm(), lg.layers.SelfAttention(logit_scale=1.5), lg.Dense(weight_std=1.2)
        )
    ),
    RELU,
    lg.layers.GlobalSumPool(),
    lg.Dense(weight_std=0.5),
)


@pytest.mark.long_loops
@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "x"),
    [(POOLED, PLANE), (BRANCHES, LINE), (ATTENTION, LINE)],
    ids=["pooled", "branches", "attention"],
)
def test_kernels_are_means_over_wide_networks(layers, x):
    net = lg.serial(*layers)
    run = lg.Run(net, lg.ntk(), lg.Dataset(x, np.zeros(3, "f")), optimizer=lg.gd(1e-3), steps=1)
    want = lg.kernel(net, x)
    found = {}
    for width, key in ((64, 0), (128, 1)):
        nets = lg.train(run, width=width, seeds=300, key=key, record=("ntk",), record_at=[0])
        f = nets.f_train[:, 0].astype(float)
        samples = (f[:, :, None] * f[:, None, :], nets.ntk[:, 0].astype(float))
        found[width] = [(s.mean(0), s.std(0, ddof=1) / np.sqrt(len(s))) for s in samples]
    for coarse, fine, limit in zip(found[64], found[128], want, strict=True):
        value, error = 2 * fine[0] - coarse[0], np.sqrt(4 * fine[1] ** 2 + coarse[1] ** 2)
        z = (value - limit) / error
        assert np.abs(z).max() < 4, z
        assert (error < 0.25 * np.abs(np.diag(limit)).max()).all()
