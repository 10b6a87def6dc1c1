"""A step of training that is recorded, and then repeated without the code that it came from.

What a step of a small network costs is mostly not arithmetic: modules are called, ``vmap`` maps
and autograd keeps its graph, for the same few hundred operations on tensors each time. Here these
operations are written down where PyTorch carries them out, below all that, forward and backward.
Two records that are equal make a program, which does what the step did. Where it may, it writes
into memory that nobody needs any more, and adds products of matrices to what they are added to.

A program repeats what was recorded, whatever the model might have done instead. So a step is not
repeated if numbers of its tensors were looked at, if Python or NumPy drew random numbers meanwhile
(PyTorch's are drawn anew each time), if the model has counted something, or if it uses a tensor of
unknown origin. And every so often the step is taken by its own code again, and compared.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from largen.transfer.torch.in_place import Call, in_place

# Repetitions before a program is compared for the first time; then each time twice as many.
COMPARED_AFTER = 100
# A record keeps all tensors of a step. Where they are larger, arithmetic takes longer than calls.
LARGEST_BYTES = 2**29

aten = torch.ops.aten
# Operations whose outputs are their inputs.
NOTHING = {aten.detach.default, aten.alias.default}


class Changed(Exception):
    """A step was not what its program is, which had been repeated in the meantime."""


class Repeated:
    """A function of tensors that is recorded twice, and repeated from then on.

    Parameters
    ----------
    function
        Of tensors, to a tensor. Its operations must not depend on anything but shapes.
    state
        Returns tensors that are the same ones at each call, until :meth:`forget`. They may be
        changed in place.
    settings
        Returns whatever else the function may depend on, to be compared. What changes it is not
        repeated.
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        state: Callable[[], Iterable[Tensor]],
        settings: Callable[[], object] = lambda: None,
    ):
        self.function, self.state, self.settings = function, state, settings
        self.given_up = False
        self._records: dict[Any, Record] = {}  # by shapes of inputs
        self._recording: Recording | None = None

    def __call__(self, *inputs: Tensor, compare: bool = False) -> Tensor:
        """Return the function's value, and compare the step to its program if asked to.

        Raises
        ------
        Changed
            If it is not what the program has been repeating.
        """
        if self.given_up or not all(map(_plain, inputs)):
            return self.function(*inputs)
        shapes = tuple((x.shape, x.stride(), x.dtype) for x in inputs)
        apart = len({_place(x) for x in inputs})  # targets may be the inputs themselves
        record = self._records.get((shapes, apart))
        if record is not None and record.repetitions_left and not compare:
            return record.repeat(*inputs)
        value, new = self._recorded(inputs)
        if new is None or (record is not None and new != record):
            if record is not None and record.repeated:
                raise Changed
            self.given_up = True
            self.forget()
        elif record is None:
            self._records[shapes, apart] = new
        else:
            record.trust()
        return value

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function that may do other things each time: it is recorded as a whole."""
        if self._recording is None:
            function(*arguments)
        else:
            self._recording.call(function, arguments)

    def forget(self) -> None:
        """Record anew, since the state consists of other tensors."""
        self._records.clear()

    def _recorded(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Record | None]:
        """Return the function's value and, if it can be repeated, its record."""
        before = self.settings(), _random_states()
        self._recording = Recording(inputs, self.state())
        try:
            with self._recording:
                value = self.function(*inputs)
            record = self._recording.finished(value)
        finally:
            self._recording = None
        return value, record if (self.settings(), _random_states()) == before else None


