"""Why a plan loses to the standard scheme: the known reasons, each as an experiment on the model.

Every experiment trains the target model with one change of the plan's settings, at several rates,
and compares the loss at its best rate with that of the plan at the plan's best rate, over the same
seeds and batches.

=====================  ==========================================================================
change                 the reason for it
=====================  ==========================================================================
no weight decay        λ = 0: decay too strong for this training
one weight decay       the same λ for all weights, as most implementations have it, with which
                       decay fades as 1/n in hidden weights (Wang and Aitchison 2024)
embeddings × n^(−½)    Hayou and Liu 2025 (arXiv 2506.15025): with large vocabularies the rate of
                       embeddings falls as n^(−½)
hidden × n^½           Everett et al. 2024 (arXiv 2407.05872): updates of hidden weights that are
                       not aligned with their inputs allow rates larger by n^½
ε = 0                  Everett et al. 2024: gradients smaller than ε
warm-up                a rate that rises over the first tenth of the training; without warm-up if
                       the training has one
=====================  ==========================================================================

Where a rate is changed, decoupled decay keeps ηλ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from largen.callables import takes
from largen.errors import InvalidInput, instance_of
from largen.scalars import flag, integer, real, sequence
from largen.text import shown
from largen.transfer.diagnoses import Diagnosis, best_rate, change
from largen.transfer.horizon import Budget
from largen.transfer.plan_entries import ScaledWeight
from largen.transfer.roles import family
from largen.transfer.torch.names import parameters
from largen.transfer.torch.optimizers import OPTIMIZERS, training_step
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.process import fixed_seed
from largen.transfer.torch.scaling import scale

TINY = 1e-30  # an ε without effect
RISE = 0.1  # the fraction of the training over which a warm-up rises
Settings = dict[str, Any]
Altered = Callable[[ScaledWeight, Settings], Settings]


def diagnose(
    plan: TorchPlan,
    batches: Sequence[Any],
    loss: Callable[[nn.Module, Any], Tensor],
    *,
    lrs: Sequence[float] | np.ndarray,
    steps: int = 100,
    seeds: int = 4,
    weight_decay: float | None = None,
    eps: float | None = None,
    warm_up: bool = False,
) -> Diagnosis:
    """Train the target with single changes of its plan; return which of them lowers the loss.

    The loss is the mean over the last tenth of the steps. Costs the training of 7 or 8 models at
    every rate and seed.

    Parameters
    ----------
    plan
        A plan with its builder.
    batches
        Arguments of ``loss``; step t uses the t-th, cyclically.
    loss
        ``loss(model, batch)`` → a scalar.
    lrs
        Rates η₀ to be tried for the plan and for every change.
    steps, seeds
        The number of steps, and of networks, at least 2.
    weight_decay, eps
        λ₀ and ε₀ as in :meth:`TorchPlan.param_groups`.
    warm_up
        Whether the user's training has a warm-up.

    Raises
    ------
    InvalidInput
        If the plan has no builder or is for the standard scheme, or PyTorch has no optimizer of its
        kind.

    Examples
    --------
    >>> import torch
    >>> def mlp(width):
    ...     return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))
    >>> plan = scale(mlp, {"width": 8}, {"width": 32}, scheme="mup", optimizer="adam")
    >>> x = torch.ones(4, 4)
    >>> result = diagnose(plan, [x], lambda model, x: (model(x) - 1).square().mean(),
    ...                  lrs=[1e-3, 1e-2], steps=20, seeds=2)
    >>> [row.name for row in result.changes]
    ['ε = 0', 'warm-up']
    """
    instance_of("plan", plan, TorchPlan, "a TorchPlan")
    make = OPTIMIZERS.get(plan.optimizer)
    if make is None:
        raise InvalidInput(f"plan: PyTorch has no single optimizer {plan.optimizer!r}.")
    if plan.make_model is None:
        raise InvalidInput("plan: it was read from JSON; pass from_json(…, make_model).")
    if plan.scheme.startswith("standard"):
        raise InvalidInput("plan: wanted one that is not for the standard scheme.")
    if not sequence("batches", batches, "a list of batches"):
        raise InvalidInput("batches: is empty; wanted at least one.")
    takes("loss", loss, ("model", "batch"))
    rates = [real("lrs", lr, above=0) for lr in sequence("lrs", lrs, "a list of rates")]
    if not rates:
        raise InvalidInput(f"lrs: wanted at least one rate, got {shown(lrs)}.")
    integer("steps", steps, at_least=1)
    integer("seeds", seeds, at_least=2)
    flag("warm_up", warm_up)

    def losses(own: TorchPlan, alter: Altered, rises: bool) -> dict[float, np.ndarray]:
        found = {}
        for lr in rates:
            one = []
            for seed in range(seeds):
                model = own.build(seed=seed)
                groups = []
                for name, tensor in parameters(model).items():
                    if tensor.requires_grad:
                        settings = own.settings(own[name], lr, weight_decay, eps)
                        groups.append({"params": [tensor], **alter(own[name], settings)})
                with fixed_seed(seed, gpus=True):
                    one.append(_final_loss(model, make(groups), batches, loss, steps, rises))
            found[lr] = np.array(one)
        return found

    lr, own = best_rate(losses(plan, _keep, warm_up))
    experiments = list(_experiments(plan, weight_decay))
    count = len(experiments) + 2
    standard = scale(
        plan.make_model, plan.base, plan.target, scheme="standard", optimizer=plan.optimizer,
        decay=plan.decay, budget=Budget(batch=plan.batch_ratio, samples=plan.horizon_ratio),
    )  # fmt: skip
    rows = [
        change(name, source, losses(plan, alter, warm_up), own, count)
        for name, source, alter in experiments
    ]
    other = losses(plan, _keep, not warm_up)
    name = "no warm-up" if warm_up else "warm-up"
    rows.append(change(name, "over a tenth of the training", other, own, count))
    return Diagnosis(
        scheme=plan.scheme,
        lr=lr,
        loss=float(own.mean()),
        standard=change("standard scheme", "", losses(standard, _keep, warm_up), own, count),
        changes=tuple(rows),
        title=f"{plan.optimizer}, {steps} steps, {seeds} seeds",
    )


def _experiments(plan: TorchPlan, weight_decay: float | None) -> Iterator[tuple[str, str, Altered]]:
    """Yield name, source and function of every change that makes a difference for the plan."""
    given = plan.update.weight_decay if weight_decay is None else weight_decay
    if given:
        yield "no weight decay", "", lambda weight, own: {**own, "weight_decay": 0.0}
        yield (
            "one weight decay", "Wang and Aitchison 2024",
            lambda weight, own: {**own, "weight_decay": given},
        )  # fmt: skip
    if any(weight.role == "embedding" and weight.n != 1 for weight in plan.weights):
        yield "embeddings × n^(−½)", "Hayou and Liu 2025", _scale_rates(plan, "embedding", -0.5)
    if any(family(weight.role) == "hidden" and weight.n != 1 for weight in plan.weights):
        yield "hidden × n^½", "Everett et al. 2024", _scale_rates(plan, "hidden", 0.5)
    if plan.update.eps is not None and plan.update.kind == "normalised":
        yield "ε = 0", "Everett et al. 2024", lambda weight, own: {**own, "eps": TINY}


def _keep(weight: ScaledWeight, settings: Settings) -> Settings:
    return settings


def _scale_rates(plan: TorchPlan, which: str, power: float) -> Altered:
    """Return a function that multiplies the rates of a role, or of a family, by n^power."""

    def alter(weight: ScaledWeight, settings: Settings) -> Settings:
        if which not in (weight.role, family(weight.role)):
            return settings
        factor = weight.n**power
        decay = settings["weight_decay"] / (1.0 if plan.decay == "coupled" else factor)
        return {**settings, "lr": settings["lr"] * factor, "weight_decay": decay}

    return alter


def _final_loss(
    model: nn.Module,
    optimizer: Any,
    batches: Sequence[Any],
    loss: Callable[[nn.Module, Any], Tensor],
    steps: int,
    rises: bool,
) -> float:
    """Train; return the mean loss over the last tenth of the steps, infinite if it diverges."""
    rates = [group["lr"] for group in optimizer.param_groups]
    found = []
    for t in range(steps):
        factor = min(1.0, (t + 1) / max(1.0, RISE * steps)) if rises else 1.0
        for group, lr in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = lr * factor
        value = training_step(model, optimizer, loss, batches[t % len(batches)])
        found.append(value.item())
    last = float(np.mean(found[-max(1, steps // 10) :]))
    return last if np.isfinite(found).all() else float("inf")
