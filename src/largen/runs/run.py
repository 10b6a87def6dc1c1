"""A run: a network in a parameterization, trained on data; the input of every theory and of the
training of finite networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer, layers_of, output_positions, weight_sites
from largen.arrays import numbers
from largen.errors import InvalidInput, NoRule, NoTheory, instance_of
from largen.parameterizations import Optimizer, Parameterization, Stepped
from largen.programs import Program, Repeat, check_independent, dense_chain, program_of
from largen.runs.dataset import Dataset
from largen.runs.losses import Loss, as_loss, check_loss, check_targets
from largen.runs.records import pairs_of
from largen.runs.time_pairs import all_pairs
from largen.scalars import integer, integers
from largen.text import shown

MOST_STEPS = 10**7


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A network, its parameterization, data and training, without a width.

    Parameters
    ----------
    net
        The architecture, such as :func:`largen.mlp`.
    param
        The parameterization, such as :func:`largen.mean_field`.
    data
        A :class:`largen.Dataset`.
    loss
        ``"mse"``, ``"logistic"``, ``"cross_entropy"``, or a function ℓ(f, y) of one sample. For
        networks with an output at each position (those that end in a ``Dense()`` without pooling)
        it is the loss of a position, and that of a sample is the mean over its positions.
    optimizer
        :func:`largen.gd`, :func:`largen.sgd`, :func:`largen.optimizers.langevin`,
        :func:`largen.optimizers.feedback_alignment`, :func:`largen.optimizers.hebbian`,
        :func:`largen.adam`, :func:`largen.optimizers.rmsprop`, or :func:`largen.gradient_flow`.
    steps
        Number of steps, for optimizers other than gradient flow. Step 0 is the initialisation, so
        that a trajectory has ``steps + 1`` time indices.
    times
        For gradient flow, the increasing times t > 0 at which it is recorded, after t = 0.

    Raises
    ------
    InvalidInput
        If the targets do not fit the loss, ``steps`` or ``times`` do not fit the optimizer, a
        batch is larger than the training set, or a schedule is shorter than the run.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), data, optimizer=lg.gd(lr=0.5), steps=10)
    >>> print(run)
    ntk, GradientDescent(lr=0.5), 10 steps, mse, 3 training and 0 test samples
    """

    net: Layer
    param: Parameterization
    data: Dataset
    loss: Loss
    optimizer: Optimizer
    steps: int | None
    recorded: tuple[float, ...]

    def __init__(
        self,
        net: Layer,
        param: Parameterization,
        data: Dataset,
        loss: str | Loss | Callable[[Any, Any], Any] = "mse",
        optimizer: Optimizer | None = None,
        steps: int | None = None,
        times: ArrayLike | Sequence[float] | None = None,
    ):
        for name, value, kind in (
            ("net", net, Layer),
            ("param", param, Parameterization),
            ("data", data, Dataset),
        ):
            instance_of(name, value, kind, f"a {kind.__name__}")
        if not isinstance(optimizer, Optimizer):
            raise InvalidInput(
                "optimizer: wanted e.g. lg.gd(lr=0.1) or lg.gradient_flow(), got "
                f"{shown(optimizer)}."
            )
        weight_sites(net, data.inputs)
        for layer in layers_of(net):
            if layer.random:
                raise InvalidInput(
                    f"net: {layer!r} draws masks at every step, which training here does not; "
                    "leave it out. lg.kernel has its kernels."
                )
        if optimizer.of_dense_layers:
            _check_dense(net, program_of(net, data.inputs), optimizer.of_dense_layers)
        spec = as_loss(loss).of_one_output()
        positions = output_positions(net, data.inputs)
        if positions is not None:
            spec = spec.over_positions()
        _check_positions(positions, data.y_train)
        check_targets(spec, "y_train", data.y_train)
        if len(data.y_test):
            check_targets(spec, "y_test", data.y_test)
        steps, recorded = _length(optimizer, steps, times)
        parts = (net, param, data.renewed(), spec, optimizer, steps, recorded)
        for name, value in zip(self.__dataclass_fields__, parts, strict=True):
            object.__setattr__(self, name, value)
        check_loss(spec, data.y_train, self.output_shape)
        for known in ("rates", "batches"):  # which refuse here what does not fit the data
            getattr(self, known)

    def with_changes(self, **arguments: Any) -> Run:
        """Return the run with other values of some arguments, which are checked.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
        >>> run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), data, optimizer=lg.gd(lr=0.5), steps=10)
        >>> run.with_changes(steps=20, param=lg.mup()).steps
        20
        """
        fields_now: dict[str, Any] = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name != "recorded"
        }
        return Run(**{**fields_now, "times": self.recorded or None, **arguments})

    @cached_property
    def program(self) -> Program:
        """The operations of the network, which theories read."""
        return program_of(self.net, self.data.inputs)

    @cached_property
    def times(self) -> np.ndarray:
        """Time at each time index; for optimizers with steps the sum of preceding rates."""
        if self.steps is None:
            return np.array([0.0, *self.recorded])
        if self._stepped.schedule is None:
            return self.optimizer.lr * np.arange(self.steps + 1)
        return np.concatenate([[0.0], np.cumsum(self.rates)])

    @cached_property
    def rates(self) -> np.ndarray:
        """η₀ of each step, by the optimizer's schedule, ``(step,)``; empty for gradient flow."""
        return np.zeros(0) if self.steps is None else self._stepped.rates(self.steps)

    def rates_at(self, time_indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return η₀ of the steps from some times; at the last one that of the step before it."""
        if not len(self.rates):
            return np.full(len(time_indices), self.optimizer.lr)
        return self.rates[np.minimum(np.array(time_indices, int), len(self.rates) - 1)]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of a sample's output: ``()``, ``(output,)`` or ``(position[, output])``."""
        data = self.data
        if self.loss.targets == "class":
            classes = int(max(data.y_train.max(), data.y_test.max(initial=0))) + 1
            return (*data.y_train.shape[1:], classes)
        return data.y_train.shape[1:]

    @property
    def output_axes(self) -> tuple[str, ...]:
        """The names of the axes of a sample's output."""
        names = ("output",) if self.positions is None else ("position", "output")
        return names[: len(self.output_shape)]

    @cached_property
    def positions(self) -> int | None:
        """The number of positions that have an output each; None if a sample has one output."""
        return output_positions(self.net, self.data.inputs)

    @property
    def outputs(self) -> int | None:
        """The number of outputs, of each position if there are positions; None for a scalar."""
        shape = self.output_shape[0 if self.positions is None else 1 :]
        return shape[0] if shape else None

    def check_one_output(self, reader: str) -> None:
        """Check that outputs have no positions.

        Raises
        ------
        NoTheory
            If they do; the message names the ``reader``, which requires a single output.
        """
        if self.positions is not None:
            raise NoTheory(
                f"{reader}: an output at each of {self.positions} positions is not implemented "
                "here; it is in lg.train and in lg.theories.AttentionMeanField. For one output of "
                "a sample put a GlobalAvgPool() before the last Dense()."
            )

    @cached_property
    def batches(self) -> np.ndarray | None:
        """The samples of each step, shape ``(step, sample)``; None for the full batch."""
        if self.steps is None:
            return None
        return self._stepped.batches(self.steps, len(self.data.x_train))

    @property
    def _stepped(self) -> Stepped:
        return cast(Stepped, self.optimizer)

    def time_indices(self, name: str, wanted: Any) -> tuple[int, ...]:
        """Return the time indices of an argument in ascending order, without repetition.

        Parameters
        ----------
        name
            The name of the argument, used in the error message.
        wanted
            Time indices 0 … ``len(times) − 1``; None for the first and the last.

        Raises
        ------
        InvalidInput
            If it is not a list of integers, or an index exceeds the trajectory.
        """
        last = len(self.times) - 1
        if wanted is None:
            return (0, last)
        indices = set(integers(name, wanted, at_least=0))
        if max(indices, default=0) > last:
            raise InvalidInput(
                f"{name}: wanted time indices within 0 … {last}, got {shown(wanted)}."
            )
        return tuple(sorted(indices))

    def pairs(self, name: str, wanted: Any) -> np.ndarray:
        """Return the pairs of time indices of an argument, ``(pair, 2)``, without repetition.

        Parameters
        ----------
        name
            The name of the argument, used in the error message.
        wanted
            Pairs of time indices, in any order, which is kept; "all" for those of all times, the
            later first.

        Raises
        ------
        InvalidInput
            If it is not a list of pairs, or an index exceeds the trajectory.
        """
        pairs = pairs_of(name, wanted)
        if pairs == "all":
            return all_pairs(np.arange(len(self.times)))
        self.time_indices(name, [index for pair in pairs for index in pair])
        return np.array(pairs, dtype=int).reshape(-1, 2)

    def __repr__(self) -> str:
        length = f"{self.steps} steps" if self.steps else f"{len(self.recorded)} times"
        return (
            f"{self.param}, {self.optimizer}, {length}, {self.loss.name}, "
            f"{len(self.data.x_train)} training and {len(self.data.x_test)} test samples"
        )


def _check_dense(net: Layer, program: Program, what: str) -> None:
    """Check that layers are dense and follow one another, as a rule of learning requires."""
    try:
        dense_chain(program, what)
        check_independent(program, what)
        apart = not any(isinstance(operation, Repeat) for operation in program.operations)
    except (NoRule, NoTheory):
        apart = False
    if not apart:
        raise InvalidInput(
            f"optimizer: {what} takes dense layers and activations, written one by one, without "
            f"branches; got {net!r}."
        )


def _check_positions(positions: int | None, y: np.ndarray) -> None:
    if positions is None and y.ndim > 2:
        raise InvalidInput(
            f"y_train: has shape {y.shape}, and the network has one output for a sample: targets "
            "at each position want a network that ends in a Dense() without pooling before it."
        )
    if positions is not None and (y.ndim < 2 or y.shape[1] != positions):
        raise InvalidInput(
            f"y_train: the network has an output at each of {positions} positions, and requires "
            f"targets (sample, {positions}[, output]), got shape {y.shape}; for one output of a "
            "sample put a Flatten() or a GlobalAvgPool() before the last Dense()."
        )


def _length(optimizer: Optimizer, steps: Any, times: Any) -> tuple[int | None, tuple[float, ...]]:
    """Return the number of steps of an optimizer, or the times at which a flow is recorded."""
    got = f"got steps={shown(steps)}, times={shown(times)}."
    if not optimizer.continuous:
        if steps is None or times is not None:
            raise InvalidInput(
                f"steps: {type(optimizer).__name__} requires a number of steps, and no times; {got}"
            )
        return integer("steps", steps, at_least=1, at_most=MOST_STEPS), ()
    if steps is not None or times is None:
        raise InvalidInput(
            "times: gradient flow requires the times at which it is recorded, and no steps, e.g. "
            f"times=np.linspace(0.1, 10, 100); {got}"
        )
    return None, _times(times)


def _times(times: ArrayLike | Sequence[float]) -> tuple[float, ...]:
    array = np.atleast_1d(numbers("times", times))
    if array.ndim != 1:
        raise InvalidInput(f"times: wanted one axis, got shape {array.shape}.")
    if len(array) and array[0] == 0:
        array = array[1:]
    if len(array) == 0 or array[0] <= 0 or (np.diff(array) <= 0).any():
        raise InvalidInput("times: wanted positive times in increasing order.")
    return tuple(array.tolist())
