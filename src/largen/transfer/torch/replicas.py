"""Replicas of one PyTorch model trained together, in one batched computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from largen.errors import InvalidInput
from largen.transfer.replicas import (
    DIVERGED,
    LOOK_EVERY,
    Replica,
    TrainedReplicas,
    batch_of,
    checked,
)
from largen.transfer.schedules import factor_at
from largen.transfer.torch.gradients import Loss, Replicated
from largen.transfer.torch.names import parameters
from largen.transfer.torch.optimizers import one_number
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.steps import StackedWeight, step_of

Batch = tuple[Any, Any]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of −log softmax(outputs)[target] over samples and positions."""
    _check_labels(outputs, targets)
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error over samples and outputs."""
    if outputs.shape != targets.shape:
        raise InvalidInput(
            f"batches: wanted targets of the outputs' shape {tuple(outputs.shape)}, "
            f"got {tuple(targets.shape)}."
        )
    return nn.functional.mse_loss(outputs, targets)


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "mse": mse}


def _check_labels(outputs: Tensor, targets: Tensor) -> None:
    if outputs.shape[:-1] != targets.shape:
        raise InvalidInput(
            f"batches: wanted targets of the shape {tuple(outputs.shape[:-1])}, one class for each "
            f"row of the outputs {tuple(outputs.shape)}, got {tuple(targets.shape)}."
        )
    classes = outputs.shape[-1]
    if targets.is_floating_point() or bool(((targets < 0) | (targets >= classes)).any()):
        raise InvalidInput(
            f"batches: wanted targets that are classes from 0 to {classes - 1}, since the model "
            f"has {classes} outputs; got {targets.dtype} from {targets.min()} to {targets.max()}."
        )


def _scalar(loss: Loss) -> Loss:
    """Return the user's loss with a check of its value."""

    def checked_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return one_number(loss(outputs, targets)).reshape(())

    return checked_loss


def _of_samples(loss: Loss) -> Loss:
    """Return a function of outputs and targets that returns the loss of each sample."""

    def cross_entropies(outputs: Tensor, targets: Tensor) -> Tensor:
        _check_labels(outputs, targets)
        each = nn.functional.cross_entropy(
            outputs.flatten(0, -2), targets.flatten(), reduction="none"
        )
        return each.reshape(len(outputs), -1).mean(1)

    def squares(outputs: Tensor, targets: Tensor) -> Tensor:
        mse(outputs, targets)
        return (outputs - targets).square().reshape(len(outputs), -1).mean(1)

    def by_itself(outputs: Tensor, targets: Tensor) -> Tensor:
        def alone(output: Tensor, target: Tensor) -> Tensor:
            return loss(output[None], target[None]).reshape(())

        try:
            return torch.vmap(alone)(outputs, targets)
        except Exception:  # an error of the loss itself is raised again below
            return torch.stack([alone(*pair) for pair in zip(outputs, targets, strict=True)])

    if loss is cross_entropy:
        return cross_entropies
    return squares if loss is mse else by_itself


def train_replicas(
    plan: TorchPlan,  # the plan, with its builder; the model is called with a batch's inputs
    replicas: Sequence[Replica],  # the replicas' settings
    # Step t (from 0) → inputs and targets, tensors or NumPy arrays; real numbers are converted to
    # the precision of the model's weights.
    batches: Callable[[int], Batch],
    # "cross_entropy", "mse", or loss(outputs, targets) → a scalar, a mean over samples.
    loss: Loss | str,
    *,
    steps: int,  # the number of training steps
    # Batches of samples, on each of which the loss after training is measured.
    evaluation: Sequence[Batch],
    schedule: Callable[[int], float] | None = None,  # s(t), such as warmup_cosine; 1 if None
    device: Any = None,  # the device of the training; PyTorch's default if None
    # Function called with (step, steps) to report progress.
    report: Callable[[int, int], object] | None = None,
) -> TrainedReplicas:
    """Train replicas of the plan's target model together, on the same batches; return all losses.

    Replica r trains weight w at the rate η_r · (the plan's factor of w) · s(t), and leaves the
    stack once it has diverged. Model and loss are called once a step by ``torch.vmap``; a model
    that it does not support, or with hooks on its backward pass, once for each replica, with the
    same result.
    """
    measure = checked(
        plan, TorchPlan, replicas, batches, steps, loss, LOSSES, schedule, evaluation, report
    )
    if measure not in LOSSES.values():
        measure = _scalar(measure)
    stack = Stack(plan, replicas, device)
    losses = np.full((len(replicas), steps), np.inf)
    found: list[Tensor] = []
    first: Tensor | None = None
    for t in range(steps):
        s = 1.0 if schedule is None else factor_at(schedule, t)
        value = stack.step(*stack.tensors(batch_of(batches, t)), measure, s, t + 1)
        found.append(value)
        first = value if first is None else first
        if (t + 1) % LOOK_EVERY == 0 or t + 1 == steps:
            block = torch.stack(found, 1)
            losses[stack.alive, t + 1 - len(found) : t + 1] = block.cpu().numpy()
            found = []
            sound = (block <= DIVERGED * first[:, None]).all(1)
            if not sound.all():
                first = first[sound]
                stack.keep(sound)
            if report is not None:
                report(t + 1, steps)
            if not len(stack.alive):
                break
    each = np.full((len(replicas), sum(len(y) for _, y in evaluation)), np.inf)
    if len(stack.alive):
        each[stack.alive] = stack.evaluate([stack.tensors(b) for b in evaluation], measure)
    return TrainedReplicas(*(np.where(np.isfinite(a), a, np.inf) for a in (losses, each)))


