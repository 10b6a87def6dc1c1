"""Functions of JAX at several widths, as a reading takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.arrays import as_array, floating
from largen.callables import takes
from largen.errors import InvalidInput, LargenError
from largen.reading.calls import Record
from largen.reading.entries import compared
from largen.reading.family import Family
from largen.reading.jax.construction import keys, laws
from largen.reading.jax.recording import record
from largen.reading.jax.rules import REASONS, RULES
from largen.reading.jax.tracing import computed
from largen.reading.laws import Law, Parameter
from largen.reading.nodes import Map
from largen.reading.refusals import refused
from largen.transfer.jax.trees import is_weight, map_named, named_leaves

Weights = dict[str, Any]


class Functions(Family):
    """A forward pass and the function that makes its parameters.

    ``init``: ``init(key, width=n)`` → parameters; ``apply``: ``apply(parameters, x)`` → outputs.
    """

    rules, reasons = RULES, REASONS
    populations = False

    def __init__(self, init: Callable[..., Any], apply: Any, x: Any):
        self._init, self._apply = init, apply
        takes("apply", apply, ("parameters", "x", *["width"] * self._takes_width))
        given = np.asarray(as_array("x", x))
        if given.ndim < 2 or not given.size:
            raise InvalidInput(
                f"x: wanted samples, (sample, features) or (sample, *space, channels), got shape "
                f"{given.shape}."
            )
        self.x = np.asarray(floating("x", x), np.float64)
        self._known: dict[tuple[int | None, bool], dict[str, Parameter]] = {}

    @property
    def name(self) -> str:
        """The name of the forward pass."""
        return getattr(self._apply, "__name__", type(self._apply).__name__).strip("<>")

    @property
    def takes_integers(self) -> bool:
        """Whether samples are integers; tokens have no rule here."""
        return False

    def at(self, width: int | None, *, meta: bool = False) -> dict[str, Parameter]:
        """Return the laws of the parameters at a width, by name."""
        key = width, meta
        if key not in self._known:
            with jax.enable_x64(True):
                self._known[key] = self._parameters(width, meta)
        return self._known[key]

    def _parameters(self, width: int | None, meta: bool) -> dict[str, Parameter]:
        names: list[str] = []

        def weights(seed: Any) -> list[Any]:
            found = self._weights(self._made(seed, width))
            names[:] = found
            return list(found.values())

        closed = jax.make_jaxpr(weights)(jax.eval_shape(jax.random.key, 0))
        found: dict[str, Parameter] = {}
        entries = None if meta else self.function(width)[1](0)
        drawn = [frozenset()] * len(names) if meta else keys(closed, jax.random.key(0))
        first: dict[bytes, str] = {}  # of each key, the parameter that is drawn from it first
        for name, law, shape, of in zip(names, laws(closed), closed.out_avals, drawn, strict=True):
            used = next((first[key] for key in of if key in first), None)
            first |= {key: name for key in of if key not in first}
            if used is not None or entries is None:
                known = law if isinstance(law, Law) and used is None else None
                why = f"it is drawn from the random key of {used}; split the key" if used else law
                found[name] = Parameter(known, tuple(shape.shape), str(why))
            else:
                found[name] = compared(law, np.asarray(entries[name]))
        return found

    def _made(self, key: Any, width: int | None) -> Any:
        """Return parameters of a width."""
        try:
            made = self._init(key, width=width)
        except LargenError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
            raise InvalidInput(
                f"make: wanted a function init(key, width) with apply=…; make(key, width={width}) "
                f"raised {said}"
            ) from error
        if not self._weights(made):
            raise InvalidInput(
                f"make: wanted parameters from make(key, width={width}), a tree with arrays of "
                f"floats, got {type(made).__name__}."
            )
        return made

    @staticmethod
    def _weights(tree: Any) -> Weights:
        return {name: leaf for name, leaf in named_leaves(tree) if is_weight(leaf)}

    def outputs(self, tree: Any, x: Any, width: int | None) -> Any:
        """Return the outputs of the forward pass."""
        if self._takes_width:
            return self._apply(tree, x, width=width)
        return self._apply(tree, x)

    @cached_property
    def _takes_width(self) -> bool:
        try:
            return "width" in inspect.signature(self._apply).parameters
        except (TypeError, ValueError):  # some callables have no signature
            return False

    def function(
        self, width: int | None
    ) -> tuple[Callable[[Weights, Any], Any], Callable[[int], Weights]]:
        """Return f(weights, x), and the weights of a seed, by name."""
        with computed():
            tree = self._made(jax.random.key(0), width)

        def f(weights: Weights, x: Any) -> Any:
            whole = map_named(lambda name, leaf: weights.get(name, leaf), tree)
            return self.outputs(whole, x, width)

        def draw(seed: int) -> Weights:
            with computed():
                return self._weights(self._made(jax.random.key(seed), width))

        return f, draw

    def recorded(self, width: int | None) -> Record:
        """Return the forward pass at a width."""
        f, draw = self.function(width)
        code = getattr(inspect.unwrap(self._apply), "__code__", None)
        file = "" if code is None else code.co_filename
        with computed():
            weights = draw(0)
            names = list(weights)
            return record(
                lambda given, x: f(dict(zip(names, given, strict=True)), x),
                names, list(weights.values()), jnp.asarray(self.x), file,
            )  # fmt: skip

    def kernels(
        self, last: Map, x: np.ndarray, width: int, seeds: range
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Return K and Θ of drawn parameters."""
        from largen.reading.jax.draws import kernels_of

        return kernels_of(self, last, x, width, seeds)

    def sampler(self, widths: tuple[int, int]) -> Any:
        """Refuse populations."""
        raise refused(
            self.name,
            "populations of neurons run PyTorch modules; functions in JAX have the kernels of "
            "exact rules",
        )
