"""Cells of a sweep: all replicas of one shape and scheme, which are trained together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from largen.errors import InvalidInput
from largen.identity import identity
from largen.sweeps.task import Task
from largen.transfer.hints import hints_of
from largen.transfer.replicas import Replica, TrainedReplicas


@dataclass(frozen=True)
class Cell:
    """All replicas of one shape and scheme."""

    scheme: Any  # the name of the scheme, or a parameterization
    # width, depth: width and depth of the target network.
    width: int
    depth: int
    replicas: tuple[Replica, ...]  # settings of the networks trained together

    @property
    def cost(self) -> float:
        """Computing time of the cell, in arbitrary units."""
        return len(self.replicas) * (self.width + 64.0) * self.width * (self.depth + 2)


@dataclass(frozen=True)
class Protocol:
    """The settings common to all cells of a sweep."""

    make_model: Callable[..., Any]  # make_model(width=…, depth=…), with the keywords of names
    task: Task  # the training task
    base: tuple[int, int]  # width and depth at which schemes agree
    # The builder's names for width and depth, or for the width alone.
    names: tuple[str, ...] = ("width", "depth")
    optimizer: str = "sgd"  # as in transfer.torch.scale
    schedule: Callable[[int], float] | None = None  # s(t), or None
    options: Mapping[str, Any] = field(default_factory=dict)  # passed on to scale
    device: Any = None  # the device on which to train
    # For JAX, apply(parameters, inputs); make_model then is init(key, …).
    apply: Callable[[Any, Any], Any] | None = None
    # The user's name for the model, apply and the options, if their code does not identify them.
    name: str | None = None

    @cached_property
    def digest(self) -> dict[str, str]:
        """Texts that identify the task, the model and the options."""
        parts: dict[str, Any] = {
            "make_model": self.make_model, "apply": self.apply, "options": dict(self.options),
        }  # fmt: skip
        told = {"name": self.name} if self.name is not None else {
            name: _told(name, part) for name, part in parts.items()
        }  # fmt: skip
        return {**told, "task": self.task.digest(), "task's class": _told("task", type(self.task))}

    def plan(self, cell: Cell, verify: Any = False) -> Any:
        """Return the plan of a cell, not verified by default: each cell is a measurement."""
        options = {**self.options, "verify": verify}
        depth = {"depth": self.names[1]} if len(self.names) > 1 else {}
        options["hints"] = replace(hints_of(options.get("hints")), **depth)
        sizes = [
            dict(zip(self.names, pair, strict=False))
            for pair in (self.base, (cell.width, cell.depth))
        ]
        common = {"scheme": cell.scheme, "optimizer": self.optimizer, **options}
        if self.apply is not None:
            from largen.transfer import jax as in_jax

            return in_jax.scale(self.make_model, *sizes, **common)
        from largen.transfer import torch as in_torch
        from largen.transfer.torch.replicas import tensors

        try:
            return in_torch.scale(self.make_model, *sizes, **common)
        except InvalidInput as error:
            # Inputs that are generated do not suit every model: one of fixed context, for example.
            if "example" in options or not str(error).startswith("example:"):
                raise
        inputs, _ = tensors(self.task.batch(0))
        inputs = inputs.float() if inputs.is_floating_point() else inputs
        return in_torch.scale(self.make_model, *sizes, **common, example=inputs)

    def train(
        self, cell: Cell, report: Callable[[int, int], object] | None = None, plan: Any = None
    ) -> TrainedReplicas:
        """Train the replicas of a cell, by its plan if that is given."""
        plan = self.plan(cell) if plan is None else plan
        common: dict[str, Any] = {
            "steps": self.task.steps,
            "evaluation": self.task.evaluation,
            "schedule": self.schedule,
            "report": report,
        }
        if self.apply is None:
            from largen.transfer.torch.replicas import train_replicas

            return train_replicas(
                plan, cell.replicas, self.task.batch, self.task.loss, device=self.device, **common
            )
        from largen.transfer.jax import replicas

        return replicas.train_replicas(
            plan, self.apply, cell.replicas, self.task.batch, self.task.loss, **common
        )

    def settings(self, cell: Cell) -> dict[str, Any]:
        """Return all settings on which a cell's result depends."""
        steps = range(self.task.steps)
        return {
            "kept": 3,  # version of the stored arrays: see arrays_of
            **self.digest,
            "base": list(self.base),
            "names": list(self.names),
            "optimizer": self.optimizer,
            "schedule": None if self.schedule is None else [float(self.schedule(t)) for t in steps],
            "scheme": _told("schemes", cell.scheme),
            "shape": [cell.width, cell.depth],
            "replicas": [asdict(replica) for replica in cell.replicas],
        }


def arrays_of(trained: TrainedReplicas, task: Task) -> dict[str, np.ndarray]:
    """Return the arrays of a cell to store."""
    return {
        "losses": trained.losses.astype(np.float32),
        "final": trained.final,
        "margin_error": task.margin_error(trained.each),
    }


def _told(name: str, value: Any) -> str:
    return identity(
        name,
        value,
        "To keep cells in a folder, pass identity='…', a name that you change whenever the model, "
        "apply or an option of scale is another one",
    )
