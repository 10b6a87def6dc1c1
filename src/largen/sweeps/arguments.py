"""Checks of the arguments of a sweep before training."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from largen.callables import takes
from largen.errors import InvalidInput, instance_of, one_of
from largen.sweeps.cells import Protocol
from largen.sweeps.task import Task
from largen.text import shown
from largen.transfer.updates import update

# Options of ``scale`` that the sweep sets.
OWN = {"scheme", "optimizer", "depth"}


def check_protocol(protocol: Protocol, momenta: Any = None) -> Protocol:
    """Return a sweep's settings with the optimizer's usual name; only one has momenta."""
    instance_of("task", protocol.task, Task, "a largen.sweeps.Task")
    if not callable(protocol.make_model):
        raise InvalidInput(f"make_model: wanted a function, got {shown(protocol.make_model)}.")
    if protocol.schedule is not None:
        takes("schedule", protocol.schedule, ("step",))
    if protocol.apply is not None:
        takes("apply", protocol.apply, ("parameters", "inputs"))
    if protocol.name is not None:
        instance_of("identity", protocol.name, str, "a name")
    _check_options(protocol.options, in_jax=protocol.apply is not None)
    if protocol.apply is None:
        from largen.transfer.torch.process import check_device

        check_device(protocol.device)
    optimizer = update(protocol.optimizer).name
    if momenta is not None and optimizer != "momentum":
        raise InvalidInput(f"momenta: {optimizer} has none; wanted optimizer='momentum'.")
    return replace(protocol, optimizer=optimizer)


def _check_options(options: Mapping[str, Any], *, in_jax: bool) -> None:
    scale: Callable[..., Any]
    if in_jax:
        from largen.transfer.jax import scale
    else:
        from largen.transfer.torch import scale
    parameters: Sequence[inspect.Parameter] = [*inspect.signature(scale).parameters.values()]
    known = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - OWN
    for option in options:
        one_of("options", option, known)
