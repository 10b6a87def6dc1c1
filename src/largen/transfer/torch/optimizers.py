"""PyTorch's optimizers by the names of the rule table, and a check that they fit their groups.

PyTorch's optimizers accept any groups and ignore unknown keys. Without the check, the groups of a
plan for one optimizer would train silently under another, at rates that are wrong for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from largen.errors import InvalidInput
from largen.text import shown
from largen.transfer.updates import REFUSED

# Functions that make each optimizer from groups.
OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": lambda groups: torch.optim.SGD(groups, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}
# Names in the table that a class of another name implements.
_STANDS_FOR = {
    "SGD": ("sgd", "momentum"),
    "Adam": ("adam", "adamw"),
    "AdamW": ("adamw", "adam"),
    "SparseAdam": ("adam", "adamw"),
}
_DECOUPLED = ("AdamW", "Muon")


def one_number(loss: Any) -> Tensor:
    """Check the value of the user's loss."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise InvalidInput(f"loss: wanted a tensor of one number, got {shown(loss)}.")
    return loss


def with_gradients(loss: Tensor) -> Tensor:
    """Check that a loss can be differentiated by the model's weights."""
    if not loss.requires_grad:
        raise InvalidInput(
            "loss: does not depend on a weight that is trained; leave out detach and torch.no_grad."
        )
    return loss


def training_step(
    model: nn.Module, optimizer: Any, loss: Callable[[nn.Module, Any], Tensor], batch: Any
) -> Tensor:
    """Make a step on a batch; return the loss before it."""
    optimizer.zero_grad()
    value = with_gradients(one_number(loss(model, batch)))
    value.backward()
    optimizer.step()
    return value


def check_optimizer(optimizer: Any) -> Any:
    """Return the optimizer if its groups were planned for it; raise otherwise.

    Parameters
    ----------
    optimizer
        One of PyTorch's optimizers, with a plan's groups. Of any other object, only the presence
        of ``step`` is checked.

    Raises
    ------
    InvalidInput
        If the argument is not an optimizer, none of its groups is of a plan, the plan is for
        another optimizer or another kind of weight decay, or Muon adjusts its rates in a way for
        which the plan does not compensate.

    Examples
    --------
    >>> weight = torch.zeros(2, requires_grad=True)
    >>> groups = [{"params": [weight], "lr": 0.1, "moved_by": "adamw", "decay": "decoupled"}]
    >>> check_optimizer(torch.optim.SGD(groups))
    Traceback (most recent call last):
    ...
    largen.errors.InvalidInput: optimizer: SGD has groups of a plan for 'adamw'; ...
    """
    name = type(optimizer).__name__
    if isinstance(optimizer, type) or not callable(getattr(optimizer, "step", None)):
        raise InvalidInput(
            f"optimizer: wanted one made from a plan's groups, such as torch.optim.AdamW(groups), "
            f"got {shown(optimizer)}."
        )
    if not type(optimizer).__module__.startswith("torch.optim"):
        return optimizer
    if not any("moved_by" in group for group in optimizer.param_groups):
        raise InvalidInput(
            f"optimizer: none of the groups of {name} is of a plan, and one rate for all weights "
            f"is not scaled; make it from torch.optim.{name}(plan.param_groups(model, lr=…))."
        )
    for group in optimizer.param_groups:
        _check_group(name, group)
    return optimizer


def _check_group(name: str, group: Mapping[str, Any]) -> None:
    """Refuse a group that was planned for another optimizer than the one of this name."""
    stands_for = _STANDS_FOR.get(name, (name.lower(),))
    planned, decay = group.get("moved_by"), group.get("decay")
    if planned is not None and planned not in stands_for:
        why = REFUSED.get(name.lower(), f"plan for {stands_for[0]!r}")
        raise InvalidInput(f"optimizer: {name} has groups of a plan for {planned!r}; {why}.")
    decoupled = name in _DECOUPLED or bool(group.get("decoupled_weight_decay"))
    if group.get("weight_decay") and decay is not None and decoupled == (decay == "coupled"):
        raise InvalidInput(
            f"optimizer: the plan is for {decay} weight decay, and that of {name} is "
            f"{'decoupled' if decoupled else 'coupled'}; pass decay=… to the plan."
        )
    adjusted = group.get("adjust_lr_fn")
    if planned == "muon" and adjusted not in (None, "original", group.get("made_up_for")):
        raise InvalidInput(
            f"optimizer: with adjust_lr_fn={adjusted!r}, Muon's step grows by another power of "
            "the width than the plan's. Pass it to param_groups(…, moved_by='muon', "
            f"adjust_lr_fn={adjusted!r}), which makes up for it, or take Muon's own."
        )
