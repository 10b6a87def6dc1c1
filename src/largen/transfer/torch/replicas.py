"""Replicas of one PyTorch model trained together, in one batched computation.

Weights of R replicas are stacked, the model is mapped over the stack, and the gradient of the sum
of all losses is every replica's own gradient, since no replica knows of another. One operation on
a stack takes the place of R small ones, whose cost is mostly that of calling them. A weight is
moved as soon as its gradient is known, while both are in the processor's cache. Steps that are the
same operations each time are recorded and repeated (:mod:`largen.transfer.torch.recorded`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from largen.errors import InvalidInput
from largen.transfer.replicas import DIVERGED, LOOK_EVERY, Replica, TrainedReplicas, checked
from largen.transfer.torch.names import parameters
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.process import seeded
from largen.transfer.torch.recorded import Changed, Repeated
from largen.transfer.torch.stacked import StackedModel, agrees, stackable
from largen.transfer.torch.steps import StackedWeight, step_of

Batch = tuple[Any, Any]
Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of −log softmax(outputs)[target] over samples and positions."""
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "mse": nn.functional.mse_loss}


def _cross_entropies(outputs: Tensor, targets: Tensor) -> Tensor:
    count, samples, classes = len(outputs), len(targets), outputs.shape[-1]
    # Classes in front of samples: sums over a few neighbours in memory take ten times as long.
    in_front = outputs.reshape(count, -1, classes).mT.contiguous()
    each = nn.functional.cross_entropy(
        in_front, targets.flatten().expand(count, -1), reduction="none"
    )
    return each if each.shape[1] == samples else each.reshape(count, samples, -1).mean(2)


