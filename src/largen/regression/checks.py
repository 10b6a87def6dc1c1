"""Checks of arguments that the functions for Gaussian processes share."""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.arrays import floating, in_words, is_traced, numbers, samples, shape_of
from largen.errors import InvalidInput, NoTheory, instance_of
from largen.parameterizations import Parameterization
from largen.scalars import LARGEST
from largen.text import shown


def training_inputs(x: Any, name: str = "x") -> np.ndarray:
    """Return training samples as a NumPy array (sample, input) or (sample, *space, channel)."""
    return np.asarray(_concrete(name, samples(name, x)))


def check_lazy(param: Any) -> None:
    """Check that networks in a parameterization keep their kernel, which a posterior rests on."""
    if param is None:
        return
    instance_of("param", param, Parameterization, "a parameterization such as lg.ntk()")
    if param.canonical_d > 0:
        raise NoTheory(
            f"param: in {param} outputs vanish with the width as N^(−{param.canonical_d}) at "
            "initialisation, and features move, so that there is no posterior of a fixed kernel. "
            "lg.posterior(kind='adaptive') has the one with features that move, lg.solve(run) the "
            "limit of training. Lazy parameterizations have d = 0: lg.ntk(), or "
            'lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, branch="1/2") for residual branches L^(−1/2).'
        )


def new_inputs(x_test: Any, x: np.ndarray) -> Any:
    """Check test samples: finite floats of the training samples' shape, possibly traced.

    There may be none, as in the last batch of a loop.
    """
    array = samples("x_test", x_test, no_rows=True)
    if array.shape[1:] != x.shape[1:]:
        raise InvalidInput(
            f"x_test: has {in_words(shape_of(array))} a sample, x has {in_words(shape_of(x))}."
        )
    return array


def training_targets(y: Any, rows: int) -> np.ndarray:
    """Return targets as float64, (sample,) or (sample, output)."""
    targets = floating("y", numbers("y", _concrete("y", y)), ndim=(1, 2))
    if np.abs(targets).max() > LARGEST:
        raise InvalidInput(f"y: wanted numbers up to {LARGEST:g}, whose squares are numbers, too.")
    if len(targets) != rows:
        raise InvalidInput(f"y: has {len(targets)} rows, x has {rows} samples.")
    return targets


def noise_variance(noise: Any, rows: int) -> np.ndarray:
    """Return the noise variance as float64, one number or one for each sample."""
    return _of_each_sample("noise", noise, ((), (rows,)))


def sample_weights(weights: Any, rows: int) -> np.ndarray:
    """Return weights of samples as float64, (sample,); all are one by default."""
    if weights is None:
        return np.ones(rows)
    given = _of_each_sample("weights", weights, ((rows,),))
    if not given.any():
        raise InvalidInput("weights: all are zero.")
    return given


def _of_each_sample(name: str, value: Any, shapes: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Check that an array has finite numbers ≥ 0 and one of the shapes."""
    wanted = " or ".join("one number" if not shape else f"{shape}" for shape in shapes)
    given = numbers(name, value)
    if given.shape not in shapes:
        raise InvalidInput(f"{name}: wanted {wanted}, got the shape {given.shape}.")
    if (given < 0).any():
        raise InvalidInput(f"{name}: wanted finite numbers ≥ 0, got {shown(value)}.")
    return given


def _concrete(name: str, array: Any) -> Any:
    if is_traced(array):
        raise InvalidInput(
            f"{name}: is traced by jit, grad or vmap; condition on training samples outside of "
            "it. Predictions may be traced."
        )
    return array
