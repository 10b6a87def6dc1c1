"""The intermediate limit (004, §3.1): a constant kernel from zero, at every 0 < d < ½."""

import numpy as np
import pytest
from scipy.special import expit

import largen as lg

RNG = np.random.default_rng(4)
X, Z = RNG.normal(size=(5, 3)), RNG.normal(size=(3, 3))
DATA = lg.Dataset(X, np.array([1.0, -1.0, 1.0, 1.0, -1.0]), Z, np.array([1.0, -1.0, 1.0]))
RATE, STEPS = 0.8, 12


def run_of(q_sigma, rate_a, rate_w=None):
    param = lg.scaling.plane_scheme(q_sigma, rate_a, rate_w)
    optimizer = lg.gd(RATE)
    return lg.Run(lg.mlp(1, "relu"), param, DATA, "logistic", optimizer, STEPS)


def by_hand(share_a=1.0):
    """(17)-(18) with the arc-cosine kernels of relu; ŵ·x in the paper has our x/√D."""
    x = np.concatenate([X, Z]) / np.sqrt(3)
    norm = np.linalg.norm(x, axis=1)
    theta = np.arccos(np.clip(x @ x.T / np.outer(norm, norm), -1, 1))
    np.fill_diagonal(theta, 0)
    moving = (np.pi - theta) / (2 * np.pi) * (x @ x.T)
    steady = np.outer(norm, norm) * (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / (2 * np.pi)
    # Raw rates act on w of standard deviation 1/√D: η̂_w = Dη.
    kernel = share_a * steady + 3 * moving
    f, trajectory = np.zeros(8), []
    for _ in range(STEPS + 1):
        trajectory.append(f)
        pull = DATA.y_train * expit(-DATA.y_train * f[:5])
        f = f + RATE * kernel[:, :5] @ pull / 5
    return np.array(trajectory)


@pytest.mark.parametrize("point", [("-3/4", "1/2"), ("-2/3", "1/3"), ("-9/10", "4/5")])
def test_it_is_the_same_recursion_at_every_point(point):
    """The paper: "the same for any q_σ ∈ (−1, −½)"; App. B for steps of any size."""
    limit = lg.solve(run_of(*point))
    assert limit.theory == "kernel"
    assert "start from 0" in limit.reason
    np.testing.assert_allclose(limit.f_train, by_hand()[:, :5], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(limit.f_test, by_hand()[:, 5:], rtol=1e-9, atol=1e-12)
    # What η_a contributes is seen.
    assert np.abs(by_hand(0.9) - by_hand()).max() > 0.01


@pytest.mark.slow
def test_networks_approach_it_as_their_initial_outputs_vanish():
    """f_∅ ∝ N^(−1/4): single networks by that power, once it is slower than the kernel's own."""
    run, widths = run_of("-3/4", "1/2"), np.array([4096, 65536])
    limit, apart, means = lg.solve(run), [], []
    for width in widths:
        nets = lg.train(run, width=int(width), seeds=48, key=3)
        gap = nets.f_test[:, -1] - limit.f_test[-1]
        apart.append(np.sqrt(np.mean(gap**2)))
        means.append((gap.mean(0), gap.std(0, ddof=1) / np.sqrt(48)))
    power = np.polyfit(np.log(widths), np.log(apart), 1)[0]
    # Fluctuations of the kernel, of order N^(−1/2), are still seen beside those of f(0).
    assert -0.42 < power < -0.2, apart
    mean, error = means[-1]
    assert np.abs(mean / error).max() < 3.5, means
    # Not the mean-field limit, which the same constants have at q_σ = −1.
    other = lg.solve(run_of(-1, 1), rtol=1e-2)
    assert np.abs(other.f_test[-1] - limit.f_test[-1]).max() > 5 * np.abs(mean).max()