def _squares(outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.shape[1:] != targets.shape:
        raise InvalidInput(
            f"batches: wanted targets of the outputs' shape {tuple(outputs.shape[1:])}, "
            f"got {tuple(targets.shape)}."
        )
    return (outputs - targets).square().flatten(2).mean(2)


# The same of stacked outputs (replica, sample, …), for each replica and sample.
STACKED: dict[Loss, Loss] = {cross_entropy: _cross_entropies, nn.functional.mse_loss: _squares}


def train_replicas(
    plan: TorchPlan,
    replicas: Sequence[Replica],
    batches: Callable[[int], Batch],
    loss: Loss | str,
    *,
    steps: int,
    evaluation: Sequence[Batch],
    schedule: Callable[[int], float] | None = None,
    device: Any = None,
    report: Callable[[int, int], object] | None = None,
) -> TrainedReplicas:
    """Train replicas of the plan's target model together.

    Replica r moves weight w at η_r · (the plan's factor of w) · s(t). All of them see the same
    batches, so that they differ by what is set for them alone. A replica that has diverged is
    taken out of the stack.

    Outputs and the loss must be functions of weights, inputs and PyTorch's random numbers. The
    model's code then runs in some steps only, and others repeat what it did. A model that counts
    its calls or draws numbers otherwise is trained rightly, but slower; one that once in a while
    does something else for no reason that can be seen in it may not be.

    Parameters
    ----------
    plan
        With its builder; the model is called with a batch's inputs.
    replicas
        Their settings.
    batches
        Step t (from 0) → inputs and targets, tensors or NumPy arrays.
    loss
        ``"cross_entropy"``, ``"mse"``, or ``loss(outputs, targets)`` → a scalar, a mean over
        samples.
    steps
        How many.
    evaluation
        Batches of samples, on each of which the loss after training is measured.
    schedule
        s(t), such as :func:`warmup_cosine`; 1 if None.
    device
        Where; PyTorch's default if None.
    report
        Called with (step, steps).

    Returns
    -------
    TrainedReplicas
        Losses of every replica, in the order given.

    Raises
    ------
    InvalidInput
        If there are no replicas or steps, or the plan's optimizer has no batched step, or the
        schedule has absolute rates.

    Examples
    --------
    >>> from largen.transfer.torch import scale
    >>> def net(width):
    ...     return nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))
    >>> plan = scale(net, {"width": 8}, {"width": 32}, scheme="mup", optimizer="sgd")
    >>> x = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> batch = x, x[:, :1]
    >>> found = train_replicas(plan, [Replica(0.0), Replica(0.1)], lambda t: batch,
    ...                        "mse", steps=50, evaluation=[batch])
    >>> found.losses.shape, bool(found.final[1] < found.final[0])
    ((2, 50), True)
    """
    measure = checked(replicas, steps, loss, LOSSES, schedule)
    how = batches, measure, steps, evaluation, schedule, device, report
    try:
        return _train(Stack(plan, replicas, device), *how)
    except Changed:  # the model's operations depend on more than shapes
        return _train(Stack(plan, replicas, device, repeats=False), *how)


def _train(
    stack: Stack,
    batches: Callable[[int], Batch],
    measure: Loss,
    steps: int,
    evaluation: Sequence[Batch],
    schedule: Callable[[int], float] | None,
    device: Any,
    report: Callable[[int, int], object] | None,
) -> TrainedReplicas:
    count = len(stack.alive)
    losses = np.full((count, steps), np.inf)
    recorded: list[Tensor] = []
    first: Tensor | None = None
    for t in range(steps):
        s = 1.0 if schedule is None else float(schedule(t))
        value = stack.step(*tensors(batches(t), device), measure, s, t + 1, compare=t + 1 == steps)
        recorded.append(value)
        first = value if first is None else first
        if (t + 1) % LOOK_EVERY == 0 or t + 1 == steps:
            block = torch.stack(recorded, 1)
            losses[stack.alive, t + 1 - len(recorded) : t + 1] = block.cpu().numpy()
            recorded = []
            sound = (block <= DIVERGED * first[:, None]).all(1)
            if not sound.all():
                first = first[sound]
                stack.keep(sound)
            if report is not None:
                report(t + 1, steps)
            if not len(stack.alive):
                break
    each = np.full((count, sum(len(y) for _, y in evaluation)), np.inf)
    if len(stack.alive):
        each[stack.alive] = stack.evaluate([tensors(b, device) for b in evaluation], measure)
    return TrainedReplicas(*(np.where(np.isfinite(a), a, np.inf) for a in (losses, each)))


def tensors(batch: Batch, device: Any = None) -> tuple[Tensor, Tensor]:
    """Return inputs and targets as tensors."""
    x, y = (torch.as_tensor(part, device=device) for part in batch)
    return x, y


class Stack:
    """The weights of replicas that have not diverged, and the model that they are weights of.

    Parameters
    ----------
    plan, replicas, device
        As in :func:`train_replicas`.
    repeats
        Whether steps are recorded and repeated, where that can be done.

    Attributes
    ----------
    alive
        Numbers of these replicas.
    """

    def __init__(
        self, plan: TorchPlan, replicas: Sequence[Replica], device: Any, repeats: bool = True
    ):
        seeds = list(dict.fromkeys(replica.seed for replica in replicas))
        models = [plan.build(seed=seed, device=device) for seed in seeds]
        self.model = models[0]
        self.move = step_of(plan.optimizer)
        self.now: tuple[float, int] = (1.0, 1)
        self.alive = np.arange(len(replicas))
        # Rates by which losses are multiplied; None if they are left to the optimizer.
        self.rates: Tensor | None = None
        # Rates of matrices that the backward pass itself moves, relative to those.
        self.moving: dict[str, float] = {}
        weighs_losses = plan.optimizer == "sgd" and not any(r.weight_decay for r in replicas)
        which = torch.tensor([seeds.index(replica.seed) for replica in replicas])
        self.weights: dict[str, StackedWeight] = {}
        self.fixed: dict[str, Tensor] = {}
        tensors = [parameters(model) for model in models]
        for name, own in tensors[0].items():
            value = torch.stack([t[name].detach() for t in tensors])[which.to(own.device)]
            if own.requires_grad:
                settings = [Replica(1.0)] * len(replicas) if weighs_losses else replicas
                self.weights[name] = _stacked(plan, name, value, settings)
                if weighs_losses and self.rates is None:
                    self.rates = torch.tensor([r.lr for r in replicas]).to(value)
            else:
                self.fixed[name] = value
        buffers = [dict(model.named_buffers()) for model in models]
        for name, own in buffers[0].items():
            self.fixed[name] = torch.stack([b[name] for b in buffers])[which.to(own.device)]
        self.direct: StackedModel | None = None
        self.tried = not stackable(self.model)
        self.loss: Loss = nn.functional.mse_loss
        self.repeated = Repeated(self._computed, self._state, self._settings)
        self.repeated.given_up = not repeats

    def outputs(self, x: Any, values: dict[str, Tensor]) -> Tensor:
        """Return the outputs of all replicas, shape ``(replica, sample, …)``."""
        if self.direct is not None:
            return self.direct(x, {**self.fixed, **values}, self.moving)
        return self.mapped(x, values)

    def mapped(self, x: Any, values: dict[str, Tensor]) -> Tensor:
        """Return the outputs by ``torch.vmap``, which works for any model."""

        def one(state: dict[str, Tensor]) -> Tensor:
            return functional_call(self.model, state, (x,))

        return torch.vmap(one, randomness="different")({**self.fixed, **values})

    def step(
        self, x: Tensor, y: Tensor, loss: Loss, s: float, t: int, compare: bool = False
    ) -> Tensor:
        """Take step t, with rates times s, and return the losses before it, ``(replica,)``."""
        if not self.tried:
            self._try_directly(x)
        self.loss = loss
        if self.rates is None:
            self.now = s, t
            return self.repeated(x, y, compare=compare)
        self.now = 1.0, t  # the schedule is in the losses, too
        return self.repeated(x, y, self.rates * s, compare=compare)

    def _computed(self, x: Tensor, y: Tensor, *scales: Tensor) -> Tensor:
        """Return losses, ``(replica,)``, and move all weights by the gradient of their sum."""
        values = {
            name: weight.value.requires_grad_() if name in self.moving else self._moved(name)
            for name, weight in self.weights.items()
        }
        outputs = self.outputs(x, values)
        if self.loss in STACKED:
            each = STACKED[self.loss](outputs, y).mean(1)
        else:
            each = torch.vmap(self.loss, in_dims=(0, None))(outputs, y)
        (each * scales[0] if scales else each).sum().backward()
        return each.detach()

    def _moved(self, name: str) -> Tensor:
        """Return a weight that takes its step as soon as its gradient is known."""
        weight = self.weights[name]
        if not weight.value.requires_grad:

            def moved(value: Tensor) -> None:
                gradient, value.grad = value.grad, None
                self.repeated.call(self._move, name, gradient)

            weight.value.requires_grad_().register_post_accumulate_grad_hook(moved)
        return weight.value

    @torch.no_grad()
    def _move(self, name: str, gradient: Tensor) -> None:
        self.move(self.weights[name], gradient, *self.now)

    def _state(self) -> list[Tensor]:
        """The tensors that steps change where they stand, or leave as they are."""
        return [*self.values.values(), *self.fixed.values()]

    def _settings(self) -> list[object]:
        """The numbers and words that modules hold, on which a forward pass may depend."""
        models = [self.model] if self.direct is None else [self.model, self.direct.model]
        return [
            (name, value)
            for model in models
            for module in model.modules()
            for name, value in vars(module).items()
            if isinstance(value, (bool, int, float, str))
        ]

    @torch.no_grad()
    def _try_directly(self, x: Any) -> None:
        """See whether the model can be called on stacked activations, on random weights."""
        self.tried = True
        with seeded(0):
            # Two different replicas. Weights that start at zero would hide what is behind them.
            values = {
                name: torch.randn((2, *value.shape[1:])).to(value) / max(value.shape[-1], 1) ** 0.5
                for name, value in {**self.fixed, **self.values}.items()
            }
            direct = StackedModel(self.model)
            try:
                if agrees(direct(x, values), self.mapped(x, values)):
                    self.direct = direct
                    if self.rates is not None:
                        self.moving = {
                            name: float(self.weights[name].rate.flatten()[0])
                            for name, calls in direct.calls.items()
                            if calls == 1 and name in self.weights
                        }
            except (RuntimeError, IndexError, ValueError, TypeError, AttributeError):
                pass  # the model sees the axis in front

    @property
    def values(self) -> dict[str, Tensor]:
        """The stacked weights."""
        return {name: weight.value for name, weight in self.weights.items()}

    @torch.no_grad()
    def keep(self, sound: Tensor) -> None:
        """Drop all replicas but these."""
        for weight in self.weights.values():
            weight.keep(sound)
        self.fixed = {name: value[sound] for name, value in self.fixed.items()}
        self.rates = None if self.rates is None else self.rates[sound]
        self.alive = self.alive[sound.cpu().numpy()]
        self.repeated.forget()

    @torch.no_grad()
    def evaluate(self, batches: Sequence[tuple[Tensor, Tensor]], loss: Loss) -> np.ndarray:
        """Return the loss on each sample, ``(replica, sample)``."""

        def alone(output: Tensor, target: Tensor) -> Tensor:
            return loss(output[None], target[None])

        each = STACKED.get(loss) or torch.vmap(torch.vmap(alone), in_dims=(0, None))
        found = [each(self.outputs(x, self.values), y) for x, y in batches]
        return torch.cat(found, 1).double().cpu().numpy()


def _stacked(
    plan: TorchPlan, name: str, value: Tensor, replicas: Sequence[Replica]
) -> StackedWeight:
    settings = [plan.settings(plan[name], r.lr, r.weight_decay) for r in replicas]

    def column(numbers: Sequence[float]) -> Tensor:
        shape = (-1, *[1] * (value.ndim - 1))
        return torch.tensor(numbers, dtype=value.dtype, device=value.device).reshape(shape)

    return StackedWeight(
        _laid_out(value),
        column([float(s["lr"]) for s in settings]),
        column([s["weight_decay"] for s in settings]),
        column([r.momentum for r in replicas]),
        column([s.get("eps", 0.0) for s in settings]),
        plan.decay == "coupled",
    )


def _laid_out(value: Tensor) -> Tensor:
    """Return a copy of stacked matrices whose layout is that of their gradients.

    Linear layers multiply by the transposed weight, so that the gradient comes out transposed;
    steps on two tensors of unlike layout take five times as long.
    """
    if value.ndim == 3:
        return value.transpose(1, 2).contiguous().transpose(1, 2)
    return value.clone()
