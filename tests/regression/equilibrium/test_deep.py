"""Several hidden layers at rest against linear networks, fixed kernels, and sampled networks."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.regression.equilibrium.deep import solve_deep
from largen.regression.equilibrium.fits import Point, Squares
from largen.regression.equilibrium.network import equilibrium_of
from largen.scalars import random_key

X = np.random.default_rng(0).standard_normal((4, 5))
X_TEST = np.random.default_rng(1).standard_normal((3, 5))
Y = np.array([1.0, -1.0, 1.0, -1.0])


def by_saddle(net, x, y, noise, gamma, sites=4096):
    """Return the posterior by the nested saddle, which linear networks do not need."""
    of = equilibrium_of(net, lg.mean_field(gamma), x)
    kappa = np.full(len(x), noise)
    return solve_deep(of, x, y, Squares(y[:, None], kappa, True), sites, 4, random_key(0), False)


@pytest.mark.slow
def test_linear_networks_are_those_of_the_closed_form():
    net = lg.mlp(3, "linear")
    found = by_saddle(net, X, Y, 0.5, 1.0)
    want = lg.posterior(net, X, Y, noise=0.5, param=lg.mean_field(1.0))
    assert found.status == "ok"
    np.testing.assert_allclose(found.dual, want.dual, atol=3e-3)
    assert found.action == pytest.approx(want.action, abs=2e-3)
    assert found.branches[0].scale == pytest.approx(want.scale, rel=1e-3)
    np.testing.assert_allclose(found.feature_kernel, want.feature_kernel, atol=0.01)
    got, exact = found.predict(X_TEST), want.predict(X_TEST)
    np.testing.assert_allclose(got.mean, exact.mean, atol=5e-3)
    np.testing.assert_allclose(got.variance, exact.variance, rtol=0.03)


@pytest.mark.slow
def test_many_samples_of_smooth_networks():
    """Errors of the tilts do not grow with the number of samples where φ' has no jumps."""
    x = np.random.default_rng(2).standard_normal((64, 16))
    net, y = lg.mlp(2, "tanh"), np.sign(x[:, 0] * x[:, 1])
    param = lg.mean_field(0.5)
    told = []
    found = lg.regression.adaptive_posterior(
        net, x, y, noise=1.0, param=param, sites=4096, progress=lambda *now: told.append(now)
    )
    assert told[0] == (0, 13)
    assert told[-1] == (13, 13)
    assert told == sorted(set(told))
    tilts = np.array([at.tilts[0] for _, at in found.replicates])
    spread = np.linalg.norm(tilts.std(0, ddof=1)) / np.linalg.norm(found.tilts[0])
    assert spread < 0.15
    assert np.abs(found.dual_error).max() < 0.03 * np.abs(found.dual).max()
    predicted = found.predict(x, variance=False)
    assert predicted.variance is None
    np.testing.assert_allclose(predicted.mean, y - found.dual, atol=1e-7)


@pytest.mark.slow
def test_both_sides_of_a_first_order_transition_are_reported():
    """Three linear layers, signal below the noise: the limit jumps at γ₀ = 35.8."""
    x, y = np.sqrt(2) * np.eye(2), np.array([1.0, 0.0])
    net = lg.mlp(3, "linear")
    scales = []
    for gamma in (35.0, 37.0):
        found = by_saddle(net, x, y, 100.0, gamma)
        want = lg.posterior(net, x, y, noise=100.0, param=lg.mean_field(gamma))
        assert found.status == want.status == "several_branches"
        for got, exact in zip(found.branches, want.branches, strict=True):
            assert got.scale == pytest.approx(exact.scale, rel=0.02)
            assert got.action == pytest.approx(exact.action, abs=0.01)
        scales.append(found.branches[0].scale)
    assert scales[0] < 1.3 < 4 < scales[1]