def tensors(batch: Batch, device: Any = None) -> tuple[Tensor, Tensor]:
    """Return inputs and targets as tensors."""
    x, y = (torch.as_tensor(part, device=device) for part in batch)
    return x, y


class Stack:
    """The stacked weights of the replicas that have not diverged, ``alive``, and their model."""

    def __init__(self, plan: TorchPlan, replicas: Sequence[Replica], device: Any):
        self.device = device
        self.move = step_of(plan.optimizer)
        self.alive = np.arange(len(replicas))
        seeds = list(dict.fromkeys(replica.seed for replica in replicas))
        models = [plan.build(seed=seed, device=device) for seed in seeds]
        which = torch.tensor([seeds.index(replica.seed) for replica in replicas])
        self.weights: dict[str, StackedWeight] = {}
        fixed: dict[str, Tensor] = {}
        states = [parameters(model) for model in models]
        for name, own in states[0].items():
            value = torch.stack([state[name].detach() for state in states])[which.to(own.device)]
            if own.requires_grad:
                self.weights[name] = _stack(plan, name, value, replicas)
            else:
                fixed[name] = value
        buffers = [dict(model.named_buffers()) for model in models]
        for name, own in buffers[0].items():
            fixed[name] = torch.stack([b[name] for b in buffers])[which.to(own.device)]
        self.gradients = Replicated(
            models[0],
            self.values,
            fixed,
            lambda: [plan.build(seed=replica.seed, device=device) for replica in replicas],
        )
        kinds = {p.dtype for p in states[0].values() if p.is_floating_point()}
        self.dtype = kinds.pop() if len(kinds) == 1 else None

    def tensors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, with real numbers in the weights' precision."""
        x, y = tensors(batch, self.device)
        x, y = (part.to(self.dtype) if part.is_floating_point() else part for part in (x, y))
        return x, y

    def step(self, x: Tensor, y: Tensor, loss: Loss, s: float, t: int) -> Tensor:
        """Take step t with rates times s; return the losses before the step, ``(replica,)``."""
        losses, gradients = self.gradients(x, y, loss)
        with torch.no_grad():
            for name, weight in self.weights.items():
                self.move(weight, gradients[name], s, t)
        return losses

    @property
    def values(self) -> dict[str, Tensor]:
        """The stacked weights."""
        return {name: weight.value for name, weight in self.weights.items()}

    @torch.no_grad()
    def keep(self, sound: Tensor) -> None:
        """Drop all replicas but these."""
        for weight in self.weights.values():
            weight.keep(sound)
        self.gradients.keep(sound, self.values)
        self.alive = self.alive[sound.cpu().numpy()]

    def evaluate(self, batches: Sequence[tuple[Tensor, Tensor]], loss: Loss) -> np.ndarray:
        """Return the loss on each sample in evaluation mode, ``(replica, sample)``."""
        each = _of_samples(loss)
        found = [self.gradients.evaluate(x, y, each) for x, y in batches]
        return torch.cat(found, 1).double().cpu().numpy()


def _stack(plan: TorchPlan, name: str, value: Tensor, replicas: Sequence[Replica]) -> StackedWeight:
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
    """Return stacked matrices in the memory layout of their gradients.

    Linear layers multiply by the transposed weight, so that the gradient is stored transposed;
    steps on two tensors of different layouts take five times as long.
    """
    if value.ndim == 3:
        return value.transpose(1, 2).contiguous().transpose(1, 2)
    return value.clone()
