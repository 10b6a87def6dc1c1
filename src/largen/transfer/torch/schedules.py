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
    groups = scheduler.optimizer.param_groups
    factors = [float(group.get("lr_factor", 1.0)) for group in groups]
    if len(set(factors)) == 1:
        return scheduler
    name = type(scheduler).__name__
    if name in _PEAKS:
        own = [float(group[_PEAKS[name]]) for group in groups if _PEAKS[name] in group]
        own = own or [float(peak) for peak in getattr(scheduler, "max_lrs", [])]
        if not _in_ratio(own, factors):
            raise InvalidInput(
                f"scheduler: {name} sets every group's rate to one absolute value, which erases "
                "the plan. Pass the groups' own, "
                f"{_PEAKS[name]}=[group['lr'] for group in optimizer.param_groups], or use "
                "LambdaLR(optimizer, largen.transfer.torch.warmup_cosine(steps, warmup=…))."
            )
    floor = getattr(scheduler, _FLOORS[name], 0.0) if name in _FLOORS else 0.0
    floors = [float(f) for f in floor] if isinstance(floor, list) else [float(floor)] * len(groups)
    if any(floors) and not _in_ratio(floors, factors):
        raise InvalidInput(
            f"scheduler: {name} with {_FLOORS[name]}={floor} ends every group at one absolute "
            "rate, which erases the plan. Set it to 0, or use LambdaLR(optimizer, "
            "largen.transfer.torch.warmup_cosine(steps, final=…)), whose floor is a fraction."
        )
    check_rates(scheduler.optimizer)
    return scheduler


def check_rates(optimizer: Optimizer) -> None:
    """Raise if the groups' rates are no longer in the plan's ratios.

    Register the check as a hook to run it during training:
    ``optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: check_rates(optimizer))``.
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
