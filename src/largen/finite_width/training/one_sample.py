"""A linear network with one hidden layer and a single sample: exact equations for f and λ."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.errors import InvalidInput, NoTheory
from largen.finite_width.training import two_layers
from largen.runs import Loss, Run

WHAT = "lg.training.catapult"
LOST = 1e6  # bound of η²cΔ², beyond which f grows faster than any exponential
LARGEST = 1e140  # bound of f, whose square is finite in float64


class OneSample(NamedTuple):
    """The constants of the recursion for a network."""

    coupling: float  # c = κ|x|²; 0 where the kernel is constant in the limit
    kernel: float  # λ of wide networks at initialisation


class Path(NamedTuple):
    """The recursion at all times; after divergence, the last values before it are repeated."""

    # outputs, kernels, losses: f, λ and ℓ, (step,).
    outputs: Any
    kernels: Any
    losses: Any
    sound: Any  # whether the recursion reached this step before it diverged, (step,)


def check(run: Run) -> None:
    """Check that a run has closed equations for f and λ."""
    two_layers.check(run, WHAT)
    if run.output_shape not in ((), (1,)):
        raise NoTheory(f"{WHAT}: wanted one output, this run has {run.output_shape[0]}.")
    if len(run.data.x_train) != 1:
        raise InvalidInput(
            f"run: {WHAT} closes for one training sample, got {len(run.data.x_train)}; "
            "lg.training.linear_training has any number."
        )


def at_width(run: Run, width: int) -> OneSample:
    """Return c and the mean of λ at a width."""
    return _of_sample(run, two_layers.at_width(run, width))


def at_infinite_width(run: Run) -> OneSample:
    """Return the limits of c and λ."""
    return _of_sample(run, two_layers.at_infinite_width(run, WHAT))


def _of_sample(run: Run, constants: two_layers.Constants) -> OneSample:
    square = float(np.sum(np.asarray(run.data.x_train, np.float64) ** 2))
    return OneSample(square * constants.coupling, square * (constants.first + constants.last))


def recursion(run: Run, coupling: float, f0: float, kernel0: float) -> Path:
    """Return the training of a network with given initial output and kernel."""
    target = np.asarray(run.data.y_train[0])
    with jax.enable_x64(True):
        target = jnp.asarray(
            target.reshape(run.output_shape) if target.dtype.kind == "f" else target
        )
        path = _path(
            (run.loss, run.output_shape), jnp.asarray(run.rates), coupling, f0, kernel0, target
        )
        return Path(*map(np.asarray, path))


@partial(jax.jit, static_argnums=0)
def _path(given: tuple[Loss, tuple[int, ...]], rates, coupling, f0, kernel0, target) -> Path:
    loss, shape = given

    def value(f):
        return loss.sample(f.reshape(shape), target)

    def step(state, rate):  # Bahri and Hanin, Les Houches lectures, (110) and (112), corrected
        f, kernel, sound = state
        slope = -jax.grad(value)(f)
        turn = rate * coupling * slope  # η c Δ
        new = f + rate * kernel * slope + rate * turn * slope * f
        lam = kernel + turn * (rate * kernel * slope + 4 * f)
        kept = (rate * turn * slope < LOST) & (jnp.abs(new) < LARGEST) & sound
        after = jnp.where(kept, new, f), jnp.where(kept, lam, kernel), kept
        return after, (*after[:2], value(after[0]), kept)

    start = jnp.asarray(f0, jnp.float64), jnp.asarray(kernel0, jnp.float64), jnp.asarray(True)
    _, seen = lax.scan(step, start, rates)
    first = (*start[:2], value(start[0]), start[2])
    return Path(
        *(jnp.concatenate([jnp.atleast_1d(a), b]) for a, b in zip(first, seen, strict=True))
    )
