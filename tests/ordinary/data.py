"""Kinds of data that scientists have: how rows lie, how they are stored, and targets.

Each kind is a function of a generator, a number of rows and a number of columns. What it returns is
given to a call; ``plain`` of it are the numbers meant, by which the answer is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp

Make = Callable[[np.random.Generator, int, int], Any]


@dataclass(frozen=True)
class Kind:
    """A kind of data.

    Attributes
    ----------
    make
        A function of a generator, rows and columns.
    columns
        The number of columns, if it is not that of other kinds.
    table
        Whether it has two axes only, so that it is no set of images.
    refused
        Whether a call may say that it wants these numbers in another form.
    large
        Whether activations without closed forms meet variances for which their sums are costly.
    """

    name: str
    make: Make
    columns: int | None = None
    table: bool = False
    refused: bool = False
    large: bool = False


def gaussian(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.standard_normal((n, d))


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _circle(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    t = np.linspace(0, 2 * np.pi, n, endpoint=bool(rng.integers(2)))
    waves = [f(k * t) for k in range(1, d // 2 + 2) for f in (np.cos, np.sin)]
    return np.stack(waves, axis=1)[:, :d]


def _grid(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return np.linspace(-1, 1, n)[:, None] * np.ones(d)


def _square_grid(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    along = np.linspace(-1, 1, 3)
    grid = np.stack(np.meshgrid(along, along), -1).reshape(-1, 2)
    return np.resize(grid, (n, 2)) @ np.eye(2, d)


def _opposite(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    x = gaussian(rng, n, d)
    x[1::2] = -x[: n // 2 * 2 : 2][: len(x[1::2])]
    return x


def _replaced(rows: slice, value: float) -> Make:
    def make(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        x = gaussian(rng, n, d)
        x[rows] *= value
        return x

    return make


def _duplicates(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    x = gaussian(rng, n, d)
    x[n // 2] = x[0]
    return x


def _near(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    x = gaussian(rng, n, d)
    x[n // 2] = x[0] * (1 + 1e-9)
    return x


def _constant_columns(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    x = gaussian(rng, n, d)
    x[:, ::2] = 1.0
    return x


def _mixed(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return gaussian(rng, n, d) * 10.0 ** rng.uniform(-2, 2, n)[:, None]


def _standardized(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    x = rng.gamma(2.0, size=(n, d)) * 10.0 ** np.arange(d)
    return (x - x.mean(0)) / x.std(0)


def _pixels(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return np.minimum(rng.poisson(60, (n, d)) * rng.integers(0, 3, (n, d)), 255).astype(float)


def _digits(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.integers(0, 17, (n, d)).astype(float)


def _scaled(scale: float) -> Make:
    return lambda rng, n, d: scale * gaussian(rng, n, d)


def _of(change: Callable[[np.ndarray], Any]) -> Make:
    return lambda rng, n, d: change(gaussian(rng, n, d))


def _integers(change: Callable[[np.ndarray], Any]) -> Make:
    return lambda rng, n, d: change(rng.integers(-3, 4, (n, d)) + np.eye(n, d, dtype=int))


def _frame(x: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"feature {i}" for i in range(x.shape[1])])


def _shuffled_frame(x: np.ndarray) -> pd.DataFrame:
    return _frame(x).set_index(np.arange(len(x))[::-1] * 3)


def _mixed_frame(x: np.ndarray) -> pd.DataFrame:
    frame = _frame(x)
    frame[frame.columns[0]] = frame[frame.columns[0]].astype(np.float32)
    return frame


def _strided(x: np.ndarray) -> np.ndarray:
    wide = np.zeros((2 * len(x), 3 * x.shape[1]))
    wide[::2, ::3] = x
    return wide[::2, ::3]


def _read_only(x: np.ndarray) -> np.ndarray:
    x.setflags(write=False)
    return x


def _tensor(x: np.ndarray) -> Any:
    import torch

    return torch.tensor(x)


def _leaf(x: np.ndarray) -> Any:
    return _tensor(x).requires_grad_()


def _kinds() -> list[Kind]:
    lie: dict[str, Make] = {
        "gaussian": gaussian,
        "norm √d": lambda rng, n, d: _unit(gaussian(rng, n, d)) * np.sqrt(d),
        "norm 1": lambda rng, n, d: _unit(gaussian(rng, n, d)),
        "circle": _circle,
        "grid in all columns": _grid,
        "square grid": _square_grid,
        "opposite rows": _opposite,
        "all zeros": lambda rng, n, d: np.zeros((n, d)),
        "all ones": lambda rng, n, d: np.ones((n, d)),
        "a row of zeros": _replaced(slice(1, 2), 0.0),
        "duplicates": _duplicates,
        "all rows equal": lambda rng, n, d: np.tile(gaussian(rng, 1, d), (n, 1)),
        "nearly equal rows": _near,
        "parallel rows": lambda rng, n, d: np.outer(rng.uniform(0.5, 2, n), gaussian(rng, 1, d)),
        "one-hot": lambda rng, n, d: np.eye(d)[rng.integers(0, d, n)],
        "constant columns": _constant_columns,
        "zero columns": lambda rng, n, d: gaussian(rng, n, d) * (np.arange(d) > 0),
        "mixed sizes": _mixed,
        "an outlier": _replaced(slice(2, 3), 1e3),
        "standardized": _standardized,
        "pixels 0 to 255": _pixels,
        "digits 0 to 16": _digits,
        "pixels 0 to 1": lambda rng, n, d: _pixels(rng, n, d) / 255,
        "counts": lambda rng, n, d: rng.poisson(2.0, (n, d)).astype(float),
        "mean 100": lambda rng, n, d: 100 + gaussian(rng, n, d),
        "positive": lambda rng, n, d: rng.uniform(size=(n, d)),
        "sorted": lambda rng, n, d: np.sort(gaussian(rng, n, d), axis=0),
        "±1": lambda rng, n, d: rng.choice([-1.0, 1.0], (n, d)),
        "few values": lambda rng, n, d: np.round(gaussian(rng, n, d)),
        **{f"scale {s:g}": _scaled(s) for s in (1e-6, 1e-3, 1e-1, 10.0, 1e3, 1e6)},
    }
    stored: dict[str, Callable[[np.ndarray], Any]] = {
        "single precision": lambda x: x.astype(np.float32),
        "Fortran order": np.asfortranarray,
        "strides": _strided,
        "backwards": lambda x: x[::-1, ::-1],
        "read-only": _read_only,
        "big-endian": lambda x: x.astype(">f8"),
        "a JAX array": lambda x: jnp.asarray(x, jnp.float32),
        "nested lists": lambda x: x.tolist(),
        "a list of rows": list,
    }
    tables: dict[str, Callable[[np.ndarray], Any]] = {
        "a frame": _frame,
        "a frame with an index": _shuffled_frame,
        "a frame of two precisions": _mixed_frame,
    }
    refused: dict[str, Callable[[np.ndarray], Any]] = {
        "half precision": lambda x: x.astype(np.float16),
        "objects": lambda x: x.astype(object),
        "a tensor": _tensor,
        "a tensor with gradients": _leaf,
    }
    tables_refused: dict[str, Callable[[np.ndarray], Any]] = {
        "a nullable frame": lambda x: _frame(x).convert_dtypes(),
        "a sparse matrix": sp.csr_matrix,
        "a sparse array": sp.csr_array,
    }
    whole: dict[str, Callable[[np.ndarray], Any]] = {
        "integers": lambda x: x,
        "bytes": lambda x: x.astype(np.int8),
        "Booleans": lambda x: x > 0,
        "lists of integers": lambda x: x.tolist(),
    }
    large = "an outlier", "mean 100", "scale 1000", "scale 1e+06"
    return [
        *(Kind(name, make, large=name in large) for name, make in lie.items()),
        *(Kind(name, _of(change)) for name, change in stored.items()),
        *(Kind(name, _of(change), table=True) for name, change in tables.items()),
        *(Kind(name, _of(change), refused=True) for name, change in refused.items()),
        *(Kind(n, _of(change), table=True, refused=True) for n, change in tables_refused.items()),
        *(Kind(name, _integers(change), refused=True) for name, change in whole.items()),
        Kind("a frame of integers", _integers(_frame), table=True, refused=True),
        Kind("points of a circle", _circle, columns=2),
        Kind("a sorted grid", _grid, columns=1),
        Kind("a single column", lambda rng, n, d: gaussian(rng, n, d), columns=1),
    ]


KINDS = {kind.name: kind for kind in _kinds()}


def plain(given: Any) -> np.ndarray:
    """Return the numbers that are meant, as floats; single precision stays that."""
    if sp.issparse(given):
        given = given.toarray()
    if hasattr(given, "detach"):
        given = given.detach().numpy()
    array = np.asarray(given)
    kept = array.dtype == np.float32 and not isinstance(given, pd.DataFrame)
    return np.array(array, np.float32 if kept else np.float64)


TARGETS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "gaussian": lambda rng, n: rng.standard_normal(n),
    "two outputs": lambda rng, n: rng.standard_normal((n, 2)),
    "a column": lambda rng, n: rng.standard_normal((n, 1)),
    "single precision": lambda rng, n: rng.standard_normal(n).astype(np.float32),
    "integers": lambda rng, n: rng.integers(-3, 4, n),
    "Booleans": lambda rng, n: np.arange(n) % 2 == 0,
    "±1": lambda rng, n: np.where(np.arange(n) % 2, -1.0, 1.0),
    "zeros": lambda rng, n: np.zeros(n),
    "a constant": lambda rng, n: np.full(n, 3.0),
    "mean 150": lambda rng, n: 150 + 50 * rng.standard_normal(n),
    "scale 1e-6": lambda rng, n: 1e-6 * rng.standard_normal(n),
    "scale 1e6": lambda rng, n: 1e6 * rng.standard_normal(n),
    "a list": lambda rng, n: rng.standard_normal(n).tolist(),
    "a series": lambda rng, n: pd.Series(rng.standard_normal(n), index=np.arange(n)[::-1]),
    "big-endian": lambda rng, n: rng.standard_normal(n).astype(">f8"),
    "every other": lambda rng, n: rng.standard_normal(2 * n)[::2],
}
TARGETS_REFUSED = ("integers", "Booleans")  # where numbers are wanted: may be said to be classes

CLASSES: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "0 and 1": lambda rng, n: np.arange(n) % 2,
    "three": lambda rng, n: np.arange(n) % 3,
    "texts": lambda rng, n: np.array(["cat", "dog"])[np.arange(n) % 2],
    "Booleans": lambda rng, n: np.arange(n) % 2 == 0,
    "whole floats": lambda rng, n: (np.arange(n) % 2).astype(float),
    "-1 and 1": lambda rng, n: np.where(np.arange(n) % 2, -1, 1),
    "objects": lambda rng, n: np.array(["a", "b"], object)[np.arange(n) % 2],
    "a list": lambda rng, n: (np.arange(n) % 2).tolist(),
    "a series": lambda rng, n: pd.Series(np.arange(n) % 2, index=np.arange(n)[::-1]),
    "a series of texts": lambda rng, n: pd.Series(["x", "y", "z"] * n).iloc[:n],
    "categories": lambda rng, n: pd.Series(pd.Categorical(["x", "y"] * n)).iloc[:n],
    "far integers": lambda rng, n: np.where(np.arange(n) % 2, 7, 1000),
}
