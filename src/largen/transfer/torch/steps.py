"""Optimizers as functions of stacked weights, with settings for each replica.

The first axis counts replicas of one model; rates, decays, momenta and ε are columns along it. Each
replica's update equals that of ``torch.optim`` for the replica alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from largen.errors import one_of

ADAM_BETAS = (0.9, 0.999)
LION_BETAS = (0.9, 0.99)
RMSPROP_BETA = 0.99
NADAM_MOMENTUM_DECAY = 4e-3


@dataclass
class StackedWeight:
    """One weight of all replicas, with its settings and the optimizer's state."""

    value: Tensor  # the stacked weight, (replica, …); changed in place
    # rate, decay, momentum, eps: settings of the replicas, broadcast against value.
    rate: Tensor
    decay: Tensor
    momentum: Tensor
    eps: Tensor
    coupled: bool  # whether weight decay is added to the gradient
    # The optimizer's state tensors, each of the shape of value.
    memory: list[Tensor] = field(default_factory=list)
    # The product of the momenta of all steps so far, for NAdam, whose momentum changes.
    product: float = 1.0
    decays: bool = field(init=False)  # whether any replica has weight decay

    def __post_init__(self) -> None:
        self.decays = bool(self.decay.any())

    def keep(self, which: Tensor) -> None:
        """Drop all replicas but these."""
        for name in ("value", "rate", "decay", "momentum", "eps"):
            setattr(self, name, getattr(self, name)[which])
        self.memory = [m[which] for m in self.memory]

    def state_tensors(self, count: int) -> list[Tensor]:
        """Return the state tensors, which start at zero."""
        if not self.memory:
            self.memory = [torch.zeros_like(self.value) for _ in range(count)]
        return self.memory

    def move(self, direction: Tensor, s: float) -> None:
        """Add −s·rate times a direction to the weight."""
        self.value.addcmul_(direction, self.rate, value=-s)

    def apply_decay(self, gradient: Tensor, s: float) -> Tensor:
        """Apply weight decay, to the weight or to the gradient; return the gradient."""
        if not self.decays:
            return gradient
        if self.coupled:
            return gradient + self.decay * self.value
        self.value.mul_(1 - s * self.rate * self.decay)
        return gradient


# (weight, its gradient, the schedule's factor, the number of the step, from 1)
Step = Callable[[StackedWeight, Tensor, float, int], None]


def step_of(optimizer: str) -> Step:
    """Return the step of an optimizer by its name."""
    return STEPS[one_of("optimizer", optimizer, STEPS)]


def _sgd(w: StackedWeight, gradient: Tensor, s: float, t: int) -> None:
    w.move(w.apply_decay(gradient, s), s)


def _momentum(w: StackedWeight, gradient: Tensor, s: float, t: int) -> None:
    (velocity,) = w.state_tensors(1)
    velocity.mul_(w.momentum).add_(w.apply_decay(gradient, s))
    w.move(velocity, s)


def _adam(w: StackedWeight, gradient: Tensor, s: float, t: int) -> None:
    first, second = w.state_tensors(2)
    gradient = w.apply_decay(gradient, s)
    b1, b2 = ADAM_BETAS
    first.lerp_(gradient, 1 - b1)
    second.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
    size = second.sqrt().div_((1 - b2**t) ** 0.5).add_(w.eps)
    w.move(first / size, s / (1 - b1**t))


def _adamax(w: StackedWeight, gradient: Tensor, s: float, t: int) -> None:
    first, largest = w.state_tensors(2)
    gradient = w.apply_decay(gradient, s)
    b1, b2 = ADAM_BETAS
    first.lerp_(gradient, 1 - b1)
    torch.maximum(largest.mul_(b2), gradient.abs().add_(w.eps), out=largest)
    w.move(first / largest, s / (1 - b1**t))


def _nadam(w: StackedWeight, gradient: Tensor, s: float, t: int) -> None:
    first, second = w.state_tensors(2)
    gradient = w.apply_decay(gradient, s)
    b1, b2 = ADAM_BETAS
    now, later = (b1 * (1 - 0.5 * 0.96 ** (u * NADAM_MOMENTUM_DECAY)) for u in (t, t + 1))
    w.product *= now
    first.lerp_(gradient, 1 - b1)
    second.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
    ahead = (1 - now) / (1 - w.product) * gradient + later / (1 - w.product * later) * first
    w.move(ahead.div_(second.sqrt().div_((1 - b2**t) ** 0.5).add_(w.eps)), s)


def _adagrad(w: StackedWeight, gradient: Tensor, s: float, t: int) -> None:
    (squares,) = w.state_tensors(1)
    gradient = w.apply_decay(gradient, s)
    squares.addcmul_(gradient, gradient)
    w.move(gradient / squares.sqrt().add_(w.eps), s)


def _rmsprop(w: StackedWeight, gradient: Tensor, s: float, t: int) -> None:
    (second,) = w.state_tensors(1)
    gradient = w.apply_decay(gradient, s)
    second.mul_(RMSPROP_BETA).addcmul_(gradient, gradient, value=1 - RMSPROP_BETA)
    w.move(gradient / second.sqrt().add_(w.eps), s)


def _signsgd(w: StackedWeight, gradient: Tensor, s: float, t: int) -> None:
    w.move(w.apply_decay(gradient, s).sign(), s)


def _lion(w: StackedWeight, gradient: Tensor, s: float, t: int) -> None:
    (average,) = w.state_tensors(1)
    gradient = w.apply_decay(gradient, s)
    b1, b2 = LION_BETAS
    w.move(average.lerp(gradient, 1 - b1).sign_(), s)
    average.lerp_(gradient, 1 - b2)


STEPS: dict[str, Step] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "adam": _adam,
    "adamw": _adam,
    "adamax": _adamax,
    "nadam": _nadam,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
    "signsgd": _signsgd,
    "lion": _lion,
}
