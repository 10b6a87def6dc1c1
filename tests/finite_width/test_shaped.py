"""The covariance of shaped networks: exact distributions, networks, positivity, blow-up."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory

START = np.array([[1.0, 0.3], [0.3, 0.8]])


def networks(phi, weight, n, layers, start, draws):
    """Draw the covariance of networks by the Markov chain of its layers."""
    rng = np.random.default_rng(0)
    S = np.broadcast_to(start, (draws, *start.shape))
    for _ in range(layers):
        z = rng.standard_normal((draws, n, len(start))) @ np.linalg.cholesky(S).swapaxes(1, 2)
        f = phi(z)
        S = weight / n * f.swapaxes(1, 2) @ f
    return S


def statistics(S):
    one, other = np.log(S[:, 0, 0]), np.log(S[:, 1, 1])
    rho = S[:, 0, 1] / np.sqrt(S[:, 0, 0] * S[:, 1, 1])
    return np.stack([one, other, rho, one**2, one * other, rho**2], axis=1)


@pytest.mark.slow
def test_one_linear_input_is_log_normal():
    found = lg.finite_width.covariance_sde(
        np.eye(1), slopes=(0, 0), time=0.5, draws=20_000, steps=100, key=0
    )
    log = np.log(found.covariance[:, -1, 0, 0])
    assert abs(log.mean() + 0.5) < 3.5 * log.std() / np.sqrt(len(log)) + 0.01  # of order 1/steps
    assert abs(log.var() - 1) < 3.5 * np.sqrt(2 / len(log)) + 0.02
    assert not found.blown_up.any()


@pytest.mark.slow
def test_three_inputs_stay_positive_and_have_the_drift():
    V = 0.5 + 0.5 * np.eye(3)
    found = lg.finite_width.covariance_sde(
        V, slopes=(1, -1), bias=0.4, time=0.02, draws=40_000, steps=2, key=1
    )
    last = found.covariance[:, -1]
    assert np.linalg.eigvalsh(last).min() > 0
    rho = 0.5
    off = 4 / (2 * np.pi) * (np.sqrt(1 - rho**2) - rho * np.arccos(rho)) + 0.4
    wanted = V + 0.02 * np.where(np.eye(3) == 1, 0.4, off)
    error = last.std(axis=0) / 200
    assert np.all(np.abs(last.mean(axis=0) - wanted) < 3.5 * error + 2e-4)
    # Cov(dV_01, dV_02) = V_00 V_12 + V_02 V_01 per unit of time.
    products = (last[:, 0, 1] - wanted[0, 1]) * (last[:, 0, 2] - wanted[0, 2])
    assert abs(products.mean() / 0.02 - 0.75) < 3.5 * products.std() / 200 / 0.02 + 0.03


@pytest.mark.slow
@pytest.mark.parametrize(("slopes", "ratio"), [((1.0, -2.0), 9.0)])
def test_sign_of_the_lower_slope(slopes, ratio):
    # One layer of networks: n(E V' − V) with (c₊ − c₋)²; with (c₊ + c₋)² it would be 9 times less.
    n, rho = 400, 0.3
    s = [1 + c / np.sqrt(n) for c in slopes]
    V = np.array([[1.0, rho], [rho, 1.0]])
    phi = 0.5 * (s[0] ** 2 + s[1] ** 2)
    exact = (s[0] - s[1]) ** 2 / (2 * np.pi) * (np.sqrt(1 - rho**2) - rho * np.arccos(rho)) / phi
    folded = np.sqrt(1 - rho**2) - rho * np.arccos(rho)
    drift = (slopes[0] - slopes[1]) ** 2 / (2 * np.pi) * folded
    printed = (slopes[0] + slopes[1]) ** 2 / (2 * np.pi) * folded
    assert n * exact == pytest.approx(drift, rel=0.1)
    assert drift == pytest.approx(ratio * printed)
    found = lg.finite_width.covariance_sde(
        V, slopes=slopes, time=0.01, draws=20_000, steps=1, key=0
    )
    moved = found.covariance[:, -1, 0, 1] - rho
    error = moved.std() / np.sqrt(len(moved)) / 0.01
    assert abs(moved.mean() / 0.01 - drift) < 3.5 * error + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "tanh", "sin and cos"])
def test_networks_of_width_150(name):
    n, time, draws = 150, 0.5, 4000
    root = np.sqrt(n)
    if name == "relu":
        slope = 1 - 1 / root
        shape = {"slopes": (0, -1)}
        weight, phi = 2 / (1 + slope**2), lambda z: np.where(z > 0, z, slope * z)
        # E log V has a correction of finite n from the shaped slopes.
        kappa = 2 * (1 + slope**4) / (1 + slope**2) ** 2
        left = time * ((3 * kappa - 1) / 2 - 1) + 1 / n
    elif name == "tanh":
        shape = {"activation": "tanh", "growth": 2.0}
        weight, phi, left = 1 + 2 / n, lambda z: root * np.tanh(z / root), 2 / n
    else:
        import jax.numpy as jnp

        shape = {"activation": lambda z: jnp.sin(z) + 0.5 * (1 - jnp.cos(z)), "scale": 1.5}
        s = 1.5 * root
        weight = 1 - (0.75 * 0.25 - 1) / 1.5**2 / n
        phi, left = lambda z: s * (np.sin(z / s) + 0.5 * (1 - np.cos(z / s))), 2 / n
    seen = statistics(networks(phi, weight, n, int(time * n), START, draws))
    found = lg.finite_width.covariance_sde(START, **shape, time=time, draws=draws, steps=150, key=0)
    wanted = statistics(found.covariance[:, -1])
    error = np.hypot(seen.std(axis=0), wanted.std(axis=0)) / np.sqrt(draws)
    assert np.all(np.abs(seen.mean(axis=0) - wanted.mean(axis=0)) < 3.5 * error + 2 * left)


@pytest.mark.slow
def test_blow_up_has_a_time():
    found = lg.finite_width.covariance_sde(
        np.eye(1), activation=lambda z: z + z**2 / 2, growth=0.0, time=4.0, draws=500, steps=200,
        key=0,
    )  # fmt: skip
    blown = found.blown_up
    assert 0.2 < blown.mean() < 1
    assert np.all(found.blow_up[blown] < 4.0)
    assert np.all(found.blow_up[~blown] == 4.0)
    assert np.isfinite(found.covariance).all()


def test_shapes_that_are_not_well_posed():
    # Printed in one set of lectures: t + const/√N max(0, t) with σ_W = 1, whose E V multiplies by
    # (1 + (2c/√N + c²/N)/2)^(τN), which grows without bound.
    growth = [(1 + (2 / np.sqrt(n) + 1 / n) / 2) ** (n / 2) for n in (100, 400, 1600)]
    assert growth[0] > 100
    assert growth[1] > 100 * growth[0]
    assert growth[2] > 100 * growth[1]


def test_bad_inputs_are_named():
    given = {"time": 0.1, "draws": 2, "steps": 2, "key": 0}
    with pytest.raises(InvalidInput, match="either"):
        lg.finite_width.covariance_sde(np.eye(2), **given)
    with pytest.raises(InvalidInput, match="positive definite"):
        lg.finite_width.covariance_sde(np.ones((2, 2)), slopes=(0, 0), **given)
    with pytest.raises(NoTheory, match="shaped"):
        lg.finite_width.covariance_sde(np.eye(2), activation="relu", **given)
    with pytest.raises(NoTheory, match="shaped"):
        lg.finite_width.covariance_sde(np.eye(2), activation="cos", **given)
