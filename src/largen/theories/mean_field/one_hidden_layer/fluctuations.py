r"""Fluctuations of networks of finite width around their mean-field limit, by linear response.

The neurons of a network of width N are coupled through its residuals alone. The outputs therefore
differ from the limit by 1/√N times

    δf(t) = ε(t) + Σ_{s<t} R(t, s) δΔ(s),     δΔ = −ℓ″ δf,

where ε is Gaussian with covariance Cov_neuron[z φ(h)/γ₀] between any two times and samples, and
R = ⟨∂(z φ(h)/γ₀)(t)/∂Δ(s)⟩ is the response at given residuals. Hence, as matrices over times and
samples,

    N Cov(f) = (1 + Rℓ″)⁻¹ Cov_neuron[z φ(h)/γ₀] (1 + Rℓ″)⁻ᵀ

to leading order. The initial read-out bias is a further Gaussian variable of order 1/√N.

The covariance in the middle is N times that of networks whose neurons are independent draws from
the limit's law (Hanin's primer, §4.1.1: Barron's rate). What N Cov(f) differs from it is N times
the covariance of z φ(h)/γ₀ between two neurons, which become independent in the limit (§4.1.2:
propagation of chaos), and the variance of the bias.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from largen.errors import InvalidInput
from largen.runs import Run
from largen.theories.mean_field.engine.descent import moved, sample_weights
from largen.theories.mean_field.one_hidden_layer import neurons as sets
from largen.theories.mean_field.one_hidden_layer.dynamics import (
    OneLayerConstants,
    OneLayerModel,
    OneLayerState,
    forward,
    negative_gradient,
    prepare,
    residual,
    step_of,
    test_outputs,
)
from largen.theories.mean_field.one_hidden_layer.problem import OneLayerProblem

MOST_ROWS = 6000  # times × samples × outputs: the size of the matrices held in memory
OF_SITES, OF_RESPONSE = 2**13, 2**12  # sample neurons for the covariance and for the response


class Fluctuations(NamedTuple):
    """Fluctuations of √N times the outputs of a network of width N."""

    # train, test: √N times the standard deviation of f, (step, sample, output).
    train: np.ndarray
    test: np.ndarray
    # N times the covariance of f on training samples at equal times, (step, sample, sample_2,
    # output, output_2).
    covariance: np.ndarray
    # √N times the standard deviation of f of independent neurons, as train and test.
    drawn_train: np.ndarray
    drawn_test: np.ndarray


class Path(NamedTuple):
    """The trajectory of a set of neurons in the limit, at each time index."""

    states: OneLayerState
    velocities: OneLayerState
    residuals: Float[Array, "step sample output"]  # Δ
    curvatures: Float[Array, "step sample output output"]  # ∂Δ/∂f of each sample


def check(run: Run, problem: OneLayerProblem) -> None:
    """Check that linear response applies, and that its matrices are not too large."""
    instead = "measure them on networks: lg.train(run, width=…, seeds=…)"
    if not run.optimizer.descends_in_steps:
        raise InvalidInput(
            "fluctuations: linear response is implemented for gradient descent, this run has "
            f"{run.optimizer}; {instead}."
        )
    samples = len(problem.train) + len(problem.test)
    rows = len(run.times) * samples * problem.outputs
    if rows > MOST_ROWS:
        raise InvalidInput(
            f"fluctuations: {len(run.times)} times, {samples} samples and {problem.outputs} "
            f"outputs make matrices of {rows} rows, more than {MOST_ROWS}; {instead}."
        )


def fluctuations(problem: OneLayerProblem, run: Run, rng: np.random.Generator) -> Fluctuations:
    """Return the fluctuations of finite networks, for a run that :func:`check` has accepted."""
    few = problem.dimensions <= 2 and problem.start is None
    grid = sets.grid(problem, sets.first_step(problem) / 2) if few else None
    model = OneLayerModel(problem.phi, run.loss, run.output_shape)
    counts = sample_weights(run, np.float64)
    steps = len(run.times)
    state, constants = prepare(
        problem, run, grid or sets.quasi_random(problem, OF_SITES, rng), np.float64
    )
    path = _path(model, steps, state, constants, counts)
    fields = np.asarray(_sample_neurons(model, constants, path)).reshape(len(constants.weights), -1)
    weighted = np.asarray(constants.weights)[:, None] * fields
    covariance = weighted.T @ fields - np.outer(weighted.sum(0), weighted.sum(0))
    if not few:
        draw = sets.quasi_random(problem, OF_RESPONSE, rng)
        state, constants = prepare(problem, run, draw, np.float64)
        path = _path(model, steps, state, constants, counts)
    response, of_bias = _responses(model, constants, path, counts)
    shape = (steps, len(problem.train) + len(problem.test), problem.outputs)
    drawn = np.sqrt(np.maximum(np.diagonal(covariance), 0) / problem.ratio).reshape(shape)
    # The initial bias has the standard deviation σ_b/γ₀ and is the same for all samples.
    for part in np.moveaxis(np.asarray(of_bias), -1, 0):
        start = problem.out_bias_std / problem.gamma * part.reshape(-1)
        covariance += np.outer(start, start)
    covariance /= problem.ratio  # the number of neurons per unit of width
    train = path.residuals.shape[1]
    closed = _close(np.asarray(response), covariance, np.asarray(path.curvatures), shape)
    return Fluctuations(*closed, drawn[:, :train], drawn[:, train:])


def _close(response, covariance, curvatures, shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Solve for δf with δΔ = (∂Δ/∂f) δf, and return the first three fields of the result."""
    steps, _, outputs = shape
    train, rows = curvatures.shape[1], int(np.prod(shape))
    # R with axes (t, sample, output; s, training sample, output), times ∂Δ/∂f at s.
    loop = np.einsum("taosnc,sncd->taosnd", response, curvatures)
    loop = loop.reshape(rows, -1)
    inside = np.zeros(shape[:2], bool)
    inside[:, :train] = True
    inside = np.repeat(inside.reshape(-1), outputs)
    closed = np.linalg.inv(np.eye(loop.shape[1]) - loop[inside])
    gain = np.eye(rows)
    gain[:, inside] += loop @ closed
    full = (gain @ covariance @ gain.T).reshape(*shape, *shape)
    equal = np.stack([full[t, :, :, t] for t in range(steps)])
    std = np.sqrt(np.maximum(np.einsum("taoao->tao", equal), 0))
    inner = equal[:, :train, :, :train].transpose(0, 1, 3, 2, 4)
    return std[:, :train], std[:, train:], inner


