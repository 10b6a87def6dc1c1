"""One hidden layer of rN neurons: the network of width rN whose γ₀ is smaller by √r."""

import numpy as np
import pytest

import largen as lg

DRAW = np.random.default_rng(3)
X = DRAW.normal(size=(6, 3))
DATA = lg.Dataset(X[:4], np.sign(X[:4, 0]), X[4:], np.sign(X[4:, 0]))
RATIO = 3 / 2
NET = lg.mlp(1, "tanh", bias_std=0.4, width_ratios=[RATIO])


@pytest.mark.slow
def test_exact_change_of_gamma():
    line = lg.Dataset(X[:4, :1], DATA.y_train)
    found = []
    for ratio, gamma in ((RATIO, 1.2), (1, 1.2 / RATIO**0.5)):
        first, last = lg.Dense(width_ratio=ratio), lg.Dense(bias_std=0.5)
        net = lg.serial(first, lg.Activation("tanh"), last)
        posed = lg.Run(net, lg.mean_field(gamma), line, optimizer=lg.gd(0.3), steps=10)
        found.append(lg.solve(posed, fluctuations=True))
    got, want = found
    for name in ("f_train", "feature_kernel", "gradient_kernel", "ntk"):
        np.testing.assert_allclose(getattr(got, name), getattr(want, name), rtol=1e-9, atol=1e-12)
    # N times a variance counts N, and there are rN neurons.
    np.testing.assert_allclose(
        got.f_train_fluctuation * RATIO**0.5, want.f_train_fluctuation, rtol=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("param", "optimizer"),
    [(lg.mup(), lg.gd(0.1)), (lg.mean_field(1.2), lg.adam(0.1))],
    ids=str,
)
def test_against_networks(param, optimizer):
    """Outputs at the end of training, extrapolated in 1/N."""
    posed = lg.Run(NET, param, DATA, optimizer=optimizer, steps=10)
    limit = lg.solve(posed, rtol=2e-3)
    means = []
    for width, seed in ((128, 0), (256, 1)):
        f = lg.train(posed, width, 100, seed).f_train[:, -1]
        means.append((f.mean(0), f.std(0, ddof=1) / np.sqrt(len(f))))
    (coarse, coarse_error), (fine, fine_error) = means
    error = np.sqrt(4 * fine_error**2 + coarse_error**2 + limit.f_train_error[-1] ** 2)
    assert error.max() < 0.1 * np.abs(limit.f_train[-1]).max()
    assert np.abs((2 * fine - coarse - limit.f_train[-1]) / error).max() < 3.5