class Record:
    """The operations of one step, as lines of Python.

    Attributes
    ----------
    lines
        Of a function of the inputs.
    constants
        What they name without making it: operations, tensors of the state, settings.
    repetitions_left
        How often it may be repeated before it is compared.
    repeated
        How often it was.
    """

    def __init__(self, lines: list[str], constants: dict[str, Any]):
        self.lines, self.constants = lines, constants
        self.repetitions_left = self.repeated = 0

    def __eq__(self, other: object) -> bool:
        """Whether the operations are the same, on the same tensors and numbers."""
        return (
            isinstance(other, Record)
            and self.lines == other.lines
            and all(_same(value, other.constants[name]) for name, value in self.constants.items())
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def trust(self) -> None:
        """Allow to repeat it, since another step was the same."""
        self.repetitions_left = max(COMPARED_AFTER, 2 * self.repeated)

    def repeat(self, *inputs: Tensor) -> Tensor:
        """Carry the operations out."""
        self.repetitions_left -= 1
        self.repeated += 1
        with torch.no_grad():
            return self.function(*inputs)

    @cached_property
    def function(self) -> Callable[..., Tensor]:
        """What the lines say."""
        # What an operation is to C++, where it says so: called in half the time.
        namespace = {name: getattr(c, "_op", c) for name, c in self.constants.items()}
        exec("\n".join(self.lines), namespace)
        return namespace["step"]


class Recording(TorchDispatchMode):
    """While entered, writes down every operation on tensors, below autograd and ``vmap``.

    Parameters
    ----------
    inputs
        Tensors that are others at each step.
    state
        Tensors that are the same ones at each step.
    """

    def __init__(self, inputs: Iterable[Tensor], state: Iterable[Tensor]):
        super().__init__()
        self._alive = list(inputs)  # all tensors, so that no two of them have one place
        self._inputs = [f"x{i}" for i in range(len(self._alive))]
        self._names = dict(zip(map(_place, self._alive), self._inputs, strict=True))
        self._given = {_place(x)[0] for x in self._alive}
        self._state = {_place(x)[0] for x in state}
        self._constants: dict[str, Any] = {}
        self._constant_names: dict[int, str] = {}
        self._calls: list[Call] = []
        self._made = self._bytes = 0
        self._paused = self._failed = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Carry an operation out, and write it down."""
        kwargs = kwargs or {}
        if self._paused or self._failed:
            return func(*args, **kwargs)
        call = self._call(func, args, kwargs)
        out = func(*args, **kwargs)
        if _depends_on_values(func, args):
            self._failed = True
        elif func not in NOTHING:
            self._finish(call, out)
        if self._failed:
            self._alive.clear()
        return out

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        """Call a function that is written down as a whole, not what it does."""
        self._calls.append(self._call(function, arguments, {}))
        self._paused = True
        try:
            function(*arguments)
        finally:
            self._paused = False

    def finished(self, value: Tensor) -> Record | None:
        """Return the record of a step with this value, or None if it cannot be repeated."""
        result = self._name(value)
        if self._failed:
            return None
        places = {name: place for place, name in self._names.items()}
        kept = {places[result][0], *self._given, *self._state}
        lines = [f"def step({', '.join(self._inputs)}):"]
        for call, ends in _with_ends(
            in_place(self._calls, places, kept), {result, *self._constants}
        ):
            made = ", ".join(call.makes) + "," * call.several
            text = f"{self._constant(call.function)}({', '.join(call.arguments)})"
            lines.append(f" {made} = {text}" if made else f" {text}")
            if ends:
                lines.append(f" del {', '.join(ends)}")
        return Record([*lines, f" return {result}"], self._constants)

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Write a call down; what it makes is not known yet."""
        uses: list[str] = []
        texts = [self._text(value, uses) for value in args]
        texts += [f"{name}={self._text(value, uses)}" for name, value in kwargs.items()]
        return Call(function, texts, uses)

    def _text(self, value: Any, uses: list[str]) -> str:
        """Write an argument as text, and note the tensors that it uses."""
        if isinstance(value, Tensor):
            uses.append(self._name(value))
            return uses[-1]
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._text(v, uses) for v in value)}]"
        plain = value is None or isinstance(value, (bool, int, str))
        if plain or (isinstance(value, float) and math.isfinite(value)):
            return repr(value)
        return self._constant(value)

    def _finish(self, call: Call, out: Any) -> None:
        """Name what a call has made, and keep the call if it must be made at each step."""
        call.several = isinstance(out, (list, tuple))
        outputs = list(out) if call.several else [out]
        if not all(x is None or _plain(x) for x in outputs):
            self._failed = True
            return
        view, mutable = call.function.is_view, call.function._schema.is_mutable
        if not view:
            self._bytes += sum(x.nbytes for x in outputs if x is not None)
            self._failed |= self._bytes > LARGEST_BYTES
        self._alive += [x for x in outputs if x is not None]
        places = [None if x is None else _place(x) for x in outputs]
        if view and all(name in self._constants for name in call.uses):
            for x, place in zip(outputs, places, strict=True):
                if place is not None:  # the same one at each step
                    self._names.setdefault(place, self._constant(x))
        elif len(outputs) == 1 and places[0] in self._names:
            if mutable:  # else it is a view of all of something
                self._calls.append(call)
        else:
            self._calls.append(call)
            for place in places:
                call.makes.append(f"t{self._made}")
                self._made += 1
                if place is not None:
                    self._names[place] = call.makes[-1]

    def _name(self, x: Tensor) -> str:
        """Return a tensor's name; one of the state is given it here."""
        if not _plain(x):
            self._failed = True
            return ""
        place = _place(x)
        if place not in self._names:
            # One from elsewhere may be another one at the next step.
            self._failed |= place[0] not in self._state
            self._names[place] = self._constant(x)
        return self._names[place]

    def _constant(self, value: Any) -> str:
        """Return the name of something that is the same at each step."""
        if id(value) not in self._constant_names:
            name = f"c{len(self._constants)}"
            self._constants[name], self._constant_names[id(value)] = value, name
        return self._constant_names[id(value)]


def _with_ends(calls: list[Call], kept: set[str]) -> Iterator[tuple[Call, list[str]]]:
    """Yield calls, each with the names that are not used after it."""
    last = {name: i for i, call in enumerate(calls) for name in call.uses + call.makes}
    for i, call in enumerate(calls):
        names = dict.fromkeys(call.uses + call.makes)
        yield call, [name for name in names if last[name] == i and name not in kept]


def _plain(x: Any) -> bool:
    """Whether this is a tensor whose memory is an array of numbers on the processor.

    Elsewhere the backward pass runs in other threads, which are not recorded.
    """
    return isinstance(x, Tensor) and x.layout is torch.strided and x.device.type == "cpu"


def _place(x: Tensor) -> tuple[Any, ...]:
    """Return what tells a tensor from all others that exist now, its memory first."""
    memory = x.untyped_storage().data_ptr()
    return memory, x.storage_offset(), x.shape, x.stride(), x.dtype, x.is_conj(), x.is_neg()


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _place(a) == _place(b)
    return type(a) is type(b) and bool(a == b)


def _depends_on_values(operation: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether what follows an operation may depend on numbers, not only on shapes."""
    if operation is aten.index.Tensor:  # by masks or by numbers
        return any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in arguments[1])
    return _is_dynamic(operation)


@cache
def _is_dynamic(operation: Any) -> bool:
    tags = torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape
    return any(tag in operation.tags for tag in tags)


def _random_states() -> tuple[Any, ...]:
    """Return the states that Python's and NumPy's own functions draw from."""
    state = np.random.get_state(legacy=False)  # noqa: NPY002, it is that of others
    return random.getstate(), repr(state)
