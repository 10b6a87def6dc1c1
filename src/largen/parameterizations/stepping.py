"""Base classes of optimizers: a rate, and steps with a schedule and an order of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

import numpy as np
from jax.typing import ArrayLike

from largen.callables import takes
from largen.errors import InvalidInput, NoRule
from largen.scalars import LARGEST_SEED, integer, integers, real, sequence

Schedule = Callable[[int], Any] | Sequence[float] | ArrayLike
Order = Sequence[int] | np.ndarray
Kind = Literal["proportional", "normalised"]

# What optimizers say of their update, in words.
SAID_IN_WORDS = {
    "kind": "how its update scales with the gradient, `kind`: 'proportional' or 'normalised'",
}
SAID = frozenset(SAID_IN_WORDS)


@dataclass(frozen=True)
class Optimizer:
    """Base of all optimizers.

    What an optimizer says of its update, such as its ``kind``, holds for its own class: in classes
    that derive from it, it is unsaid again, since their updates are others. Classes from which
    optimizers derive without being one have the argument ``base=True``.

    Attributes
    ----------
    lr
        η₀, the rate before the parameterization's powers of width and depth.
    weight_decay
        λ₀: every step shrinks each weight by the fraction η₀λ₀, at every width.
    kind
        How the update scales with the gradient: ``"proportional"``, or ``"normalised"`` if its
        size is that of the rate.
    """

    lr: float
    weight_decay: float = 0.0

    kind: ClassVar[Kind | None] = None
    _is_base: ClassVar[bool] = True

    def __init_subclass__(cls, base: bool = False, **options: Any):
        super().__init_subclass__(**options)
        cls._is_base = base
        if cls._derives_from() is not None:
            for name in SAID.difference(vars(cls)):
                setattr(cls, name, vars(Optimizer)[name])

    @classmethod
    def _derives_from(cls) -> type[Optimizer] | None:
        """Return the optimizer from which a class derives, if it is more than a base."""
        bases = (base for base in cls.__mro__[1:] if issubclass(base, Optimizer))
        return next((base for base in bases if not base._is_base), None)

    @property
    def adaptive(self) -> bool:
        """Whether the size of the update is independent of the gradient's."""
        return self.says("kind") != "proportional"

    def says(self, name: str) -> Any:
        """Return what the optimizer says of its update.

        Raises
        ------
        NoRule
            If it does not say it; what an optimizer from which it derives says does not hold.
        """
        said = getattr(self, name)
        if said is None:
            raise self._unsaid(name)
        return said

    def _unsaid(self, name: str) -> NoRule:
        """Return the error of an optimizer that does not say something."""
        called, base = type(self).__name__, self._derives_from()
        derives = ""
        if base is not None:
            derives = f" What {base.__name__} says does not hold for a class that derives from it."
        return NoRule(
            "training",
            self,
            said=f"optimizer: {called} does not say {SAID_IN_WORDS[name]}.{derives} "
            "See 'How to add an optimizer' in CONTRIBUTING.md.",
        )

    def __post_init__(self):
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
