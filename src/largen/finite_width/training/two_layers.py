"""Linear networks with one hidden layer, f = m₁m₂ V U x: which runs they are, their constants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from largen.errors import NoTheory
from largen.parameterizations import RuleTable, momentum_of
from largen.programs import Affine, Function, Operation, program_of
from largen.programs.rewriting import unrolled
from largen.runs import Run


class Constants(NamedTuple):
    """The constants of training at a width n, for the rule's multipliers m and rates ρ."""

    coupling: float  # κ = ρ_U ρ_V (m₁m₂)²; 0 where the kernel is constant in the limit
    # Means at initialisation of the tangent kernel of the first layer and of the read-out over
    # x·x', (m₁m₂)² n ρ_U σ_V² and (m₁m₂)² n ρ_V σ_U².
    first: float
    last: float


def check(run: Run, what: str) -> None:
    """Check that a run trains a linear network with one hidden layer by gradient descent."""
    program = unrolled(program_of(run.net, run.data.inputs))
    operations = [each for each in program.operations[1:] if not _identity(each)]
    if len(operations) != 2 or not all(isinstance(o, Affine) and o.dense for o in operations):
        raise NoTheory(
            f'{what}: wanted a linear network with one hidden layer, lg.mlp(1, "linear"), got '
            f"{run.net!r}: no other has closed equations. lg.training.catapult_diagram trains "
            "networks."
        )
    if any(weight.bias_std for weight in program.weights):
        raise NoTheory(f"{what}: biases have an order parameter of their own; take bias_std=0.")
    optimizer = run.optimizer
    plain = optimizer.descends_in_steps and not momentum_of(optimizer)
    if not plain or optimizer.weight_decay:
        raise NoTheory(
            f"{what}: wanted gradient descent without momentum and weight decay, such as "
            f"lg.gd(0.1), got {optimizer}."
        )


def _identity(operation: Operation) -> bool:
    return isinstance(operation, Function) and operation.phi.slope == 1


def table_at(run: Run, width: int) -> RuleTable[float]:
    """Return the rules of both weights at a width."""
    return run.param.table(run.net, width=width, inputs=run.data.inputs)


def neurons_at(run: Run, width: int) -> int:
    """Return n, the number of hidden neurons at a width."""
    return int(width * table_at(run, width).rows[0].site.width_ratio)


def at_width(run: Run, width: int) -> Constants:
    """Return the constants at a width."""
    first, last = (row.rule for row in table_at(run, width).rows)
    product, n = (first.multiplier * last.multiplier) ** 2, neurons_at(run, width)
    return Constants(
        product * first.lr * last.lr,
        product * first.lr * n * last.init_std**2,
        product * last.lr * n * first.init_std**2,
    )


def at_infinite_width(run: Run, what: str) -> Constants:
    """Return the limits of the constants."""
    near, far = at_width(run, 2**10), at_width(run, 2**14)
    names = ("η²cΔ²", "the kernel's part of the first layer", "the kernel's part of the read-out")
    found = []
    for name, one, other in zip(names, near, far, strict=True):
        power = np.log2(other / one) / 4
        if power > 1e-9:
            raise NoTheory(
                f"{what}: {run.param} has no limit, {name} grows as N^{power:.3g}; give a width."
            )
        found.append(one if power > -1e-9 else 0.0)
    return Constants(*found)
