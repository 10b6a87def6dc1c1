"""The largest eigenvalue of the Hessian in the mean field of one hidden layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, LostDigits
from largen.runs.spectra import derivatives
from largen.theories.mean_field.one_hidden_layer.curvature import Layer, hessian_sharpness
from largen.theories.mean_field.one_hidden_layer.problem import posed_by

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6))
Y = np.array([1.0, -1.0, 1.0, -1.0])


def run_of(net, y=Y, steps=40, optimizer=None, loss="mse", gamma=2.0):
    data = lg.Dataset(X, y)
    optimizer = optimizer or lg.gd(1.0)
    return lg.Run(
        net, lg.mean_field(gamma=gamma), data, optimizer=optimizer, steps=steps, loss=loss
    )


@pytest.mark.parametrize("loss", ["mse", pytest.param("cross_entropy", marks=pytest.mark.slow)])
def test_it_is_that_of_the_dense_hessian(loss):
    """Of few neurons, by automatic differentiation in all coordinates, with biases."""
    y = np.stack([Y, X[:, 0]], axis=1) if loss == "mse" else np.array([0, 1, 2, 1])
    run = run_of(lg.mlp(1, "tanh", bias_std=0.4), y, loss=loss)
    problem, count = posed_by(run).problem, 7
    rng = np.random.default_rng(1)
    a = rng.standard_normal((count, problem.directions))
    z, b = 2 * rng.standard_normal((count, problem.outputs)), rng.standard_normal(problem.outputs)
    weights = rng.uniform(0.5, 1.5, count)
    weights = weights / weights.sum()

    def outputs(a, z, b):
        features = jnp.tanh(a @ problem.train.T)
        return features.T @ (weights[:, None] * z) / problem.gamma + b

    scales = (
        problem.gamma * np.sqrt(problem.rate / weights[:, None]),
        problem.gamma * np.sqrt(problem.out_rate / weights[:, None]) * np.ones(z.shape),
        np.sqrt(problem.out_bias_rate) * np.ones(problem.outputs),
    )

    def mean_loss(scaled):
        moved = (x + s * d for x, s, d in zip((a, z, b), scales, split(scaled), strict=True))
        return jnp.mean(jax.vmap(run.loss.sample)(outputs(*moved), jnp.asarray(run.data.y_train)))

    def split(flat):
        parts = jnp.split(flat, np.cumsum([a.size, z.size]))
        return [p.reshape(x.shape) for p, x in zip(parts, (a, z, b), strict=True)]

    with jax.enable_x64(True):
        zero = jnp.zeros(a.size + z.size + b.size)
        hessian, g = (np.asarray(of(mean_loss)(zero)) for of in (jax.hessian, jax.grad))
        f = np.asarray(outputs(a, z, b))
        first, second = derivatives(run, f, problem.outputs)
        found, share, along = hessian_sharpness(problem, Layer(a, z, weights), first, second)
    values, vectors = np.linalg.eigh(hessian)
    assert found == pytest.approx(values[-1], rel=1e-9)
    parts = [np.asarray(p) for p in split(jnp.asarray(vectors[:, -1]))]
    each = (parts[0] ** 2).sum(1) + (parts[1] ** 2).sum(1)
    assert share == pytest.approx(each.max(), rel=1e-6)
    assert along == pytest.approx(g @ hessian @ g / (g @ g), rel=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:along")
def test_curvature_along_the_gradient_is_exact_where_terms_cancel():
    """By differences of kernels it has another sign, and a warning says so."""
    run = run_of(lg.mlp(1, "tanh"), steps=3)
    exact = lg.train(run, 512, record=["sharpness", "ntk"], record_at=range(4))
    with pytest.warns(LostDigits, match="its sign may be wrong"):
        kernels = lg.train(run, 512, record=["ntk"], record_at=range(4)).sharpness("gradient")
    assert exact.sharpness("gradient")[0, 1] < 0 < kernels[0, 1]
    # Between steps of vanishing rates, kernels have the derivative along the gradient.
    steps = lg.gd(1.0, schedule=[1.0, 1e-4, 1.0, 1e-4])
    paused = run_of(lg.mlp(1, "tanh"), steps=4, optimizer=steps)
    every = {"record_at": range(5)}
    known = lg.train(paused, 512, record="sharpness", **every).gradient_curvature[0]
    found = lg.train(paused, 512, record="ntk", **every).sharpness("gradient")[0]
    assert known[1] < 0
    np.testing.assert_allclose(found[[1, 3]], known[[1, 3]], rtol=2e-2)


def test_without_residuals_it_is_that_of_the_tangent_kernel():
    run = run_of(lg.mlp(1, "tanh"), steps=100)
    theory = lg.theories.MeanField(particles=512, record=["sharpness", "ntk"], record_at=[0, 100])
    limit = lg.solve(run, theory=theory)
    assert limit.single_neuron[0] > 0.1 > 10 * limit.single_neuron[1]
    assert limit.hessian_sharpness[1] == pytest.approx(limit.sharpness()[1], rel=1e-3)
    assert limit.hessian_sharpness[0] > 2 * limit.sharpness()[0]


@pytest.mark.slow
def test_networks_have_it():
    """Late, where it is collective: residuals still raise it above that of the tangent kernel."""
    run, at = run_of(lg.mlp(1, "tanh"), steps=12), [4, 8, 12]
    theory = lg.theories.MeanField(particles=2**13, record=["sharpness", "ntk"], record_at=at)
    limit = lg.solve(run, theory=theory)
    nets = lg.train(run, 1024, seeds=8, record="sharpness", record_at=at)
    theirs = np.asarray(nets.hessian_sharpness, float)
    error = np.hypot(
        theirs.std(0, ddof=1) / 8**0.5, limit.to_xarray()["hessian_sharpness_error"].values
    )
    assert (limit.single_neuron < 0.1).all()
    theirs_along, along = nets.sharpness("gradient"), limit.sharpness("gradient")
    spread = theirs_along.std(0, ddof=1) / 8**0.5
    assert (np.abs(theirs_along.mean(0) - along) < 4 * spread + 2e-3 * along).all()
    z = (theirs.mean(0) - limit.hessian_sharpness) / error
    assert np.abs(z).max() < 4
    of_kernel = limit.sharpness()
    assert ((theirs.mean(0) - of_kernel) / error)[0] > 6


def test_refusals():
    run = run_of(lg.mlp(1, "linear"))
    with pytest.raises(InvalidInput, match="the sharpness is that of particles"):
        lg.solve(run, theory=lg.theories.MeanField(method="closed", record="sharpness"))
    adapted = run_of(lg.mlp(1, "tanh"), optimizer=lg.adam(0.1))
    with pytest.raises(InvalidInput, match="gradient descent"):
        lg.solve(adapted, record="sharpness")
