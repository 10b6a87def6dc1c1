"""Gradient descent of a linear network with one hidden layer on many samples, in closed form."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.finite_width.training.large_steps import LOST
from largen.finite_width.training.two_layers import Constants, neurons_at, table_at
from largen.runs import Loss, Run

FASTEST = 1e6  # bound of η²κ|K||E|², beyond which f grows faster than any exponential
LARGEST = 1e140  # bound of f, whose square is finite in float64


class State(NamedTuple):
    """The variables that close."""

    outputs: Any  # F of training, then test samples, (sample, output)
    # A = ρ_V m₂² ZZᵀ of the hidden layer Z, the tangent kernel of the read-out, (sample, sample).
    features: Any
    # B = ρ_U m₁² m₂² VVᵀ; the tangent kernel of the first layer is xxᵀ ⊗ B, (output, output).
    read_out: Any


class Setting(NamedTuple):
    """The static arguments of a compiled program."""

    # loss, shape: ℓ, and the shape of a sample's output.
    loss: Loss
    shape: tuple[int, ...]


class Path(NamedTuple):
    """Training at all times; after divergence, the last values before it are repeated."""

    outputs: Any  # F, (step, sample, output)
    curvatures: Any  # the largest eigenvalue of the tangent kernel of training samples over P
    sound: Any  # whether training reached this step before it diverged


def samples_of(run: Run) -> np.ndarray:
    """Return training and test samples, (sample, input), in float64."""
    return np.concatenate([run.data.x_train, run.data.x_test]).astype(np.float64)


def at_infinite_width(run: Run, constants: Constants) -> State:
    """Return the start of the limit: outputs are 0, the kernels their means."""
    x, C = samples_of(run), run.outputs or 1
    start = np.zeros((len(x), C)), constants.last * x @ x.T, constants.first * np.eye(C)
    return State(*start)


def drawn(run: Run, constants: Constants, width: int, rng: np.random.Generator) -> State:
    """Return the start of a random network of this width, at a cost that does not grow with it.

    The Gram matrix of n Gaussian vectors is TTᵀ with a triangular T of independent entries:
    normal ones below the diagonal, roots of χ² of n, n − 1, … degrees of freedom on it (Bartlett).
    """
    x, C, n = samples_of(run), run.outputs or 1, neurons_at(run, width)
    # Hidden layers of orthonormal directions are independent.
    left, size, _ = np.linalg.svd(x, full_matrices=False)
    x = left * size
    rows = x.shape[1] + C
    if n >= rows:
        T = np.tril(rng.standard_normal((rows, rows)), -1)
        np.fill_diagonal(T, np.sqrt(rng.chisquare(n - np.arange(rows))))
    else:
        T = rng.standard_normal((rows, n))
    hidden, last = x @ T[:-C], T[-C:]
    return _state(run, constants, width, hidden / np.sqrt(n), last / np.sqrt(n))


def of_weights(run: Run, constants: Constants, width: int, U: Any, V: Any) -> State:
    """Return the state of a network with weights U, (input, neuron), and V, (neuron, output)."""
    first, last = (row.rule for row in table_at(run, width).rows)
    root = np.sqrt(neurons_at(run, width))
    U, V = (np.asarray(w, np.float64) for w in (U, V))
    hidden = samples_of(run) @ U / (first.init_std * root)
    return _state(run, constants, width, hidden, V.T / (last.init_std * root))


def _state(run: Run, constants: Constants, width: int, hidden: Any, last: Any) -> State:
    """Return the state for hidden layers and read-outs of variance 1/n."""
    rules = [row.rule for row in table_at(run, width).rows]
    scale = neurons_at(run, width) * np.prod([rule.multiplier * rule.init_std for rule in rules])
    return State(
        scale * hidden @ last.T, constants.last * hidden @ hidden.T, constants.first * last @ last.T
    )


def follow(run: Run, constants: Constants, start: State) -> tuple[Path, np.ndarray]:
    """Return the training from a start, and the tangent kernel of training samples at its end."""
    x = samples_of(run)
    return from_start(run, x @ x.T, constants.coupling, start)


def from_start(run: Run, K: np.ndarray, coupling: float, start: State) -> tuple[Path, np.ndarray]:
    """Return the same for given inner products of samples, K, and a given coupling."""
    setting, batches = Setting(run.loss, run.output_shape), run.batches
    with jax.enable_x64(True):
        given = jnp.asarray(run.rates), None if batches is None else jnp.asarray(batches)
        start = State(*map(jnp.asarray, start))
        path, end = _path(setting, given, K, coupling, start, _in_double(run.data.y_train))
        return Path(*map(np.asarray, path)), np.asarray(end)


def ends(run: Run, constants: Constants, start: State, rates: Any, level: float) -> dict[str, Any]:
    """Return the outcomes of full-batch training at several constant rates, (rate,)."""
    x = samples_of(run)
    setting, steps = Setting(run.loss, run.output_shape), run.steps
    with jax.enable_x64(True):
        start, rates = State(*map(jnp.asarray, start)), jnp.asarray(rates)
        given = x @ x.T, constants.coupling, start, _in_double(run.data.y_train), level
        found = jax.vmap(partial(_end, setting, steps, *given))(rates)
        return {name: np.asarray(values) for name, values in found.items()}


def losses(run: Run, outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return mean losses, (step,), of outputs (step, sample[, output]); NaN without samples."""
    if not len(y):
        return np.full(len(outputs), np.nan)
    with jax.enable_x64(True):
        each = jax.vmap(jax.vmap(run.loss.sample), (0, None))
        return np.asarray(each(jnp.asarray(outputs), _in_double(y)).mean(axis=1))


