"""A forward pass of a PyTorch module as one list of core operations, and its values in JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.errors import InvalidInput
from largen.traces.torch.operations import DRAWS, form_of


class Var(NamedTuple):
    """The place of a value among those of a trace."""

    place: int


class DType(NamedTuple):
    """A type of numbers, by the name that NumPy gives it."""

    name: str


@dataclass(frozen=True)
class Call:
    """A call of a core operation; tensors among its arguments are values of the trace."""

    operation: str  # with its overload, such as "add.Tensor"
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[int | None, ...]  # the places of its results, None for no tensor
    dtypes: tuple[str, ...]  # of each result
    several: bool  # whether it returns several results
    scope: str  # the path of the module whose forward pass it is in


@dataclass
class Trace:
    """A forward pass: calls in their order, on named weights, inputs and constants."""

    calls: list[Call] = field(default_factory=list)
    named: dict[str, Var] = field(default_factory=dict)  # parameters and buffers
    inputs: list[Var] = field(default_factory=list)
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    # Returns the outputs, given what is to stand for each tensor in them.
    output: Callable[[Callable[[Var], Any]], Any] = lambda value: None
    outputs: list[Var] = field(default_factory=list)
    # Buffers that the forward pass changes → their new values.
    written: dict[str, Var] = field(default_factory=dict)
    # Where the values of tensors that depend on weights or inputs decided what was run.
    reads: list[str] = field(default_factory=list)

    @property
    def kinds(self) -> set[str]:
        """The operations, without their overloads."""
        return {call.operation.partition(".")[0] for call in self.calls}

    def needed(self, wanted: Sequence[Var]) -> list[Call]:
        """Return the calls on which some values depend, in their order."""
        places, found = {var.place for var in wanted}, []
        for call in reversed(self.calls):
            if places.intersection(call.outputs):
                places.update(var.place for var in vars_of((call.args, dict(call.kwargs))))
                found.append(call)
        return found[::-1]

    def without_form(self) -> list[str]:
        """Return the operations on which the outputs depend and which have no form in JAX."""
        calls = self.needed(self.outputs)
        return sorted({c.operation for c in calls if form_of(c.operation) is None})

    def draws(self) -> bool:
        """Whether the outputs depend on random numbers."""
        return any(_draws(call) for call in self.needed(self.outputs))

    def run(
        self,
        named: Mapping[str, Any],  # arrays of the weights, and of buffers
        inputs: Sequence[Any],
        key: Any = None,  # of what the forward pass draws
        written: bool = False,  # whether to return the new values of buffers as well
    ) -> Any:
        """Return the outputs on arrays, which may be JAX's tracers."""
        given: dict[int, Any] = {var.place: named[name] for name, var in self.named.items()}
        given |= {var.place: each for var, each in zip(self.inputs, inputs, strict=True)}
        values = given | {place: jnp.asarray(x) for place, x in self.constants.items()}

        def filled(argument: Any) -> Any:
            match argument:
                case Var(place):
                    return values[place]
                case DType(name):
                    return jnp.dtype(name)
                case list() | tuple():
                    return type(argument)([filled(each) for each in argument])
            return argument

        wanted = [*self.outputs, *(self.written.values() if written else ())]
        for number, call in enumerate(self.needed(wanted)):
            form = form_of(call.operation)
            where = f" in {call.scope}" if call.scope else ""
            if form is None:
                raise InvalidInput(
                    f"make: the operation {call.operation}{where} has no form in JAX."
                )
            arguments = [filled(each) for each in call.args]
            options = {name: filled(each) for name, each in call.kwargs.items()}
            if _draws(call):
                if key is None:
                    raise InvalidInput(
                        f"key: the forward pass draws random numbers ({call.operation}{where}); "
                        "wanted a random key."
                    )
                options["key"] = jax.random.fold_in(key, number)
            with jax.named_scope(call.scope) if call.scope else nullcontext():
                made = form(*arguments, **options)
            made = made if call.several else (made,)
            for place, dtype, value in zip(call.outputs, call.dtypes, made, strict=False):
                if place is not None and value is not None:
                    values[place] = _as_kind(value, dtype)
        out = self.output(lambda var: jnp.asarray(values[var.place]))
        if not written:
            return out
        return out, {name: values[var.place] for name, var in self.written.items()}


def _draws(call: Call) -> bool:
    return call.operation.partition(".")[0] in DRAWS


def _as_kind(value: Any, dtype: str) -> Any:
    """Return an array as real numbers, integers or truth values, whichever PyTorch made."""
    value, wanted = jnp.asarray(value), jnp.dtype(dtype)
    for kind in (jnp.floating, jnp.integer, jnp.bool_, jnp.complexfloating):
        if jnp.issubdtype(wanted, kind) and jnp.issubdtype(value.dtype, kind):
            return value
    return value.astype(wanted)


def vars_of(arguments: Any) -> Iterator[Var]:
    """Yield the values among nested arguments."""
    if isinstance(arguments, Var):
        yield arguments
    elif isinstance(arguments, (list, tuple)) and not isinstance(arguments, DType):
        for each in arguments:
            yield from vars_of(each)
    elif isinstance(arguments, Mapping):
        for each in arguments.values():
            yield from vars_of(each)
