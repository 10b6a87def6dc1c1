"""Checks that learning-rate schedulers keep the ratios of a plan's rates.

With η_g(t) = η₀·r_g·s(t) they do. Schedulers with absolute rates (the peak of ``OneCycleLR``, the
floor of a cosine) set the same rate for all groups, which discards the plan.
"""

from __future__ import annotations

from math import isclose
from typing import Any

from torch.optim import Optimizer

from largen.errors import InvalidInput
from largen.text import shown

# Attributes that hold absolute rates, by the scheduler's class, and the alternative.
_FLOORS = {
    "CosineAnnealingLR": "eta_min",
    "CosineAnnealingWarmRestarts": "eta_min",
    "ReduceLROnPlateau": "min_lrs",
}
_PEAKS = {"OneCycleLR": "max_lr", "CyclicLR": "max_lr", "SWALR": "swa_lr"}


def check_scheduler(scheduler: Any) -> Any:
    """Return the scheduler if it keeps the ratios of the groups' rates; raise otherwise.

    Parameters
    ----------
    scheduler
        A scheduler of an optimizer with a plan's groups; its component schedulers are checked,
        too.

    Raises
    ------
    InvalidInput
        If the scheduler sets absolute rates; the message names the alternative.

    Examples
    --------
    >>> import torch
    >>> groups = [{"params": [torch.zeros(2)], "lr": 0.1 * r, "lr_factor": r} for r in (1, 0.25)]
    >>> optimizer = torch.optim.SGD(groups)
    >>> check_scheduler(torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9))
    Traceback (most recent call last):
    ...
    largen.errors.InvalidInput: scheduler: OneCycleLR sets every group's rate ...
    """
    if isinstance(scheduler, type) or not hasattr(scheduler, "optimizer"):
        raise InvalidInput(f"scheduler: wanted one of an optimizer, got {shown(scheduler)}.")
    for inner in getattr(scheduler, "_schedulers", ()):
        check_scheduler(inner)
    factors = [float(each.get("lr_factor", 1.0)) for each in scheduler.optimizer.param_groups]
    if len(set(factors)) == 1:
        return scheduler
    name = type(scheduler).__name__
    if name in _PEAKS:
        _check_peaks(scheduler, _PEAKS[name], factors)
    if name in _FLOORS:
        _check_floors(scheduler, _FLOORS[name], factors)
    check_rates(scheduler.optimizer)
    return scheduler


def _check_peaks(scheduler: Any, peak: str, factors: list[float]) -> None:
    own = [float(each[peak]) for each in scheduler.optimizer.param_groups if peak in each]
    if not _in_ratio(own or [float(each) for each in getattr(scheduler, "max_lrs", [])], factors):
        raise InvalidInput(
            f"scheduler: {type(scheduler).__name__} sets every group's rate to one absolute value, "
            "which erases the plan. Pass the groups' own, "
            f"{peak}=[group['lr'] for group in optimizer.param_groups], or use "
            "LambdaLR(optimizer, largen.transfer.torch.warmup_cosine(steps, warmup=…))."
        )


def _check_floors(scheduler: Any, name: str, factors: list[float]) -> None:
    floor = getattr(scheduler, name, 0.0)
    floors = [float(f) for f in floor] if isinstance(floor, list) else [float(floor)] * len(factors)
    if any(floors) and not _in_ratio(floors, factors):
        raise InvalidInput(
            f"scheduler: {type(scheduler).__name__} with {name}={floor} ends every group at one "
            "absolute rate, which erases the plan. Set it to 0, or use LambdaLR(optimizer, "
            "largen.transfer.torch.warmup_cosine(steps, final=…)), whose floor is a fraction."
        )


def check_rates(optimizer: Optimizer) -> None:
    """Raise if the groups' rates are no longer in the plan's ratios.

    Register the check as a hook to run it during training:
    ``optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: check_rates(optimizer))``.

    Raises
    ------
    InvalidInput
        If a group's rate has been replaced.
    """
    if isinstance(optimizer, type) or not hasattr(optimizer, "param_groups"):
        raise InvalidInput(f"optimizer: wanted one of PyTorch's, got {shown(optimizer)}.")
    groups = [group for group in optimizer.param_groups if "lr_factor" in group]
    rates = [float(group["lr"]) for group in groups]
    if not _in_ratio(rates, [float(group["lr_factor"]) for group in groups]):
        numbers = [f"{rate:.3g}" for rate in rates]
        raise InvalidInput(
            f"scheduler: the groups' rates {numbers} are not in the plan's ratios any more; a "
            "scheduler has set absolute values. See largen.transfer.torch.check_scheduler."
        )


def _in_ratio(values: list[float], factors: list[float]) -> bool:
    if len(values) != len(factors):
        return False
    reference = [v / f for v, f in zip(values, factors, strict=True)]
    return all(isclose(r, reference[0], rel_tol=1e-5) for r in reference)
