"""The same numbers in every type that people have them in, and what is refused everywhere.

``python -m tests.kinds_of_data`` gives them to every array argument of every public function, in
the examples of ``tests/wrong_arguments``, without the type checker of the tests.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

Array = np.ndarray
DATA = ("x", "x1", "x2", "y", "f", "v", "X", "X_test", "x_train", "y_train", "x_test", "y_test",
        "ntk", "kernel", "matrix", "covariance", "f_train", "f_test", "times")  # fmt: skip
# Outputs of a trajectory are those of a run, in its precision, and may be NaN; what the last two
# return gives x to a function of the user's own as it is.
OTHERS = ("Trajectory.of", "linearize", "taylor_expand")


def _table(a: Array, *dtypes: str) -> Any:
    """Return a series or a frame with columns of some dtypes, one after the other."""
    if a.ndim == 1:
        return pd.Series(a).astype(dtypes[0])
    names = [f"c{i}" for i in range(a.shape[1])]
    columns = {n: dtypes[i % len(dtypes)] for i, n in enumerate(names)}
    return pd.DataFrame(a, columns=names).astype(columns)


def _objects(a: Array, of: Callable[[Any], Any]) -> Array:
    new = np.empty(a.shape, object)
    new.flat = [of(entry) for entry in a.flat]
    return new


def taken() -> dict[str, Callable[[Array], Any]]:
    """Return makers of what holds the whole numbers of an array, of one or two axes."""
    kinds: dict[str, Callable[[Array], Any]] = {
        "list": lambda a: a.tolist(),
        "list of whole numbers": lambda a: a.astype(int).tolist(),
        "rows in a list": list,
        "int64": lambda a: a.astype(np.int64),
        "int8": lambda a: a.astype(np.int8),
        "float16": lambda a: a.astype(np.float16),
        "big-endian": lambda a: a.astype(">f8"),
        "Fortran's order": np.asfortranarray,
        "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
        "read-only": lambda a: np.broadcast_to(a, a.shape),
        "objects": lambda a: a.astype(object),
        "whole objects": lambda a: a.astype(int).astype(object),
        "Decimal": lambda a: _objects(a, lambda n: Decimal(int(n))),
        "Fraction": lambda a: _objects(a, lambda n: Fraction(int(n))),
        "frame": lambda a: _table(a, "float64"),
        "frame of integers": lambda a: _table(a, "int64"),
        "nullable frame": lambda a: _table(a, "Float64"),
        "nullable integers": lambda a: _table(a, "Int64"),
        "mixed frame": lambda a: _table(a, "Float64", "int64", "float64", "Int64"),
    }
    try:
        import torch
    except ImportError:
        return kinds
    return kinds | {
        "tensor": torch.tensor,
        "tensor of integers": lambda a: torch.tensor(a.astype(int)),
        "tensor that requires grad": lambda a: torch.tensor(a, requires_grad=True),
        "bfloat16": lambda a: torch.tensor(a, dtype=torch.bfloat16),
        "list of tensors": lambda a: [torch.tensor(row, requires_grad=True) for row in a],
    }


def refused() -> dict[str, tuple[Callable[[Array], Any], str]]:
    """Return makers of what is refused, and a part of the message."""

    def one_missing(a: Array, what: Any) -> Array:
        a = a.astype(object)
        a.flat[0] = what
        return a

    kinds: dict[str, tuple[Callable[[Array], Any], str]] = {
        "NA": (lambda a: one_missing(a, pd.NA), "missing"),
        "None": (lambda a: one_missing(a, None).tolist(), "missing"),
        "NaN": (lambda a: a * np.nan, "NaN"),
        "infinite": (lambda a: a + np.inf, "infinit"),
        "complex": (lambda a: a + 1j, "omplex"),
        "text": (lambda a: a.astype(str), "astype(float)"),
        "text in objects": (lambda a: one_missing(a, "1.0"), "astype(float)"),
        "categories": (lambda a: one_missing(a, "red"), "OneHotEncoder"),
        "dates": (lambda a: a.astype(int).astype("datetime64[D]"), "datetime64"),
        "masked": (lambda a: np.ma.masked_array(a, mask=a > 0), ".filled("),
        "longdouble": (lambda a: a.astype(np.longdouble), "64 bits"),
        "ragged": (lambda a: [[1.0, 2.0], [3.0]], "rows of one length"),
    }
    two_axes = {"sparse matrix": (lambda a: sparse.csr_matrix(np.atleast_2d(a)), ".toarray()")}
    try:
        import torch
    except ImportError:
        return kinds | two_axes
    return kinds | two_axes | {
        "sparse tensor": (lambda a: torch.tensor(a).to_sparse(), ".to_dense()")
    }  # fmt: skip


def entrances() -> Iterator[tuple[str, str, Callable[[Any], Any], Array]]:
    """Yield a name, an argument, a call with another value of it, and whole numbers for it."""
    from tests.wrong_arguments import examples as calls

    numbers = count()
    estimated = {"X": calls.X, "X_test": calls.XT}
    for name, example in calls.examples().items():
        if name in OTHERS:
            continue
        given = {a: v for a, v in example.arguments.items() if a in DATA and np.ndim(v) in (1, 2)}
        if "X_test" in example.parameters():
            given |= estimated
            if name.endswith("Regressor"):
                given["y"] = calls.Y
        given.pop("y_test", None)  # goes with y_train, and is read by the same function
        for argument, value in given.items():

            def call(new: Any, example: Any = example, argument: str = argument) -> Any:
                changed = {argument: new}
                if "path" in example.arguments:  # each kernel that is stored has its folder
                    changed["path"] = calls.FOLDER / f"kernel {next(numbers)}.zarr"
                if argument == "y_train" and "y_test" in example.arguments:
                    changed |= {"x_test": None, "y_test": None}  # both are classes, or numbers
                return example.call(**{**example.arguments, **changed})

            yield name, argument, call, np.rint(2 * np.asarray(value, np.float64))


def main() -> None:
    """Print, as lines of JSON, the kind of data, the function, the argument and what is wrong."""
    import jax
    from tests.wrong_arguments import examples
    from tests.wrong_arguments.outcomes import numbers, outcome

    os.chdir(examples.FOLDER)
    jax.config.update("jax_disable_most_optimizations", True)

    def found(result: Any) -> list[Array]:
        return [np.asarray(array) for _, array in numbers(result, "", 0)]

    def wrong(call: Callable[[Any], Any], value: Any, wanted: list[Array]) -> str:
        what = outcome(lambda: results.append(call(value)))
        if what != "result":
            return what
        got = found(results.pop())
        same = len(got) == len(wanted) and all(
            a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
            for a, b in zip(got, wanted, strict=True)
        )
        return "" if same else "gives other numbers"

    results: list[Any] = []
    for name, argument, call, value in entrances():
        wanted = found(call(value))
        checks = {kind: wrong(call, make(value), wanted) for kind, make in taken().items()}
        if argument[0] in "xXy":
            bits = value > 0
            checks["Booleans"] = wrong(call, bits, found(call(bits.astype(float))))
        for kind, (make, words) in refused().items():
            answer = outcome(partial(call, make(value)))
            named = any(each in answer for each in (f"{argument}:", "x1: ", "X: ", "X, y: "))
            good = answer.startswith("Invalid") and words in answer and named
            checks[kind] = "" if good or answer.endswith("dtype complex128.") else answer
        for kind, what in checks.items():
            print(json.dumps([kind, name, argument, what]), flush=True)


if __name__ == "__main__":
    main()
