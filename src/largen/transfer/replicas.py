"""Replicas: copies of one model that differ in seed and hyperparameters, trained side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from largen.arrays import integer
from largen.errors import InvalidInput, one_of
from largen.transfer.schedules import Schedule, check_factor

# A replica has diverged when its loss is not finite or this many times what it was at first.
DIVERGED = 100.0
# Steps between two looks at which replicas have diverged: a look waits for the device.
LOOK_EVERY = 10


@dataclass(frozen=True)
class Replica:
    """One copy.

    Attributes
    ----------
    lr
        η₀, the rate at the base shape.
    seed
        Of the initial weights.
    weight_decay
        λ₀, the decay at the base shape.
    momentum
        Of optimizers that have one.
    """

    lr: float
    seed: int = 0
    weight_decay: float = 0.0
    momentum: float = 0.9


@dataclass(frozen=True)
class TrainedReplicas:
    """What became of replicas.

    Attributes
    ----------
    losses
        The loss on each batch before its step, shape ``(replica, step)``; ∞ from the step on at
        which a replica diverged.
    each
        The loss after training on each sample that it was evaluated on, shape
        ``(replica, sample)``; ∞ if diverged.
    """

    losses: np.ndarray
    each: np.ndarray

    @property
    def final(self) -> np.ndarray:
        """The mean loss after training, shape ``(replica,)``."""
        return self.each.mean(1)

    @property
    def diverged(self) -> np.ndarray:
        """Which replicas diverged, shape ``(replica,)``."""
        return ~np.isfinite(self.final)


def checked(
    replicas: Sequence[Replica],
    steps: int,
    loss: Any,
    losses: Mapping[str, Any],
    schedule: Schedule | None,
) -> Any:
    """Check what is to be trained, and return the loss itself if it was named.

    Raises
    ------
    InvalidInput
        If there are no replicas or steps, or no loss of that name, or the schedule has absolute
        rates.
    """
    integer("steps", steps, at_least=1)
    if not replicas:
        raise InvalidInput("replicas: is empty; wanted at least one.")
    if schedule is not None:
        check_factor(schedule, steps)
    return losses[one_of("loss", loss, losses)] if isinstance(loss, str) else loss
