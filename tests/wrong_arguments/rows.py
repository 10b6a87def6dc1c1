"""The table: a public name, one of its arguments, and a value that is wrong for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from tests.wrong_arguments.examples import Example, examples
from tests.wrong_arguments.values import PATHS, TRACED, VALUES

# For each argument this many values are drawn of the pool; others are in the row for other
# arguments. The values of LISTED are there in any case.
DRAWN = 4
LISTED = {
    "key": ("2**63", "2**70", "numpy uint64", "-2**70"),
    "gamma": ("1e300", "1e-300", "1e200", "5e-324"),
    "weight_std": ("1e200", "1e-300", "nan", "10**400"),
    "bias_std": ("1e200", "-1"),
    "x": ("big-endian", "longdouble array", "masked", "huge array", "nan array", "integers"),
    "x1": ("big-endian", "longdouble array", "masked", "huge array", "inf array", "complex"),
    "x_train": ("big-endian", "longdouble array", "masked", "huge array", "no rows", "ragged"),
    "y": ("nan vector", "huge vector", "texts", "masked vector", "longdouble vector"),
    "y_train": ("nan vector", "huge vector", "texts", "large integers", "traced vector"),
    "ntk": ("not symmetric", "nan array", "big-endian"),
    "matrix": ("nan array", "not positive", "singular", "module", "traced array"),
    "noise": ("1e-300", "5e-324", "nan", "-1"),
    "activation": ("softmax", "cumsum", "sort", "branch", "gives NaN", "numpy function"),
    "function": ("softmax", "cumsum", "sort", "branch", "gives NaN", "unhashable"),
    "spec": ("softmax", "cumsum", "branch", "no arguments", "class"),
    "loss": ("branch", "float of value", "no arguments", "gives text", "gives vector", "raises"),
    "measure": ("branch", "no arguments", "gives text", "gives pair", "raises", "unhashable"),
    "f": ("branch", "gives text", "gives vector", "gives integer", "no arguments", "raises"),
    "schedule": ("text", "raises", "gives NaN", "gives text", "decreasing list", "no arguments"),
    "progress": ("no arguments", "raises", "text", "1"),
    "per_unit": ("2**32", "10**400", "-1"),
    "path": PATHS,
    "method": ("text", "1"),
    "sampling": ("text", "None"),
    "record": ("text", "1"),
    "record_at": ("-1", "text"),
    "record_pairs": ("text", "vector"),
    "base": ("1", "list", "pair of text", "dict", "None"),
    "targets": ("1", "dict", "list", "None"),
    "lr": ("nan", "inf", "-1", "True", "number as text", "traced number"),
    "lrs": ("0.5", "list with nan", "negative list", "text", "no arguments", "empty list"),
    "task": ("None", "dict", "vector"),
    "replicas": ("1", "list", "empty list", "None"),
    "X": ("subnormal array",),
    "init": ("masked", "text", "no arguments"),
    "make_parameters": ("nan array", "text"),
    "batches": (
        "number texts",
        "gives text",
        "gives vector",
        "gives None",
        "cumsum",
        "raises",
        "list",
    ),
    "make_model": ("nan array", "text", "no arguments", "None"),
    "tolerance": ("traced array", "nan", "-1", "text"),
    "throw": ("text", "1", "None", "vector"),
}


class Row(NamedTuple):
    """A call that should not end in a traceback from anywhere but largen, or the user's code."""

    name: str
    argument: str
    value: str
    call: Callable[[], Any]


def table(all_of: dict[str, Example] | None = None) -> Iterator[Row]:
    """Yield the working example of every name, and then what is wrong for each argument."""
    for name, example in (examples() if all_of is None else all_of).items():
        yield Row(name, "", "", lambda example=example: example.call(**example.arguments))
        for argument in example.parameters():
            draw = random.Random(f"{name} {argument}")
            listed = LISTED.get(argument, ())
            for value in dict.fromkeys([*listed, *draw.sample([*VALUES, *TRACED], DRAWN)]):
                yield row(name, example, argument, value)


def everything(chosen: str = "") -> Iterator[Row]:
    """Yield all values for all arguments, of one name or of all: some ten minutes."""
    for name, example in examples().items():
        if name.startswith(chosen):
            for argument in example.parameters():
                for value in (*VALUES, *TRACED):
                    yield row(name, example, argument, value)


def pairs(seed: int, count: int) -> Iterator[Row]:
    """Yield calls with two arguments that are wrong."""
    draw = random.Random(seed)
    found = [(n, e, [*e.parameters()]) for n, e in examples().items()]
    found = [each for each in found if len(each[2]) > 1]
    for _ in range(count):
        name, example, parameters = draw.choice(found)
        one, two = draw.sample(parameters, 2)
        values = draw.sample([*VALUES], 2)
        wrong = dict(zip((one, two), values, strict=True))
        yield Row(name, f"{one}, {two}", ", ".join(values), _call(example, wrong))


def row(name: str, example: Example, argument: str, value: str) -> Row:
    """Return the row of one name, argument and value of the pool."""
    if value in TRACED:
        return Row(name, argument, value, _traced(example, argument, TRACED[value]))
    return Row(name, argument, value, _call(example, {argument: value}))


def _call(example: Example, wrong: dict[str, str]) -> Callable[[], Any]:
    changed = {argument: VALUES[value] for argument, value in wrong.items()}
    return lambda: example.call(**{**example.arguments, **changed})


def _traced(example: Example, argument: str, make: Callable[[], Any]) -> Callable[[], Any]:
    def inside(value: Any) -> None:
        example.call(**{**example.arguments, argument: value})

    return lambda: jax.eval_shape(inside, make())
