"""Running averages of gradients, on which adaptive optimizers depend.

With the gradient ∇ of a weight in units of its rule's eps, of order one in N, every weight has
averages of its own gradients and an update u, which the optimizer says
(:class:`largen.parameterizations.Averages`). For Adam and RMSProp

    m ← β₁m + (1 − β₁)∇,   v ← β₂v + (1 − β₂)∇²,   u = m̂/(√v̂ + ε₀).

RMSProp has β₁ = 0, and its m̂ and v̂ are without Adam's bias correction. With β₁ = β₂ = ε₀ = 0 the
update u is the sign of the gradient.
"""

from __future__ import annotations

import numpy as np

from largen.errors import NoTheory
from largen.parameterizations import Averages, Power
from largen.parameterizations.rules import Row
from largen.runs import Run

PROBED = np.array([0.3, -1.7, 2.0, 0.0])  # gradients of an update that has to be odd


def averages_of(run: Run) -> Averages | None:
    """Return the averages of a run's optimizer; None if its update is linear in the gradient.

    Raises
    ------
    NoRule
        If it is another update, which is not said weight by weight.
    NoTheory
        If it is, and not odd: descent along −∇ and along ∇ would differ.
    """
    optimizer = run.optimizer
    if optimizer.kind != "normalised":
        return None
    averages = optimizer.says("averages")
    if not isinstance(averages, Averages):
        return None
    memory = (np.zeros_like(PROBED),) * averages.memories
    updates = []
    for sign in (1, -1):
        after = memory
        for count in (1, 2):
            given = sign * PROBED / count, after, averages.corrections(count)
            update, after = averages.update(*given)
        updates.append(sign * np.asarray(update))
    if not np.array_equal(*updates):
        raise NoTheory(
            f"the update of {type(optimizer).__name__} is not odd in the gradients, as limits of "
            f"updates of single weights take it to be: {updates[0]} and {updates[1]} for gradients "
            "of either sign."
        )
    return averages


def check_limit(
    run: Run,
    row: Row[Power],
    step: Power,  # its update over its initial size
    gradient: Power,  # its gradient over the rule's eps
    std: Power,  # its output
) -> None:
    """Check that the powers of N of a weight are 0; that of the gradient unless ε₀ is 0."""
    averages = run.optimizer.averages
    if not averages.eps:
        gradient = Power()
    for what, power in (
        ("its output", std),
        ("its update over its initial size", step),
        ("its gradient over ε", gradient),
    ):
        if power.width:
            grows = "grows" if power.width > 0 else "vanishes"
            raise NoTheory(
                f"{run.param} has no mean-field limit with {type(run.optimizer).__name__}: {what} "
                f"at the weight {row.name} ({row.site.role}) {grows} as N^{power.width}. "
                "lg.mean_field() and lg.mup() have one."
            )
