"""What optimizers average over time: a velocity, or averages of every single weight's gradients.

It is what theories have to know of an update, beside its kind: networks of infinite width have no
weights that an optimizer could be given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Velocity:
    """v ← βv − η(∇ + λθ) and θ ← θ + v: linear in the gradients, each with the rate of its step."""

    momentum: float = 0.0  # β


class Averages:
    """Base of updates of single weights by averages of their own gradients, θ ← θ − η(u + λθ).

    Every weight has ``memories`` numbers, which are 0 at the start. With ∇ in units of the rule's
    eps, of order one in the width, ``update`` returns u and the numbers after a step, elementwise.
    It is odd, as −∇ gives −u and numbers of the other sign or the same.

    Attributes
    ----------
    memories
        How many numbers every weight has.
    eps
        ε₀, with which the size of u depends on that of ∇; 0 if it does not.
    """

    memories: ClassVar[int]
    eps: float = 0.0

    def corrections(self, count: Any) -> tuple[Any, ...]:
        """Return numbers that depend on the number of gradients so far, this one included."""
        return ()

    def update(
        self, gradient: Any, memory: tuple[Any, ...], corrections: tuple[Any, ...]
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return u and the numbers after the step, all of the shape of the gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not say its update.")

    def of_trees(
        self, gradients: Any, memory: tuple[Any, ...], corrections: tuple[Any, ...]
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return :meth:`update` of all arrays of a tree; memory is a tuple of such trees."""
        leaves, tree = jax.tree.flatten(gradients)
        kept = [tree.flatten_up_to(each) for each in memory]
        found = [
            self.update(leaf, tuple(numbers), corrections)
            for leaf, *numbers in zip(leaves, *kept, strict=True)
        ]
        after = tuple(
            tree.unflatten([numbers[place] for _, numbers in found])
            for place in range(self.memories)
        )
        return tree.unflatten([update for update, _ in found]), after


@dataclass(frozen=True)
class Moments(Averages):
    """u = m̂/(√v̂ + ε₀) with m ← β₁m + (1 − β₁)∇ and v ← β₂v + (1 − β₂)∇²; 0 where ∇ was always 0.

    With ``corrected`` m̂ = m/(1 − β₁ᵗ) and v̂ = v/(1 − β₂ᵗ) after t gradients, as in Adam; without,
    they are m and v.
    """

    first: float  # β₁
    second: float  # β₂
    corrected: bool
    eps: float = 0.0

    memories: ClassVar[int] = 2

    def corrections(self, count: Any) -> tuple[Any, ...]:
        """Return m/m̂ and v/v̂."""
        if not self.corrected:
            return 1.0, 1.0
        return 1 - self.first**count, 1 - self.second**count

    def update(
        self, gradient: Any, memory: tuple[Any, ...], corrections: tuple[Any, ...]
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return u, and m and v after the step."""
        m = self.first * memory[0] + (1 - self.first) * gradient
        v = self.second * memory[1] + (1 - self.second) * jnp.square(gradient)
        size = jnp.sqrt(v / corrections[1]) + self.eps
        u = jnp.where(size > 0, m / corrections[0] / jnp.where(size > 0, size, 1), 0)
        return u, (m, v)