def _outputs(model: OneLayerModel, state: OneLayerState, constants: OneLayerConstants):
    return jnp.concatenate(
        [forward(model, state, constants)[2], test_outputs(model, state, constants)]
    )


def _advance(model: OneLayerModel, constants: OneLayerConstants, counts, moving, delta, index):
    """Make one training step with given residuals."""
    state, velocity = moving
    row = counts[jnp.minimum(index, len(counts) - 1)]
    move = negative_gradient(state, constants, row, forward(model, state, constants), delta)
    return moved(state, velocity, move, step_of(constants, index))


@partial(jax.jit, static_argnames=("model", "steps"))
def _path(
    model: OneLayerModel, steps: int, state: OneLayerState, constants: OneLayerConstants, counts
) -> Path:
    def slope(f):
        return residual(model, constants, f)

    def one_step(moving, index):
        f = forward(model, moving[0], constants)[2]
        delta = slope(f)
        # A sample's residual depends on its own output alone.
        ones = jnp.eye(f.shape[1], dtype=f.dtype)
        columns = [jax.jvp(slope, (f,), (jnp.broadcast_to(one, f.shape),))[1] for one in ones]
        found = Path(moving[0], moving[1], delta, jnp.stack(columns, -1))
        return _advance(model, constants, counts, moving, delta, index), found

    moving = (state, jax.tree.map(jnp.zeros_like, state))
    return lax.scan(one_step, moving, jnp.arange(steps))[1]


@partial(jax.jit, static_argnames="model")
def _sample_neurons(
    model: OneLayerModel, constants: OneLayerConstants, path: Path
) -> Float[Array, "neuron step points output"]:
    """Return z φ(h)/γ₀ of every neuron."""
    fields = jnp.concatenate([constants.train, constants.test])

    def of_state(state: OneLayerState):
        features = model.phi(state.directions @ fields.T)
        return features[..., None] * state.readout[:, None] / constants.gamma

    return jnp.moveaxis(lax.map(of_state, path.states), 0, 1)


@partial(jax.jit, static_argnames="model")
def _responses(
    model: OneLayerModel, constants: OneLayerConstants, path: Path, counts
) -> tuple[Any, Any]:
    """Return R (step, points, output, step, sample, output), and the response to b(0)."""
    steps, samples, outputs = path.residuals.shape
    units = jnp.eye(samples * outputs).reshape(-1, samples, outputs)

    def at(index):
        moving = jax.tree.map(lambda part: part[index], (path.states, path.velocities))
        return moving, path.residuals[index]

    def along(start, tangents):
        """Propagate tangents of the state to the last time index; return those of the outputs."""

        def one_step(index, carry):
            tangents, out = carry
            moving, delta = at(index)

            def both(moving):
                f = _outputs(model, moving[0], constants)
                return f, _advance(model, constants, counts, moving, delta, index)

            f, tangents = jax.vmap(lambda t: jax.jvp(both, (moving,), (t,))[1])(tangents)
            return tangents, out.at[index].set(f)

        points = len(constants.train) + len(constants.test)
        count = len(jax.tree.leaves(tangents)[0])
        out = jnp.zeros((steps, count, points, outputs), constants.train.dtype)
        return lax.fori_loop(start, steps, one_step, (tangents, out))[1]

    def response_to_impulse(index):
        moving, delta = at(index)

        def step(delta):
            return _advance(model, constants, counts, moving, delta, index)

        tangents = jax.vmap(lambda unit: jax.jvp(step, (delta,), (unit,))[1])(units)
        return along(index + 1, tangents)

    found = lax.map(response_to_impulse, jnp.arange(steps))
    found = found.transpose(1, 3, 4, 0, 2).reshape(steps, -1, outputs, steps, samples, outputs)
    still = jax.tree.map(
        lambda part: jnp.zeros((outputs, *part.shape[1:])), (path.states, path.velocities)
    )
    state = still[0]._replace(bias=jnp.eye(outputs))
    return found, along(0, (state, still[1])).transpose(0, 2, 3, 1)
