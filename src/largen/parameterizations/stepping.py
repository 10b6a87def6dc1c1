"""Base classes of optimizers: a rate, and steps with a schedule and an order of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from largen.callables import takes
from largen.errors import InvalidInput, one_of
from largen.parameterizations.averages import Averages, Velocity
from largen.parameterizations.updates import KINDS, Update
from largen.scalars import LARGEST_SEED, integer, integers, real, sequence

Schedule = Callable[[int], Any] | Sequence[float] | ArrayLike
Order = Sequence[int] | np.ndarray


@dataclass(frozen=True)
class Optimizer(Update, base=True):
    """Base of all optimizers.

    Attributes
    ----------
    lr
        η₀, the rate before the parameterization's powers of width and depth.
    weight_decay
        λ₀: every step shrinks each weight by the fraction η₀λ₀, at every width.
    """

    lr: float
    weight_decay: float = 0.0

    def __post_init__(self):
        if not self.continuous and not isinstance(self, Stepped):
            raise InvalidInput(
                f"optimizer: {type(self).__name__} derives from Optimizer; one that makes steps "
                "derives from Stepped, which has batches and schedules."
            )
        if self.kind is not None:
            one_of("kind", self.kind, KINDS)
        for said, kind in ((Velocity, "proportional"), (Averages, "normalised")):
            if isinstance(self.averages, said) and self.kind not in (None, kind):
                raise InvalidInput(
                    f"kind: {type(self).__name__} says {self.kind!r}, and its averages, a "
                    f"{said.__name__}, make the update {kind}."
                )
        object.__setattr__(self, "lr", real("lr", self.lr, above=0))
        decay = real("weight_decay", self.weight_decay, at_least=0)
        object.__setattr__(self, "weight_decay", decay)

    def __str__(self) -> str:
        shown = ", ".join(
            f"{f.name}={_shown(getattr(self, f.name))}"
            for f in fields(self)
            if f.name == "lr" or getattr(self, f.name) != f.default
        )
        return f"{type(self).__name__}({shown})"


@dataclass(frozen=True)
class Stepped(Optimizer, base=True):
    """Base of the optimizers that make steps.

    Attributes
    ----------
    batch_size
        The number of samples in a step; None for all of them.
    seed
        The seed of the permutations in which samples are used.
    order
        The indices of the samples in the order in which they are used, instead of permutations.
    schedule
        The factor of η₀ in each step.
    """

    batch_size: int | None = None
    seed: int = 0
    order: Order | None = field(default=None, kw_only=True)
    schedule: Schedule | None = field(default=None, kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        if self.batch_size is not None:
            integer("batch_size", self.batch_size, at_least=1)
        integer("seed", self.seed, at_least=0, at_most=LARGEST_SEED)
        if self.order is not None:
            object.__setattr__(self, "order", _samples(self.order, self.batch_size))
        if callable(self.schedule):
            takes("schedule", self.schedule, ("step",))
        elif self.schedule is not None:
            object.__setattr__(self, "schedule", _factors("schedule", self.schedule))

    def rates(self, steps: int) -> np.ndarray:
        """Return η₀ times the schedule's factor of each step, shape ``(step,)``.

        Raises
        ------
        InvalidInput
            If the schedule has fewer factors, or one that is negative or not finite.
        """
        if self.schedule is None:
            return np.full(steps, self.lr)
        if callable(self.schedule):
            factors = _factors("schedule", [self.schedule(step) for step in range(steps)])
        else:
            factors = _factors("schedule", self.schedule)[:steps]
        if len(factors) < steps:
            raise InvalidInput(
                f"schedule: wanted a factor for each of {steps} steps, got {len(factors)}."
            )
        return self.lr * np.array(factors)

    def batches(self, steps: int, samples: int) -> np.ndarray | None:
        """Return the sample indices of each step, shape ``(step, sample)``; None for full batch.

        Each epoch is the given order, or a new permutation that depends on the seed alone.

        Raises
        ------
        InvalidInput
            If there are fewer samples than a batch has, or than the order refers to.
        """
        size, order = self.batch_size, self.order
        if size is None:
            return None
        if size > samples:
            raise InvalidInput(f"batch_size: {size} is more than the {samples} training samples.")
        if order is not None and max(order) >= samples:
            raise InvalidInput(
                f"order: there is no sample {max(order)} among the {samples} training samples, "
                "which count from 0."
            )
        draw = np.random.default_rng(self.seed)
        a_pass = (samples if order is None else len(order)) // size
        epochs = -(-steps // a_pass)
        orders = [draw.permutation(samples) if order is None else order for _ in range(epochs)]
        seen = [np.asarray(one[: a_pass * size]) for one in orders]
        return np.concatenate(seen).reshape(-1, size)[:steps]


def check_below_one(name: str, value: float) -> None:
    """Check that a number is at least 0 and below 1."""
    if not 0 <= real(name, value) < 1:
        raise InvalidInput(f"{name}: wanted 0 ≤ {name} < 1, got {value!r}.")


def _factors(name: str, values: Any) -> tuple[float, ...]:
    wanted = "a function of the step or a sequence of factors"
    factors = sequence(name, values, wanted)
    if not factors:
        raise InvalidInput(f"{name}: wanted {wanted}, got none.")
    return tuple(real(f"{name}, step {k}", factor, at_least=0) for k, factor in enumerate(factors))


def _samples(order: Order, batch_size: int | None) -> tuple[int, ...]:
    if batch_size is None:
        raise InvalidInput("order: an order of samples needs a batch_size as well.")
    samples = tuple(integers("order", order, at_least=0))
    if len(samples) < batch_size:
        raise InvalidInput(
            f"order: wanted at least the {batch_size} samples of a batch, got {len(samples)}."
        )
    return samples


def _shown(value: Any) -> str:
    if callable(value):
        return getattr(value, "__qualname__", repr(value)).removesuffix(".<locals>.schedule")
    if isinstance(value, tuple):
        return f"{len(value)} {'samples' if isinstance(value[0], int) else 'factors'}"
    return str(value)