@pytest.mark.slow
def test_small_gamma_is_the_posterior_of_a_fixed_kernel():
    first, last = lg.Dense(bias_std=0.3, weight_std=1.3), lg.Dense(weight_std=0.7)
    inner = lg.Dense(weight_std=1.2)
    net = lg.serial(first, lg.Activation("relu"), inner, lg.Activation("erf"), last)
    noise = np.array([0.1, 0.2, 0.1, 0.3])
    want = lg.posterior(net, X, Y, noise=noise).predict(X_TEST)
    given = lg.posterior(net, X, Y, noise=noise, param=lg.mean_field(1e-6))
    got = given.predict(X_TEST)
    np.testing.assert_allclose(got.mean, want.mean, atol=1e-10)
    np.testing.assert_allclose(got.variance, want.variance, atol=1e-10)
    np.testing.assert_allclose(given.feature_kernel, given.prior_kernel, atol=1e-10)
    np.testing.assert_allclose(given.predict(X).mean, Y - noise * given.dual, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("phi", ["erf", "relu"])
def test_variances_are_responses_to_targets(phi):
    """γ₀²N Cov(f_a, f_b) = κ df_a/dy_b of training samples, on the same sites."""
    noise, shift = 0.3, 1e-3
    given = by_saddle(lg.mlp(2, phi), X, Y, noise, 0.5)
    slopes = np.zeros(4)
    for posed, at in given.replicates:
        for b in range(4):
            for sign in (1, -1):
                y = posed.fit.y + sign * shift * np.eye(4)[:, b : b + 1]
                moved = posed._replace(fit=replace(posed.fit, y=y))
                start = Point(at.maximum.alpha, y - noise * at.maximum.alpha)
                with jax.enable_x64(True):
                    alpha = moved.solve(at.tilts, start, 1e-8).maximum.alpha
                slopes[b] += sign * (y - noise * alpha)[b, 0] / (8 * shift)
    predicted = given.predict(X)
    np.testing.assert_allclose(predicted.mean, Y - noise * given.dual, atol=1e-9)
    np.testing.assert_allclose(predicted.variance, noise * slopes, rtol=0.02)
    lazy = lg.posterior(lg.mlp(2, phi), X, Y, noise=noise).predict(X)
    assert np.all(np.abs(lazy.variance / predicted.variance - 1) > 0.1)


@partial(jax.jit, static_argnums=(0, 1))
def networks(width, draws, gamma, noise, keys):
    """Sample tanh networks of two hidden layers, read-out integrated out, by Hamiltonian dynamics.

    The Gaussian prior is rotated exactly in each of ten steps.
    """
    inputs = jnp.concatenate([X, X_TEST]) / np.sqrt(5)

    def kernel(w):
        phi = jnp.tanh(jnp.tanh(inputs @ w[0]) @ w[1] / np.sqrt(width))
        return phi @ phi.T / width

    def outputs(w):
        K = kernel(w)
        factor = jnp.linalg.solve(K[:4, :4] + noise * jnp.eye(4), K[:4, 4:])
        within = jnp.diagonal(K[4:, 4:]) - jnp.sum(factor * K[:4, 4:], 0)
        return factor.T @ Y, within, K[:4, :4]

    def potential(w):
        M = kernel(w)[:4, :4] + noise * jnp.eye(4)
        fit = width * gamma**2 * Y @ jnp.linalg.solve(M, Y)
        return (fit + jnp.linalg.slogdet(M)[1]) / 2

    def energy(w, p):
        return potential(w) + sum(jnp.sum(each**2) for each in (*w, *p)) / 2

    def kicked(w, p, step):
        return [a - step / 2 * b for a, b in zip(p, jax.grad(potential)(w), strict=True)]

    def draw(w, key):
        keys = jax.random.split(key, 4)
        pairs = zip(keys, w, strict=False)
        p = [jax.random.normal(key, each.shape) for key, each in pairs]
        step = 0.5 * width**-0.25 * jax.random.uniform(keys[2], minval=0.6, maxval=1.2)

        def leap(carry, _):
            w, p = carry
            p = kicked(w, p, step)
            c, s = jnp.cos(step), jnp.sin(step)
            pairs = list(zip(w, p, strict=True))
            w, p = [c * a + s * b for a, b in pairs], [c * b - s * a for a, b in pairs]
            return (w, kicked(w, p, step)), None

        (to, momenta), _ = jax.lax.scan(leap, (w, p), None, length=10)
        gain = energy(w, p) - energy(to, momenta)
        accepted = jnp.log(jax.random.uniform(keys[3])) < gain
        w = [jnp.where(accepted, a, b) for a, b in zip(to, w, strict=True)]
        return w, outputs(w)

    def chain(key):
        keys = jax.random.split(key, 3)
        w = [jax.random.normal(keys[0], (5, width)), jax.random.normal(keys[1], (width, width))]
        return jax.lax.scan(draw, w, jax.random.split(keys[2], draws))[1]

    f, within, K = jax.vmap(chain)(keys)
    left = slice(draws // 5, None)
    f, within, K = f[:, left], within[:, left].mean(1), K[:, left].mean((0, 1))
    spread = jnp.mean((f - f.mean((0, 1))) ** 2, 1) * gamma**2 * width + within
    return f.mean(1), spread, K


@pytest.mark.slow
@pytest.mark.long_loops
def test_limit_is_that_of_sampled_networks():
    """Means and variances of two widths, extrapolated in 1/N."""
    gamma, noise, chains = 0.5, 0.3, 12
    given = lg.posterior(lg.mlp(2, "tanh"), X, Y, noise=noise, param=lg.mean_field(gamma))
    limit = given.predict(X_TEST)
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), chains)
        found = [networks(width, 800, gamma, noise, keys) for width in (32, 64)]
    for i, want in enumerate((limit.mean, limit.variance)):
        near, far = (np.asarray(each[i]) for each in found)
        extrapolated = 2 * far - near
        error = extrapolated.std(0, ddof=1) / np.sqrt(chains)
        # Eleven degrees of freedom; 1/N² is left.
        assert np.all(np.abs(extrapolated.mean(0) - want) < 5 * error + 0.02 * np.abs(want))
        assert error.max() < 0.02
    kernel = 2 * np.asarray(found[1][2]) - np.asarray(found[0][2])
    np.testing.assert_allclose(kernel, given.feature_kernel, atol=0.02 * kernel.max())
    lazy = lg.posterior(lg.mlp(2, "tanh"), X, Y, noise=noise).predict(X_TEST)
    assert np.abs(lazy.mean - limit.mean).max() > 0.1


def test_refusals():
    net, param = lg.mlp(2, "tanh"), lg.mean_field()
    with pytest.raises(InvalidInput, match="at least 10000 sites"):
        lg.posterior(lg.mlp(2, "relu"), np.eye(50), np.ones(50), noise=0.1, param=param)
    with pytest.raises(NoTheory, match="one output"):
        lg.posterior(net, X, np.stack([Y, Y], 1), noise=0.1, param=param)
    mixed = lg.serial(lg.Dense(), lg.Activation("tanh"), lg.Dense(), lg.Dense())
    with pytest.raises(NoTheory, match="activation between"):
        lg.posterior(mixed, X, Y, noise=0.1, param=param)