def curvature(run: Run, state: State) -> float:
    """Return the largest eigenvalue of the tangent kernel of training samples over P."""
    x = samples_of(run)
    with jax.enable_x64(True):
        return float(
            largest_curvature(State(*map(jnp.asarray, state)), x @ x.T, len(run.data.x_train))
        )


def largest_curvature(state: State, K: Any, samples: int) -> Any:
    """Return the largest eigenvalue of the tangent kernel of training samples over P."""
    return jnp.linalg.eigvalsh(tangent(state, K, samples))[-1] / samples


def tangent(state: State, K: Any, samples: int) -> Any:
    """Return the tangent kernel A ⊗ 1 + K ⊗ B of training samples, rows over (sample, output)."""
    A, B = state.features[:samples, :samples], state.read_out
    return jnp.kron(A, jnp.eye(len(B))) + jnp.kron(K[:samples, :samples], B)


def _in_double(y: np.ndarray) -> Any:
    return jnp.asarray(y.astype(np.float64) if y.dtype.kind == "f" else y)


def _loss(setting: Setting, outputs: Any, y: Any) -> Any:
    """Return the losses of training samples, (sample,)."""
    outputs = outputs[: len(y)].reshape(len(y), *setting.shape)
    return jax.vmap(setting.loss.sample)(outputs, y)


def _step(setting: Setting, K: Any, coupling: Any, y: Any, state: State, rate: Any, batch: Any):
    """Return the state after a step, and η²κ|K||E|², which turns the kernel."""
    F, A, B = state
    P = len(y)

    def mean(outputs):
        losses = _loss(setting, outputs, y)
        return losses.mean() if batch is None else losses[batch].mean()

    E = -rate * jax.grad(mean)(F)[:P]
    KE, FE = K[:, :P] @ E, F[:P].T @ E
    turned = KE @ F.T
    next_state = State(
        F + A[:, :P] @ E + KE @ B + coupling * KE @ FE,
        A + coupling * (turned + turned.T + KE @ B @ KE.T),
        B + coupling * (FE + FE.T + E.T @ A[:P, :P] @ E),
    )
    return next_state, coupling * jnp.trace(K[:P, :P]) * jnp.sum(E**2)


@partial(jax.jit, static_argnums=0)
def _path(setting: Setting, given: Any, K, coupling, start: State, y) -> tuple[Path, Any]:
    P = len(y)

    def step(carried, now):
        state, sound = carried
        after, turn = _step(setting, K, coupling, y, state, *now)
        sound &= (turn < FASTEST) & (jnp.abs(after.outputs).max() < LARGEST)
        state = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, state)
        return (state, sound), Path(state.outputs, largest_curvature(state, K, P), sound)

    begin = start, jnp.asarray(True)
    (end, _), seen = lax.scan(step, begin, given)
    first = Path(start.outputs, largest_curvature(start, K, P), begin[1])
    path = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, seen)
    C = start.outputs.shape[1]
    return path, tangent(end, K, P).reshape(P, C, P, C)


@partial(jax.jit, static_argnums=(0, 1))
def _end(setting: Setting, steps: int, K, coupling, start: State, y, level, rate):
    first = _loss(setting, start.outputs, y).mean()

    def step(index, carried):
        state, sound, last, peak, at, above = carried
        after, _ = _step(setting, K, coupling, y, state, rate, None)
        loss = _loss(setting, after.outputs, y).mean()
        sound &= loss <= LOST * first
        state = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, state)
        loss = jnp.where(sound, loss, last)
        higher = loss > peak
        return (
            state, sound, loss, jnp.where(higher, loss, peak), jnp.where(higher, index + 1, at),
            jnp.where(loss > level * first, index + 1, above),
        )  # fmt: skip

    begin = (start, jnp.asarray(True), first, first, 0, 0)
    state, sound, last, peak, at, above = lax.fori_loop(0, steps, step, begin)
    there = sound & (last <= level * first)
    return {
        "curvature": largest_curvature(state, K, len(y)),
        "largest_loss": peak,
        "at": at * 1.0,
        "steps": jnp.where(there, above, jnp.nan),
        "loss": last,
        "alive": sound,
    }
