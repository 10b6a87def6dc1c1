"""Running averages of gradients, by which adaptive optimizers divide.

With the gradient ∇ of a weight in units of its rule's eps, of order one in N,

    m ← β₁m + (1 − β₁)∇,   v ← β₂v + (1 − β₂)∇²,   u = m̂/(√v̂ + ε₀).

RMSProp has β₁ = 0, and its m̂ and v̂ are without Adam's bias correction. With β₁ = β₂ = ε₀ = 0 the
update u is the sign of the gradient.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from largen.errors import NoTheory
from largen.parameterizations import Adam, Power, RMSProp
from largen.parameterizations.rules import Row
from largen.runs import Run


class Average(NamedTuple):
    """Parameters of the running averages: β₁, β₂, ε₀, and whether there is a bias correction."""

    first: float
    second: float
    eps: float
    corrected: bool

    def corrections(self, count: Any) -> tuple[Any, Any]:
        """Return m/m̂ and v/v̂ after some number of gradients."""
        if not self.corrected:
            return 1.0, 1.0
        return 1 - self.first**count, 1 - self.second**count


def average_of(run: Run) -> Average | None:
    """Return the averages of a run's optimizer; None if its update is linear in the gradient."""
    match run.optimizer:
        case Adam(beta1=beta1, beta2=beta2, eps=eps):
            return Average(beta1, beta2, eps, True)
        case RMSProp(beta=beta, eps=eps):
            return Average(0.0, beta, eps, False)
    return None


def check_limit(
    run: Run,
    row: Row[Power],
    step: Power,  # its update over its initial size
    gradient: Power,  # its gradient over the rule's eps
    std: Power,  # its output
) -> None:
    """Check that the powers of N of a weight are 0; that of the gradient unless ε₀ is 0."""
    if not getattr(run.optimizer, "eps", 0.0):
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


def adapt(
    average: Average,
    move: Any,
    memory: tuple[Any, Any],
    corrections: tuple[Any, Any],  # m/m̂ and v/v̂
) -> tuple[Any, Any]:
    """Return m̂/(√v̂ + ε₀) for a tree of −∇, and the averages m, v; 0 where ∇ was always 0."""

    def mix(beta, old, new):
        return jax.tree.map(lambda a, b: beta * a + (1 - beta) * b, old, new)

    first = mix(average.first, memory[0], move)
    second = mix(average.second, memory[1], jax.tree.map(jnp.square, move))

    def change(m, v):
        size = jnp.sqrt(v / corrections[1]) + average.eps
        return jnp.where(size > 0, m / corrections[0] / jnp.where(size > 0, size, 1), 0)

    return jax.tree.map(change, first, second), (first, second)
