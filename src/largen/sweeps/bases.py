"""The training of a base model with constants and a rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from largen.errors import InvalidInput, instance_of
from largen.scalars import integer, real
from largen.sweeps.arguments import check_protocol
from largen.sweeps.cells import Cell, Protocol
from largen.sweeps.task import Task
from largen.text import shown
from largen.transfer.constants import Constants, constants_of
from largen.transfer.replicas import Replica


@dataclass(frozen=True, kw_only=True)
class BaseTraining:
    """The training of a model of one shape, called with constants, a rate and a seed.

    Attributes
    ----------
    make_model
        ``make_model(**base)`` → a PyTorch module; for JAX see ``apply``.
    task
        The training task.
    base
        The shape, such as ``dict(width=32, depth=2)``.
    optimizer, schedule, device, apply
        As in :func:`largen.sweeps.sweep`.
    weight_decay, momentum
        λ₀, and the momentum of ``optimizer="momentum"``.
    options
        Options of ``scale``, such as ``hints``.
    scheme
        That of ``scale``, ``"mup"`` by default. It changes nothing at the base itself.

    Raises
    ------
    InvalidInput
        If an argument is invalid, or the base has sizes that are no integers ≥ 1.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from largen.transfer import Constants
    >>> def mlp(width):
    ...     return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))
    >>> x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    >>> task = Task(x, (x[:, 0] > 0).astype(int), steps=20)
    >>> train = BaseTraining(make_model=mlp, task=task, base={"width": 16}, optimizer="adam")
    >>> train(Constants(output=2), 2**-6, 0) < task.chance
    True
    """

    make_model: Callable[..., Any]
    task: Task
    base: Mapping[str, int]
    optimizer: str = "adamw"
    schedule: Callable[[int], float] | None = None
    device: Any = None
    apply: Callable[[Any, Any], Any] | None = None
    weight_decay: float = 0.0
    momentum: float = 0.9
    options: Mapping[str, Any] = field(default_factory=dict)
    scheme: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.base, Mapping) or not self.base:
            raise InvalidInput(
                f"base: wanted a dict such as dict(width=64, depth=4), got {shown(self.base)}."
            )
        for key, size in self.base.items():
            integer(f"base[{key!r}]", size, at_least=1)
        instance_of("options", self.options, Mapping, "a dict of options of scale")
        if self.scheme is not None and "scheme" in self.options:
            raise InvalidInput("scheme: is one of the options as well; pass one of the two.")
        Replica(1.0, 0, self.weight_decay, self.momentum)
        check_protocol(self._protocol)

    @property
    def _protocol(self) -> Protocol:
        """The settings of a sweep's cell; a plan of its own takes the place of its shapes."""
        options = {key: v for key, v in self.options.items() if key != "scheme"}
        return Protocol(
            self.make_model, self.task, (1, 1), optimizer=self.optimizer, schedule=self.schedule,
            options=options, device=self.device, apply=self.apply,
        )  # fmt: skip

    def plan(self, constants: Constants | None = None) -> Any:
        """Return the plan of the base with constants.

        Raises
        ------
        InvalidInput
            If the constants are of another kind, or do not fit the model.
        """
        # What the plan does at other sizes is not asked here.
        scheme = "mup" if self.scheme is None else self.scheme
        options = {"scheme": scheme, **self.options, "verify": False}
        options["constants"] = constants_of(constants)
        if self.apply is None:
            from largen.transfer.torch import scale
        else:
            from largen.transfer.jax import scale
        return scale(self.make_model, self.base, self.base, optimizer=self.optimizer, **options)

    def __call__(self, constants: Constants | None, lr: float, seed: int) -> float:
        """Return the loss after training; infinite if training diverges.

        Parameters
        ----------
        constants
            Factors of the base, or None.
        lr
            η₀.
        seed
            The seed of the initial weights.

        Raises
        ------
        InvalidInput
            If an argument is out of range, or constants do not fit the model.
        """
        replica = Replica(real("lr", lr, at_least=0), seed, self.weight_decay, self.momentum)
        plan = self.plan(constants)
        if any(m.where == "use" for m in plan.multipliers):
            raise InvalidInput(
                "constants: apply does not multiply the logits of a tied read-out by the plan's "
                "factor; leave out the output's, or train with a function of your own that does."
            )
        cell = Cell("mup", 1, 1, (replica,))
        return float(self._protocol.train(cell, plan=plan).final[0])
