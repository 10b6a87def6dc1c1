"""A linear network with one hidden layer and a single sample: exact equations for f and λ."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.errors import InvalidInput, NoTheory
from largen.parameterizations import GradientDescent, RuleTable
from largen.programs import Affine, Function, Operation, program_of
from largen.programs.rewriting import unrolled
from largen.runs import Loss, Run

WHAT = "lg.training.catapult"
LOST = 1e6  # bound of η²cΔ², beyond which f grows faster than any exponential
LARGEST = 1e140  # bound of f, whose square is finite in float64


class OneSample(NamedTuple):
    """The constants of the recursion for a network."""

    coupling: float  # c; 0 where the kernel is constant in the limit
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
    program = unrolled(program_of(run.net, run.data.inputs))
    operations = [each for each in program.operations[1:] if not _identity(each)]
    if len(operations) != 2 or not all(isinstance(o, Affine) and o.dense for o in operations):
        raise NoTheory(
            f'{WHAT}: wanted a linear network with one hidden layer, lg.mlp(1, "linear"), got '
            f"{run.net!r}: no other has closed equations for f and λ. lg.training.catapult_diagram "
            "trains networks."
        )
    if any(weight.bias_std for weight in program.weights):
        raise NoTheory(f"{WHAT}: biases have an order parameter of their own; take bias_std=0.")
    optimizer = run.optimizer
    if not isinstance(optimizer, GradientDescent) or optimizer.momentum or optimizer.weight_decay:
        raise NoTheory(
            f"{WHAT}: wanted gradient descent without momentum and weight decay, such as "
            f"lg.gd(0.1), got {optimizer}."
        )
    if run.output_shape not in ((), (1,)):
        raise NoTheory(f"{WHAT}: wanted one output, this run has {run.output_shape[0]}.")
    if len(run.data.x_train) != 1:
        raise InvalidInput(
            f"run: {WHAT} is exact for one training sample, got {len(run.data.x_train)}; "
            "lg.training.catapult_diagram trains networks on any number."
        )


def _identity(operation: Operation) -> bool:
    return isinstance(operation, Function) and operation.phi.name == "linear"


def at_width(run: Run, width: int) -> OneSample:
    """Return c and the mean of λ at a width."""
    return _constants(run, width)[0]


def at_infinite_width(run: Run) -> OneSample:
    """Return the limits of c and λ."""
    near, terms = _constants(run, 2**10)
    far, more = _constants(run, 2**14)
    names = ("η²cΔ²", "the kernel's part of the first layer", "the kernel's part of the read-out")
    constants = []
    for name, one, other in zip(names, (near.coupling, *terms), (far.coupling, *more), strict=True):
        power = np.log2(other / one) / 4
        if power > 1e-9:
            raise NoTheory(
                f"{WHAT}: {run.param} has no limit, {name} grows as N^{power:.3g}; give a width."
            )
        constants.append(one if power > -1e-9 else 0.0)
    return OneSample(constants[0], constants[1] + constants[2])


def _constants(run: Run, width: int) -> tuple[OneSample, tuple[float, float]]:
    table: RuleTable[float] = run.param.table(run.net, width=width, inputs=run.data.inputs)
    first, last = (row.rule for row in table.rows)
    square = float(np.sum(np.asarray(run.data.x_train, np.float64) ** 2))
    product = (first.multiplier * last.multiplier) ** 2 * square
    neurons = width * float(table.rows[0].site.width_ratio)
    parts = (
        product * first.lr * neurons * last.init_std**2,
        product * last.lr * neurons * first.init_std**2,
    )
    return OneSample(product * first.lr * last.lr, sum(parts)), parts


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
