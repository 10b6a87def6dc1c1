"""Values that are wrong for almost any argument."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from tests.wrong_arguments.examples import FOLDER, X, Y


class OwnError(Exception):
    """What a user's own function raises."""


class Anything:
    """An object of a user's own."""


class Unhashable:
    """A function that cannot be hashed."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __call__(self, x, *rest):
        return jnp.tanh(x)


class BadRepr:
    """An object that cannot even be printed."""

    def __repr__(self):
        raise OwnError("no repr")


class BadArray:
    """An object that fails when it is made an array."""

    def __array__(self, *args, **kwargs):
        raise OwnError("no array")

    def __float__(self):
        raise OwnError("no float")


def no_arguments():
    return 1.0


def branch_on_value(x, *rest):
    return x if x > 0 else -x


def to_float(x, *rest):
    return float(x)


def to_numpy(x, *rest):
    return np.tanh(np.asarray(x))


def raise_own(*args):
    raise OwnError("from the function")


def return_text(*args):
    return "text"


def return_none(*args):
    return None


def return_nan(x, *rest):
    return jnp.asarray(x, float) * jnp.nan


def return_pair(*args):
    return args[0], args[0]


def return_vector(x, *rest):
    return jnp.ones(7)


def softmax(x, *rest):
    return jnp.exp(x) / jnp.exp(x).sum()


def return_integer(x, *rest):
    return 3


def return_complex(x, *rest):
    return jnp.asarray(x) * 1j


def locked_folder() -> Path:
    folder = FOLDER / "locked"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o500)
    return folder


def plain_file() -> Path:
    file = FOLDER / "plain.txt"
    file.write_text("nothing\n")
    return file


def masked() -> Any:
    return np.ma.masked_array(X, mask=X > 0.5)


SCALARS: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "-1": -1,
    "0": 0,
    "1": 1,
    "0.5": 0.5,
    "-0.0": -0.0,
    "1e300": 1e300,
    "1e-300": 1e-300,
    "5e-324": 5e-324,
    "-1e300": -1e300,
    "1e200": 1e200,
    "1e39": 1e39,
    "2**70": 2**70,
    "2**63": 2**63,
    "2**32": 2**32,
    "10**400": 10**400,
    "-2**70": -(2**70),
    "Fraction": Fraction(1, 3),
    "Fraction(10**400)": Fraction(10**400, 3),
    "1j": 1j,
    "numpy 1": np.int64(1),
    "numpy uint64": np.uint64(2**64 - 1),
    "numpy nan": np.float32("nan"),
    "numpy True": np.True_,
    "longdouble": np.longdouble(1.5),
    "numpy scalar array": np.array(1.0),
    "jax scalar": jnp.float32(1.0),
    "datetime": np.datetime64("2020-01-01"),
}
OBJECTS: dict[str, Any] = {
    "text": "x",
    "empty text": "",
    "number as text": "1",
    "1/0 as text": "1/0",
    "null byte": "a\0b",
    "long text": "x" * 5000,
    "surrogate": "\udc80",
    "bytes": b"x",
    "object": Anything(),
    "class": Anything,
    "int class": int,
    "bad repr": BadRepr(),
    "bad array": BadArray(),
    "empty list": [],
    "empty tuple": (),
    "empty dict": {},
    "dict": {"a": 1},
    "set": {1, 2},
    "list": [1, 2],
    "pair of text": ("a", "b"),
    "list with None": [1.0, None],
    "list with nan": [1.0, float("nan")],
    "pairs": [(0, 1), (1, 0)],
    "negative list": [-1, -2],
    "huge list": [2**70, 2**71],
    "decreasing list": [3.0, 2.0, 1.0],
    "ragged": [[1.0, 2.0], [3.0]],
    "nested": [[[[1.0]]]],
    "range": range(3),
    "generator": (value for value in (1.0, 2.0)),
    "ellipsis": ...,
    "slice": slice(3),
    "module": np,
    "path": FOLDER / "new.nc",
    "folder": FOLDER,
    "locked folder": locked_folder() / "file.nc",
    "plain file": plain_file(),
    "below a file": plain_file() / "file.nc",
    "missing folder": FOLDER / "none" / "file.nc",
    "long path": FOLDER / ("x" * 400),
}
ARRAYS: dict[str, Any] = {
    "empty array": np.zeros((0,)),
    "no rows": np.zeros((0, 3)),
    "no columns": np.zeros((2, 0)),
    "vector": np.array([1.0, 2.0, 3.0]),
    "row": X[:1],
    "transposed": X.T,
    "three axes": X[None],
    "five axes": np.ones((1, 1, 1, 2, 2)),
    "integers": np.eye(2, 3, dtype=int),
    "Booleans": X > 0,
    "complex": X + 1j,
    "longdouble array": X.astype(np.longdouble),
    "float16": X.astype(np.float16),
    "bfloat16": jnp.asarray(X, jnp.bfloat16),
    "float32": X.astype(np.float32),
    "big-endian": X.astype(">f8"),
    "big-endian vector": Y.astype(">f8"),
    "longdouble vector": Y.astype(np.longdouble),
    "masked": masked(),
    "masked vector": np.ma.masked_array(Y, mask=[True, False]),
    "objects": X.astype(object),
    "mixed objects": np.array([1.0, "a"], dtype=object),
    "texts": np.array(["a", "b"]),
    "number texts": np.array(["1.0", "2.0"]),
    "bytes array": np.array([b"a", b"b"]),
    "dates": np.array(["2020-01-01"] * 2, dtype="datetime64[D]"),
    "structured": np.zeros(2, dtype=[("a", float), ("b", int)]),
    "nan array": X * np.nan,
    "inf array": X * np.inf,
    "huge array": X * 1e300,
    "large array": X * 1e30,
    "tiny array": X * 1e-300,
    "subnormal array": X * 0 + 5e-324,
    "zeros": X * 0,
    "equal rows": X[[0, 0]],
    "not symmetric": np.array([[1.0, 2.0], [0.0, 1.0]]),
    "not positive": np.array([[1.0, 2.0], [2.0, 1.0]]),
    "singular": np.ones((2, 2)),
    "nan vector": np.array([1.0, np.nan]),
    "huge vector": Y * 1e300,
    "large integers": np.array([2**40, 2**62]),
    "unsigned": np.array([2**64 - 1, 1], dtype=np.uint64),
    "jax array": jnp.asarray(X),
    "jax vector": jnp.asarray(Y),
    "matrix": np.asmatrix(X),
    "read-only": np.broadcast_to(X[0], (2, 3)),
}
CALLABLES: dict[str, Any] = {
    "no arguments": no_arguments,
    "branch": branch_on_value,
    "float of value": to_float,
    "NumPy of value": to_numpy,
    "raises": raise_own,
    "gives text": return_text,
    "gives None": return_none,
    "gives NaN": return_nan,
    "gives pair": return_pair,
    "gives vector": return_vector,
    "gives integer": return_integer,
    "gives complex": return_complex,
    "softmax": softmax,
    "cumsum": jnp.cumsum,
    "sort": jnp.sort,
    "numpy function": np.tanh,
    "numpy cumsum": np.cumsum,
    "builtin": len,
    "unhashable": Unhashable(),
}
PATHS = (
    "path", "folder", "locked folder", "plain file", "below a file", "missing folder", "long path",
    "null byte", "surrogate", "empty text", "1", "None",
)  # fmt: skip
VALUES: dict[str, Any] = {**SCALARS, **OBJECTS, **ARRAYS, **CALLABLES}
TRACED: dict[str, Callable[[], Any]] = {
    "traced number": lambda: jnp.float32(1.0),
    "traced array": lambda: jnp.asarray(X, jnp.float32),
    "traced vector": lambda: jnp.asarray(Y, jnp.float32),
}
