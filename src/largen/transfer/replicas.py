"""Replicas: copies of one model that differ in seed and hyperparameters, trained side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from largen.callables import takes
from largen.errors import InvalidInput, instance_of, one_of
from largen.scalars import integer, real, sequence
from largen.text import shown
from largen.transfer.plan import Plan
from largen.transfer.schedules import Schedule, check_factor

# A replica has diverged when its loss is not finite, or this many times its initial value.
DIVERGED = 100.0
# Steps between two checks for diverged replicas: a check waits for the device.
LOOK_EVERY = 10


@dataclass(frozen=True)
class Replica:
    """The settings of one replica."""

    lr: float  # η₀, the rate at the base shape
    seed: int = 0  # seed of the initial weights
    weight_decay: float = 0.0  # λ₀, the decay at the base shape
    momentum: float = 0.9  # momentum of the optimizer "momentum"; other optimizers have none

    def __post_init__(self) -> None:
        integer("seed", self.seed, at_least=0)
        for name in ("lr", "weight_decay", "momentum"):
            object.__setattr__(self, name, real(name, getattr(self, name), at_least=0))


@dataclass(frozen=True)
class TrainedReplicas:
    """Losses of trained replicas."""

    # The loss on each step's batch before the step, shape (replica, step); ∞ from the step at which
    # a replica diverged.
    losses: np.ndarray
    # The loss after training on each evaluation sample, shape (replica, sample); ∞ for replicas
    # that diverged.
    each: np.ndarray

    @property
    def final(self) -> np.ndarray:
        """The mean loss after training, shape ``(replica,)``."""
        return self.each.mean(1)

    @property
    def diverged(self) -> np.ndarray:
        """Which replicas diverged, shape ``(replica,)``."""
        return ~np.isfinite(self.final)


def batch_of(batches: Callable[[int], Any], t: int) -> tuple[Any, Any]:
    """Return the inputs and targets of one step."""
    pair = batches(t)
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidInput(
            f"batches: wanted a pair of inputs and targets at step {t}, got {shown(pair)}."
        )
    return pair[0], pair[1]


def checked(
    plan: Any,
    kind: type[Plan],
    replicas: Sequence[Replica],
    batches: Any,
    steps: int,
    loss: Any,
    losses: Mapping[str, Any],
    schedule: Schedule | None,
    evaluation: Sequence[Any],
    report: Any,
) -> Any:
    """Check the arguments of a training of replicas, and return the loss as a function."""
    integer("steps", steps, at_least=1)
    optimizer = instance_of("plan", plan, kind, f"a {kind.__name__}").optimizer
    for replica in sequence("replicas", replicas, "a list of replicas"):
        instance_of("replicas", replica, Replica, "a list of replicas, such as [Replica(0.1)]")
    if not len(replicas):
        raise InvalidInput("replicas: is empty; wanted at least one.")
    takes("batches", batches, ("step",))
    if report is not None:
        takes("report", report, ("step", "steps"))
    if optimizer != "momentum" and len({replica.momentum for replica in replicas}) > 1:
        raise InvalidInput(
            f"replicas: they differ in momentum, and {optimizer} has none; take "
            "optimizer='momentum'."
        )
    wanted = "a list of pairs of inputs and targets"
    for pair in sequence("evaluation", evaluation, wanted):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidInput(f"evaluation: wanted {wanted}, one of them is {shown(pair)}.")
    if not len(evaluation):
        raise InvalidInput("evaluation: is empty; wanted at least one batch.")
    if schedule is not None:
        check_factor(schedule, steps)
    if isinstance(loss, str):
        return losses[one_of("loss", loss, losses)]
    return takes("loss", loss, ("outputs", "targets"))
