"""Functions of JAX at several widths, as a reading takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.arrays import as_array, floating, is_traced
from largen.callables import takes
from largen.errors import InvalidInput, LargenError
from largen.reading.calls import Record
from largen.reading.entries import compared
from largen.reading.family import Family
from largen.reading.jax.construction import COPIES, has_copies, keys, laws
from largen.reading.jax.elementwise import joined as with_functions
from largen.reading.jax.recording import check_derivatives, record, traced
from largen.reading.jax.rules import REASONS, RULES
from largen.reading.jax.tracing import computed
from largen.reading.laws import Law, Parameter
from largen.reading.nodes import Map
from largen.transfer.jax.trees import is_weight, map_named, named_leaves

Weights = dict[str, Any]


class Functions(Family):
    """A forward pass and the function that makes its parameters.

    ``init``: ``init(key, width=n)`` → parameters; ``apply``: ``apply(parameters, x)`` → outputs.
    """

    rules, reasons = RULES, REASONS
    of_nodes = True

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
        self._ids = given if given.dtype.kind in "iu" else None
        self._stacks: dict[str, int] = {}  # weights that are read in parts, with their axes
        self._inits: dict[int | None, tuple[Any, list[str], Any]] = {}
        self._records: dict[int | None, Record] = {}
        self._known: dict[tuple[int | None, bool], dict[str, Parameter]] = {}

    @property
    def name(self) -> str:
        """The name of the forward pass."""
        return getattr(self._apply, "__name__", type(self._apply).__name__).strip("<>")

    @property
    def takes_integers(self) -> bool:
        """Whether samples are integers, which they are where the forward pass fails on floats."""
        return self.x.dtype.kind == "i"

    def at(self, width: int | None, *, meta: bool = False) -> dict[str, Parameter]:
        """Return the laws of the parameters at a width, by name."""
        key = width, meta
        if key not in self._known:
            with jax.enable_x64(True):
                self._known[key] = self._parameters(width, meta)
        return self._known[key]

    def _parameters(self, width: int | None, meta: bool) -> dict[str, Parameter]:
        _, names, closed = self._drawn(width)
        found: dict[str, Parameter] = {}
        read = laws(closed)
        # Other weights, such as orthogonal ones, may show what they are.
        unread = not meta and any(isinstance(law, str) for law in read)
        entries = self.function(width)[1](0) if unread else {}
        drawn = [frozenset()] * len(names) if meta else keys(closed, jax.random.key(0))
        shapes = [tuple(each.shape) for each in closed.out_avals]
        used = self._dependent(width, names, drawn)
        rows: dict[str, Any] = {n: row for n, *row in zip(names, read, shapes, used, strict=True)}
        for name, axis in self._stacks.items():
            law, shape, why = rows.pop(name)
            part = (*shape[:axis], *shape[axis + 1 :])
            rows |= {f"{name}[{n}]": [law, part, why] for n in range(shape[axis])}
        for name, (law, shape, why) in rows.items():
            if why:
                found[name] = Parameter(None, shape, why)
            elif isinstance(law, Law) or meta:
                found[name] = Parameter(law if isinstance(law, Law) else None, shape, str(law))
            else:
                found[name] = compared(law, np.asarray(entries[name]))
        return found

    def _dependent(
        self, width: int | None, names: list[str], drawn: Sequence[frozenset[bytes]]
    ) -> list[str]:
        """Return of each weight why its entries are not independent, or an empty text."""
        found = []
        for before in _drawn_before(names, drawn):
            why = f"it is drawn from the random key of {before}; split the key"
            found.append(why if before else "")
        if any(COPIES in of for of in drawn):
            with computed():
                made = list(_whole(self._made(jax.random.key(0), width)).values())
            for place, of in enumerate(drawn):
                if COPIES in of and has_copies(np.asarray(made[place])):
                    found[place] = (
                        "its entries are copies of each other; draw each from its own key"
                    )
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

    def _weights(self, tree: Any) -> Weights:
        """Return the weights by name, and the parts of those that are stacks."""
        found = _whole(tree)
        for name, axis in self._stacks.items():
            whole = found.pop(name)
            for n in range(whole.shape[axis]):
                part = jax.lax.index_in_dim(whole, n, axis, keepdims=False)
                found[f"{name}[{n}]"] = part
        return found

    def joined(self, weights: Weights) -> Weights:
        """Return whole weights."""
        found = dict(weights)
        for name, axis in reversed(self._stacks.items()):
            parts = []
            while (part := found.pop(f"{name}[{len(parts)}]", None)) is not None:
                parts.append(part)
            found[name] = jnp.stack(parts, axis)
        return found

    def forward(self, width: int | None) -> Callable[[Weights, Any], Any]:
        """Return the forward pass as a function of whole weights by name and of samples."""
        tree, _ = self._skeleton(width)
        options = {"width": width} if self._takes_width else {}

        def f(weights: Weights, x: Any) -> Any:
            filled = map_named(lambda name, leaf: weights.get(name, leaf), tree)
            return self._apply(filled, x, **options)

        return f

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
        forward = self.forward(width)

        def f(weights: Weights, x: Any) -> Any:
            return forward(self.joined(weights), x)

        def draw(seed: int) -> Weights:
            with computed():
                return self._weights(self._made(jax.random.key(seed), width))

        return f, draw

    def calls(self, width: int | None) -> Record:
        """Return the forward pass at a width, primitive by primitive."""
        if width not in self._records:
            with computed():
                closed, shapes = self._traced(width)
                assert width is not None
                fixed = _fixed(shapes, self._skeleton(2 * width)[1])

                def draw() -> list[Any]:
                    return list(_whole(self._made(jax.random.key(0), width)).values())

                check_derivatives(closed, draw, jnp.asarray(self.x))
                found, stacks = record(closed, list(shapes), self.x, self.file, fixed)
            if stacks.keys() - self._stacks.keys():
                self._stacks |= stacks
                self._known.clear()
            self._records[width] = found
        return self._records[width]

    @property
    def fixed(self) -> dict[str, tuple[int, ...]]:
        """The axis along which each stack of weights is read in parts."""
        return {name: (axis,) for name, axis in self._stacks.items()}

    def recorded(self, width: int | None) -> Record:
        """Return the forward pass at a width, with elementwise functions joined."""
        return with_functions(self.calls(width))

    @cached_property
    def file(self) -> str:
        """The file that the forward pass is from, of which messages name lines."""
        code = getattr(inspect.unwrap(self._apply), "__code__", None)
        return "" if code is None else code.co_filename

    def _traced(self, width: int | None) -> tuple[Any, dict[str, Any]]:
        """Return the jaxpr of the samples and the shapes of its weights."""
        try:
            return self.program(width, self.x)
        except InvalidInput:
            if self._ids is None or self.takes_integers:
                raise
            self.x = self._ids.astype(np.int64)
            return self.program(width, self.x)

    def program(self, width: int | None, x: np.ndarray) -> tuple[Any, dict[str, Any]]:
        """Return the jaxpr of the forward pass at a width, and the shapes of its weights."""
        (_, shapes), forward = self._skeleton(width), self.forward(width)
        return traced(forward, shapes, jnp.asarray(x)), shapes

    def shapes(self, width: int | None) -> dict[str, tuple[int, ...]]:
        """Return the shapes of parameters at a width, by name."""
        found = jax.eval_shape(self._weights, self._skeleton(width)[1])
        return {name: tuple(each.shape) for name, each in found.items()}

    def _skeleton(self, width: int | None) -> tuple[Any, dict[str, Any]]:
        """Return parameters of a width without entries, and the shapes of whole weights."""
        tree, names, closed = self._drawn(width)
        shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in closed.out_avals]
        return tree, dict(zip(names, shapes, strict=True))

    def _drawn(self, width: int | None) -> tuple[Any, list[str], Any]:
        """Return parameters without entries, the names of weights, and the jaxpr of these."""
        if width not in self._inits:
            made: list[Any] = []

            def build(key: Any) -> list[Any]:
                made[:] = [self._made(key, width)]
                return list(_whole(made[0]).values())

            with jax.enable_x64(True):
                closed = jax.make_jaxpr(build)(jax.eval_shape(jax.random.key, 0))
                (tree,) = made
                if any(is_traced(leaf) for _, leaf in named_leaves(tree) if not is_weight(leaf)):
                    tree = self._made(jax.random.key(0), width)
            self._inits[width] = tree, list(_whole(tree)), closed
        return self._inits[width]

    def kernels(
        self, last: Map, x: np.ndarray, width: int, seeds: range
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Return K and Θ of drawn parameters."""
        from largen.reading.jax.draws import kernels_of

        return kernels_of(self, last, x, width, seeds)

    def sampler(self, widths: tuple[int, int]) -> Any:
        """Return populations of neurons of the functions."""
        from largen.reading.jax.population import Sampler

        return Sampler(self, widths)


def _whole(tree: Any) -> Weights:
    return {name: leaf for name, leaf in named_leaves(tree) if is_weight(leaf)}


def _fixed(shapes: dict[str, Any], wider: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the axes of weights that do not grow with the width, but those of length one."""
    return {
        name: tuple(
            axis
            for axis, (n, m) in enumerate(zip(each.shape, wider[name].shape, strict=True))
            if n == m > 1
        )
        for name, each in shapes.items()
    }


def _drawn_before(names: list[str], keys_of: Sequence[Any]) -> list[str | None]:
    """Return of each weight another one before it that is drawn from the same key, or None."""
    first: dict[bytes, str] = {}  # of each key, the weight that is drawn from it first
    found: list[str | None] = []
    for name, each in zip(names, keys_of, strict=True):
        of = each - {COPIES}
        found.append(next((first[key] for key in of if first.get(key, name) != name), None))
        first |= {key: name for key in of if key not in first}
    return found
