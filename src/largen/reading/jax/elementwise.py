"""Elementwise primitives of one value, joined into one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from largen.architectures import Activation
from largen.reading.calls import Call, Param, Record, Ref
from largen.reading.functions import NAMED
from largen.reading.jax.tracing import computed

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": jnp.abs, "acos": jnp.arccos, "acosh": jnp.arccosh, "add": jnp.add,
    "add_any": jnp.add, "and": jnp.logical_and, "asin": jnp.arcsin, "asinh": jnp.arcsinh,
    "atan": jnp.arctan, "atanh": jnp.arctanh, "cbrt": jnp.cbrt, "ceil": jnp.ceil,
    "clamp": lambda low, x, high: jnp.clip(x, low, high), "cos": jnp.cos, "cosh": jnp.cosh,
    "div": jnp.divide, "eq": jnp.equal, "erf": special.erf, "erfc": special.erfc,
    "erf_inv": special.erfinv, "exp": jnp.exp, "exp2": jnp.exp2, "expm1": jnp.expm1,
    "floor": jnp.floor, "ge": jnp.greater_equal, "gt": jnp.greater, "integer_pow": jnp.power,
    "is_finite": jnp.isfinite, "le": jnp.less_equal, "log": jnp.log, "log1p": jnp.log1p,
    "logistic": jax.nn.sigmoid, "lt": jnp.less, "max": jnp.maximum, "min": jnp.minimum,
    "mul": jnp.multiply, "ne": jnp.not_equal, "neg": jnp.negative, "not": jnp.logical_not,
    "or": jnp.logical_or, "pow": jnp.power, "rsqrt": lax.rsqrt, "select_n": lambda which, *cases:
    jnp.where(which, cases[1], cases[0]), "sign": jnp.sign, "sin": jnp.sin, "sinh": jnp.sinh,
    "sqrt": jnp.sqrt, "square": jnp.square, "sub": jnp.subtract, "tan": jnp.tan,
    "tanh": jnp.tanh, "to_float": lambda x: jnp.asarray(x, float), "xor": jnp.logical_xor,
}  # fmt: skip
NAMES = (*sorted(NAMED), "softplus", "elu", "leaky_relu", "gaussian")
SCALES = frozenset({"mul", "div", "neg"})
# Points where functions are compared, none of them a kink.
GRID = np.concatenate(
    [[-1003.0, -61.0, -23.0], np.linspace(-7.93, 7.31, 400), [19.0, 53.0, 1001.0]]
)
EXACT = 1e-12  # relative size of a difference that is rounding


@dataclass(frozen=True)
class Steps:
    """A function of one number as elementwise functions one after the other."""

    # The name of each function with its arguments: numbers, and places of steps in a tuple, of
    # which 0 is the argument.
    steps: tuple[tuple[str, tuple[Any, ...]], ...]

    @property
    def __name__(self) -> str:
        return ".".join(name for name, _ in self.steps)

    def __call__(self, x: Any) -> Any:
        """Return φ(x)."""
        values = [x]
        for name, given in self.steps:
            values.append(
                FUNCTIONS[name](*(values[a[0]] if isinstance(a, tuple) else a for a in given))
            )
        return values[-1]


def joined(record: Record) -> Record:
    """Return a record in which elementwise functions of one value are one call, ``function``.

    A number that multiplies a value which nothing else reads stays a call of its own: it is a part
    of the affine map before, and may depend on the width.
    """
    calls, roots = record.calls, {}
    needed = _needed(record)
    readers: dict[int, int] = {}
    for index in needed:
        for place in set(calls[index].refs()):
            readers[place] = readers.get(place, 0) + 1
    made = list(calls)
    for index in needed:
        roots[index] = _root(calls[index], calls, roots, readers)
    for index in needed:
        if roots[index] != index:
            made[index] = _function(index, roots[index], calls)
    kept = _needed(Record(made, record.output))
    places = {old: new for new, old in enumerate(kept)}
    found = [
        replace(made[old], index=new, args=_moved(made[old].args, places))
        for new, old in enumerate(kept)
    ]
    return Record(found, places[record.output])


def _needed(record: Record) -> list[int]:
    """Return the calls that the output depends on, with the input."""
    needed, stack = {0, record.output}, [record.output]
    while stack:
        for place in record.calls[stack.pop()].refs():
            if place not in needed:
                needed.add(place)
                stack.append(place)
    return sorted(needed)


def _moved(args: tuple[Any, ...], places: dict[int, int]) -> tuple[Any, ...]:
    return tuple(Ref(places[a.place]) if isinstance(a, Ref) else a for a in args)


def _root(call: Call, calls: list[Call], roots: dict[int, int], readers: dict[int, int]) -> int:
    """Return the call of whose result a result is an elementwise function; itself if of none."""
    refs = call.refs()
    read = {roots[place] for place in refs}
    plain = call.op in FUNCTIONS and len(read) == 1 and all(_is_part(a) for a in call.args)
    if not plain or any(calls[place].shape != call.shape for place in refs):
        return call.index
    (root,) = read
    if call.op in SCALES and refs == [root] and readers[root] == 1:
        return call.index
    return root


def _is_part(argument: Any) -> bool:
    """Whether an argument is a value or a number."""
    if isinstance(argument, Param):
        return False
    return isinstance(argument, Ref) or is_number(argument)


def is_number(entries: Any) -> bool:
    """Whether all entries of a constant are one number."""
    if jnp.issubdtype(entries.dtype, jax.dtypes.prng_key):
        return False
    entries = np.asarray(entries)
    return bool(entries.size and np.all(entries == entries.flat[0]))


def _function(index: int, root: int, calls: list[Call]) -> Call:
    """Return a call as a function of its root."""
    inside, stack = set(), [index]
    while stack:
        place = stack.pop()
        if place not in inside and place != root:
            inside.add(place)
            stack += calls[place].refs()
    order = {root: 0} | {place: n + 1 for n, place in enumerate(sorted(inside))}
    steps = []
    for place in sorted(inside):
        call = calls[place]
        given = tuple(
            (order[a.place],) if isinstance(a, Ref) else np.ravel(a)[0].item() for a in call.args
        )
        power = (call.kwargs["y"],) if call.op == "integer_pow" else ()
        steps.append((call.op, given + power))
    phi = Steps(tuple(steps))
    return replace(calls[index], op="function", args=(Ref(root), phi), kwargs={})


def linear(phi: Steps) -> tuple[float, float] | None:
    """Return a and b of a function a·x + b, None for another one."""
    found = values(phi)
    slope = (found[-1] - found[0]) / (GRID[-1] - GRID[0])
    offset = found[0] - slope * GRID[0]
    return (_rounded(slope), _rounded(offset)) if _same(found, slope * GRID + offset) else None


def _rounded(number: float) -> float:
    return 0.0 if abs(number) < EXACT else float(number)


def as_activation(phi: Steps) -> Activation:
    """Return a function as an activation, by its name if it is one that has a name."""
    found = values(phi)
    for name, expected in zip(NAMES, _values_of_names(), strict=True):
        if _same(found, expected):
            return Activation(name)
    return Activation(phi)


def values(phi: Steps, points: np.ndarray = GRID) -> np.ndarray:
    """Return the values of a function at points."""
    return _values(phi, points.tobytes())


@lru_cache(maxsize=256)  # models have few functions, many times
def _values(phi: Steps, points: bytes) -> np.ndarray:
    with computed():
        return np.asarray(jax.jit(phi.__call__)(np.frombuffer(points)), np.float64)


@lru_cache(maxsize=1)
def _values_of_names() -> list[np.ndarray]:
    @jax.jit
    def all_of_them(x: Any) -> list[Any]:
        return [Activation(name)(x) for name in NAMES]

    with computed():
        return [np.asarray(each) for each in all_of_them(GRID)]


def _same(one: Any, two: Any) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.all((one == two) | (np.abs(one - two) <= EXACT * (1 + np.abs(two)))))
