"""Measurements of trained parameters: a function of each network before and after training."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from largen.arrays import precision
from largen.callables import outputs_on_shapes, takes
from largen.errors import InvalidInput, NumericalFailure, instance_of
from largen.interrupts import interruptible
from largen.memory import MEMORY_BUDGET
from largen.networks.chunks import Measure, in_chunks
from largen.networks.ensembles import MOST_SEEDS
from largen.networks.plan import plan_of
from largen.progress import Report, reporter
from largen.runs import Run
from largen.scalars import flag, integer, random_key, real


@interruptible()
def train_and_measure(
    run: Run,
    width: int,
    measure: Measure,
    *,
    seeds: int = 1,
    key: Any = 0,
    memory_budget: float = MEMORY_BUDGET,
    throw: bool = True,
    progress: bool | Report | None = None,
) -> Any:
    """Train an ensemble, and evaluate a function of each network's initial and final parameters.

    Parameters
    ----------
    run, width, seeds, key, memory_budget, progress
        As in :func:`largen.train`: the networks are the same.
    measure
        ``measure(network, start, end, x)`` of one network: a
        :class:`largen.networks.FiniteNetwork`, its initial and its trained parameters, and training
        inputs followed by test inputs
        ``(sample, input)``. It is compiled once for each width and function object, and returns
        a tree of arrays; it may return the parameters themselves, if they fit into memory.
    throw
        Whether to raise if a measured array is not finite.

    Returns
    -------
    tree
        The tree that ``measure`` returns, as NumPy arrays with a leading axis of seeds.

    Raises
    ------
    InvalidInput
        If an argument has a wrong type or value.
    NumericalFailure
        If a measured array has NaN or infinite entries. The error's ``result`` holds the tree.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), data, optimizer=lg.gd(lr=1.0), steps=10)
    >>> end = lg.networks.train_and_measure(
    ...     run, 32, seeds=4, key=0, measure=lambda network, start, end, x: end
    ... )
    >>> end[0]["weight"].shape
    (4, 3, 32)
    """
    instance_of("run", run, Run, "an lg.Run")
    takes("measure", measure, ("network", "start", "end", "x"))
    try:
        hash(measure)
    except TypeError:
        raise InvalidInput("measure: is not hashable; pass a plain function.") from None
    width = integer("width", width, at_least=1)
    seeds = integer("seeds", seeds, at_least=1, at_most=MOST_SEEDS)
    throw = flag("throw", throw)
    key = random_key(key)
    memory_budget = real("memory_budget", memory_budget, above=0)
    with precision(run.data.x_train):
        plan, numbers = plan_of(run, width, (), ())
        parameters = plan.network.module.shapes
        given = (partial(measure, plan.network), parameters, parameters, numbers.x)
        if not jax.tree.leaves(outputs_on_shapes("measure", *given)):
            raise InvalidInput("measure: wanted a function that returns arrays, got none.")
        with reporter(progress, f"width {width}") as report:
            _, measured = in_chunks(plan, numbers, key, seeds, memory_budget, report, measure)
    if throw and not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(measured)):
        raise NumericalFailure(
            f"train_and_measure: something measured is not finite for networks of width {width} "
            f"with {run.optimizer}; lower lr. throw=False returns what was measured.",
            measured,
        )
    return measured
