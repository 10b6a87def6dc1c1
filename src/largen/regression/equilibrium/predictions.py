"""Predictions of posteriors with moving features."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from largen.arrays import known
from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.regression.checks import new_inputs
from largen.results import brief, in_notebooks, plot_result, save_result, with_labels

if TYPE_CHECKING:
    import xarray

Predict = TypeVar("Predict", bound=Callable[..., Any])


@cites("lauditi2025adaptive", "rubin2025kernels")
class AdaptivePrediction(NamedTuple):
    """Mean and variance of the outputs at test samples, features included in the inference.

    Attributes
    ----------
    mean
        (test_sample,) or (test_sample, output).
    variance
        The variance at each test sample, of the shape of the mean. In the limit it is that of
        γ₀√N f, in the units of the kernel and of the noise; at a width N it is that of f.
    covariance
        (test_sample, test_sample), with several outputs (test_sample, output, test_sample, output);
        None unless requested. In the units of the variance.
    mean_error
        Standard error of the mean over scramblings of the sites; 0 where no sites are used.
    correction
        lim N(⟨f⟩_N − f_∞) at each test sample, of the shape of the mean; None for several hidden
        layers.
    """

    mean: Any
    variance: Any
    covariance: Any
    mean_error: Any
    correction: Any

    __repr__ = brief
    _repr_html_ = in_notebooks
    save = save_result
    plot = plot_result

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return all arrays over ``test_sample``, with ``output`` if there are several."""
        return of_test_samples(self._asdict(), {"covariance": ("test_sample", "test_sample_2")})

    @classmethod
    def from_xarray(cls, dataset: xarray.Dataset) -> AdaptivePrediction:
        """Return the prediction that :meth:`to_xarray` turned into a data set."""
        return cls(*(dataset[name].values if name in dataset else None for name in cls._fields))


def at_any_number(predict: Predict) -> Predict:
    """Decorate ``predict(self, x_test, …)`` so that of no test samples it returns no rows."""

    @wraps(predict)
    def of_rows(self: Any, x_test: Any, **options: Any) -> AdaptivePrediction:
        if np.shape(x_test)[:1] != (0,):
            return predict(self, x_test, **options)
        given = new_inputs(x_test, self.x)
        found = predict(self, np.asarray(self.x[:1], given.dtype), **options)
        dataset = found.to_xarray()
        rows = {axis: slice(0) for axis in dataset.dims if str(axis).startswith("test_sample")}
        return AdaptivePrediction.from_xarray(dataset.isel(rows))

    return cast("Predict", of_rows)


def test_inputs(x_test: Any, x: np.ndarray) -> tuple[np.ndarray, Any]:
    """Return test samples in float64 after a check, and the precision of what is predicted."""
    known("x_test", x_test)
    given = new_inputs(x_test, x)
    if not len(given):
        raise InvalidInput(f"x_test: is empty, its shape is {given.shape}.")
    return np.asarray(given, np.float64), np.result_type(given.dtype, x.dtype, np.float32)


def of_test_samples(found: dict[str, Any], others: dict[str, tuple[str, ...]]) -> xarray.Dataset:
    """Return a data set of arrays over test samples, and outputs if they have a second axis."""
    import xarray

    variables: dict[str, Any] = {}
    for name, value in found.items():
        axes = others.get(name, ("test_sample", "output"))
        if name in others and np.ndim(value) == 4:
            axes = (axes[0], "output", axes[1], "output_2")
        if value is not None:
            variables[name] = (axes[: np.ndim(value)], np.asarray(value))
    return xarray.Dataset(variables)


def shaped(
    mean: np.ndarray,
    variance: np.ndarray | None,
    covariance: np.ndarray | None,
    mean_error: np.ndarray,
    correction: np.ndarray | None,
    *,
    single: bool,
    dtype: Any,
) -> AdaptivePrediction:
    """Return a prediction from arrays with an axis of outputs, without it for single targets."""
    found = AdaptivePrediction(mean, variance, covariance, mean_error, correction)
    if single:
        found = AdaptivePrediction(*(_of_one_output(part) for part in found))
    return AdaptivePrediction(*(None if part is None else part.astype(dtype) for part in found))


def _of_one_output(part: np.ndarray | None) -> np.ndarray | None:
    """Return an array without its axes of outputs."""
    if part is None:
        return None
    return part[:, 0] if part.ndim == 2 else part[:, 0, :, 0]
