"""Checks of the arguments of a sweep before training."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from largen.callables import takes
from largen.errors import InvalidInput, instance_of, one_of
from largen.scalars import integer, integers, real, sequence
from largen.sweeps.cells import Cell, Protocol
from largen.sweeps.task import Task
from largen.text import shown
from largen.transfer.replicas import Replica
from largen.transfer.schemes import scheme_of
from largen.transfer.updates import update

# Options of ``scale`` that the sweep sets.
OWN = {"scheme", "optimizer", "depth"}


def protocol_of(
    make_model: Any,
    task: Any,
    base: Any,
    names: Any,
    optimizer: Any,
    schedule: Any,
    options: Mapping[str, Any],
    device: Any,
    apply: Any,
    identity: Any,
) -> Protocol:
    """Return the settings common to all cells; arguments as in :func:`largen.sweeps.sweep`.

    Raises
    ------
    InvalidInput
        If an argument is invalid.
    """
    instance_of("task", task, Task, "a largen.sweeps.Task")
    if not callable(make_model):
        raise InvalidInput(f"make_model: wanted a function, got {shown(make_model)}.")
    wanted = "a pair (width, depth) of integers"
    start = integers("base", sequence("base", base, wanted), 1)
    called = sequence("names", names, "the builder's two names, of width and depth")
    if len(start) != 2:
        raise InvalidInput(f"base: wanted {wanted}, got {shown(base)}.")
    if len(called) != 2 or not all(isinstance(n, str) for n in called) or called[0] == called[1]:
        raise InvalidInput(
            f"names: wanted the builder's two names, of width and depth, got {shown(names)}."
        )
    if schedule is not None:
        takes("schedule", schedule, ("step",))
    if apply is not None:
        takes("apply", apply, ("parameters", "inputs"))
    if identity is not None:
        instance_of("identity", identity, str, "a name")
    _check_options(options, in_jax=apply is not None)
    if apply is None:
        from largen.transfer.torch.process import check_device

        check_device(device)
    return Protocol(
        make_model, task, (start[0], start[1]), (called[0], called[1]), update(optimizer).name,
        schedule, dict(options), device, apply, identity,
    )  # fmt: skip


def cells_of(
    protocol: Protocol,
    lrs: Any,
    widths: Any,
    depths: Any,
    schemes: Any,
    seeds: Any,
    weight_decays: Any,
    momenta: Any,
) -> list[Cell]:
    """Return the cells of a sweep; arguments as in :func:`largen.sweeps.sweep`.

    Raises
    ------
    InvalidInput
        If an argument is invalid, or there is nothing to train.
    """
    if momenta is not None and protocol.optimizer != "momentum":
        raise InvalidInput(f"momenta: {protocol.optimizer} has none; wanted optimizer='momentum'.")
    others = list(
        product(
            range(integer("seeds", seeds, at_least=1)),
            _numbers("weight_decays", weight_decays),
            _numbers("momenta", (0.9,) if momenta is None else momenta),
        )
    )
    sizes = [
        sorted(set(integers(name, values, 1))) or [own]
        for name, values, own in zip(
            ("widths", "depths"), (widths, depths), protocol.base, strict=True
        )
    ]
    known = sequence("schemes", schemes, "a list of schemes")
    if not known:
        raise InvalidInput("schemes: is empty; wanted at least one.")
    for scheme in known:
        scheme_of(scheme)
    cells = []
    for scheme, width, depth in product(known, *sizes):
        replicas = tuple(
            Replica(lr, *other) for lr, other in product(_rates(lrs, width, depth), others)
        )
        if replicas:
            cells.append(Cell(scheme, width, depth, replicas))
    if not cells:
        raise InvalidInput("lrs: there is no rate at any shape.")
    return cells


def _numbers(name: str, values: Any) -> list[float]:
    found = [real(name, v, at_least=0) for v in sequence(name, values, "a list of numbers ≥ 0")]
    if not found:
        raise InvalidInput(f"{name}: is empty; wanted at least one number.")
    return found


def _rates(lrs: Any, width: int, depth: int) -> list[float]:
    wanted = "a list of rates ≥ 0, or a function of width and depth that returns one"
    if callable(lrs):
        takes("lrs", lrs, ("width", "depth"))
    own = lrs(width, depth) if callable(lrs) else lrs
    return [real("lrs", lr, at_least=0) for lr in sequence("lrs", own, wanted)]


def _check_options(options: Mapping[str, Any], *, in_jax: bool) -> None:
    """Check that ``scale`` has these options."""
    scale: Callable[..., Any]
    if in_jax:
        from largen.transfer.jax import scale
    else:
        from largen.transfer.torch import scale
    parameters: Sequence[inspect.Parameter] = [*inspect.signature(scale).parameters.values()]
    known = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - OWN
    for option in options:
        one_of("options", option, known)
