"""Errors in one pass of stochastic gradient descent, and where compute is best spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from largen.arrays import floating, numbers
from largen.bibliography import cites
from largen.errors import InvalidInput, instance_of
from largen.interrupts import interruptible
from largen.regression.learning_curves.descent import errors_in_steps, largest_rate
from largen.regression.learning_curves.inputs import different
from largen.regression.learning_curves.spectrum import Spectrum
from largen.results import DataResult, brief, fields_over, in_notebooks, plot_result, save_result
from largen.scalars import integer, integers, real
from largen.text import aligned

if TYPE_CHECKING:
    import xarray

_MOST_STEPS = 10**15
_FEWEST, _FINE, _ROUNDED = 4, 400, 1e-9  # widths and steps of a frontier; points; rounding


class Frontier(NamedTuple):
    """Where compute C = kBt is best spent; made by :meth:`OnePassCurve.frontier`.

    Attributes
    ----------
    compute
        C, (compute,).
    width, steps, mse_test
        The best k and t, and the error with them, (compute,).
    """

    compute: np.ndarray
    width: np.ndarray
    steps: np.ndarray
    mse_test: np.ndarray

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over(**dict.fromkeys(("compute", "width", "steps", "mse_test"), ("budget",)))
    save = save_result
    plot = plot_result


@cites("paquette2024phases", "bordelon2024dynamical")
@dataclass(frozen=True, repr=False)
class OnePassCurve(DataResult):
    """Errors in one pass of SGD; made by :func:`one_pass_sgd`.

    Attributes
    ----------
    data
        ``mse_test ([width,] step[, output])``, ``rate ([width])`` and ``largest_rate ([width])``,
        ``samples (step)``.
    """

    data: xarray.Dataset

    @property
    def mse_test(self) -> np.ndarray:
        """Mean squared error on new samples, ([width,] step[, output])."""
        return self.data["mse_test"].values

    @property
    def largest_rate(self) -> Any:
        """The rate from which errors grow without bound, a number or (width,)."""
        rate = self.data["largest_rate"].values
        return rate if rate.ndim else float(rate)

    def frontier(self, compute: Any) -> Frontier:
        """Return the best number of features for numbers C of products, and the error with it.

        A step of a batch B costs kB products, so that t = C/(kB) steps are done. Errors are
        interpolated in log t and log k, of several outputs their mean.

        Parameters
        ----------
        compute
            C > 0, (compute,).

        Raises
        ------
        InvalidInput
            For a curve without widths, fewer than four of them or of its steps, and where the best
            width is not inside of those of the curve.
        """
        data, C = self.data, numbers("compute", floating("compute", compute, ndim=1))
        if not (C > 0).all():
            raise InvalidInput(f"compute: wanted positive numbers, got {C.min():g}.")
        used = data["step"].values > 0
        if min(data.sizes.get("width", 0), int(used.sum())) < _FEWEST:
            raise InvalidInput(
                f"compute: wanted a curve of {_FEWEST} widths and {_FEWEST} steps or more; pass "
                "widths= and more steps to one_pass_sgd."
            )
        errors = data["mse_test"].mean("output") if "output" in data.dims else data["mse_test"]
        times, widths = data["step"].values[used].astype(float), data["width"].values.astype(float)
        lines = CubicSpline(np.log(times), np.log(errors.values[:, used]), axis=1)
        found = np.empty((3, len(C)))
        for i, c in enumerate(C):
            steps = c / (widths * data.attrs["batch_size"])
            inside = (steps >= times[0] * (1 - _ROUNDED)) & (steps <= times[-1] * (1 + _ROUNDED))
            if inside.sum() < _FEWEST:
                raise InvalidInput(
                    f"compute: {_FEWEST} widths or more take {c:.4g} products in the curve's "
                    f"{times[0]:.0f} to {times[-1]:.0f} steps; got {inside.sum()} of them."
                )
            logs = np.log(widths[inside])
            known = np.diagonal(lines(np.log(steps[inside]))[inside])
            fine = np.linspace(logs[0], logs[-1], _FINE)
            curve = CubicSpline(logs, known)(fine)
            best = int(np.argmin(curve))
            if not 0 < best < _FINE - 1:
                end, other = ("least", "smaller") if best == 0 else ("largest", "larger")
                raise InvalidInput(
                    f"compute: for {c:.4g} products the best of the widths is the {end} that has "
                    f"them in the curve; pass {other} widths to one_pass_sgd, or more steps."
                )
            k = np.exp(fine[best])
            found[:, i] = k, c / (k * data.attrs["batch_size"]), np.exp(curve[best])
        return Frontier(C, *found)

    def __repr__(self) -> str:
        data, facts = self.data, self.data.attrs
        data = data.mean("output") if "output" in data.dims else data
        one = "width" not in data.dims
        rows = [data] if one else [data.isel(width=i) for i in range(data.sizes["width"])]
        cells = [["features", "rate", "largest", *(f"step {t}" for t in data["step"].values)]]
        for row in rows:
            errors = [f"{float(e):.4g}" for e in row["mse_test"].values]
            rates = [f"{float(row[name]):.3g}" for name in ("rate", "largest_rate")]
            cells.append(["infinite" if one else str(int(row["width"])), *rates, *errors])
        head = f"OnePassCurve: batches of {facts['batch_size']}"
        return "\n".join([head, *(f"  {line}" for line in aligned(cells))])


@interruptible()
def one_pass_sgd(
    task: Spectrum,
    steps: Any,
    *,
    rate: float | None = None,
    batch_size: int = 1,
    widths: Any = None,
) -> OnePassCurve:
    """Predict the errors of one pass of stochastic gradient descent, with new samples in each step.

    Weights w of features f(x) with the kernel K change in each step by (η/B) Σ f(x)(y − w·f(x)),
    over B samples, from w = 0. For Gaussian features the mean squares C_i of missing weights in the
    modes follow exactly (the model of Paquette et al. 2024, and of Bordelon, Atanasov and Pehlevan
    2024; derived for largen from ⟨f fᵀCf fᵀ⟩ = 2ΛCΛ + Λ tr ΛC)

        C_i ← (1 − ηλ_i)² C_i + (η²/B)[λ_i² C_i + λ_i E],   E = Σ λ_i C_i + σ²,

    from C_i = v_i²/λ_i. Errors at all steps are the inverse of the generating function of this
    recursion, whatever their number. With k random features of the kernel the modes are those of
    the features, by the resolvent κ(1 − z(κ)/k) = s, and what no feature has is noise. The largest
    rate with finite errors is

        η = 2B/((B + 1)X),   X = c(1 + (B + 1)/k),   Σ λ_i/(c − λ_i) = B + 1,

    or, where X is inside of the features' spectrum, that with X at its edge.

    Parameters
    ----------
    task
        The :class:`Spectrum`. Of one of M samples, at most M/2 samples are used.
    steps
        Numbers of steps t ≥ 0.
    rate
        η; by default half of the largest one, for each width.
    batch_size
        B, samples at each step.
    widths
        Numbers k of random features; None for the kernel itself.

    Raises
    ------
    InvalidInput
        For wrong numbers, a rate at which errors grow without bound, or more samples than M/2.

    Notes
    -----
    The mean over features is a typical value where k is large: of tens of features at a rate near
    the largest, errors of some draws grow without bound. Features that are not Gaussian have other
    fourth moments, which count at small batches and large rates.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> i = np.arange(1, 201.0)
    >>> task = lg.regression.Spectrum(i**-1.5, i**-1.6, noise=0.05)
    >>> found = lg.regression.one_pass_sgd(task, [20, 100, 400], rate=0.5, batch_size=4)
    >>> found.mse_test.round(3), round(found.largest_rate, 3)
    (array([0.514, 0.264, 0.145]), 1.258)
    """
    instance_of("task", task, Spectrum, "a spectrum, as lg.regression.target_spectrum returns")
    times = np.array(_in_order("steps", steps), float)
    batch = integer("batch_size", batch_size, at_least=1)
    task.check_samples("steps", batch * times.max())
    features = [np.inf] if widths is None else [float(k) for k in different("widths", widths)]
    largest = [largest_rate(task.eigenvalues, batch, k) for k in features]
    wanted = None if rate is None else real("rate", rate, above=0.0)
    if wanted is not None and wanted >= min(largest):
        raise InvalidInput(
            f"rate: errors grow without bound from {min(largest):.4g} on, got {wanted:g}."
        )
    rates = [most / 2 if wanted is None else wanted for most in largest]
    found = [
        errors_in_steps(task.population, times, eta, batch, k)
        for eta, k in zip(rates, features, strict=True)
    ]
    errors = np.array(found)
    if task.power.ndim == 1:
        errors = errors[..., 0]
    return OnePassCurve(
        _dataset(times, batch, widths is not None, features, (errors, rates, largest))
    )


def _dataset(
    times: np.ndarray,
    batch: int,
    several: bool,
    features: list[float],
    numbers: tuple[np.ndarray, list[float], list[float]],
) -> xarray.Dataset:
    import xarray

    lead = ("width",) if several else ()
    keep = slice(None) if several else 0
    errors, rates, largest = numbers
    out = ("output",) if errors.ndim == 3 else ()
    variables: dict[str, Any] = {
        "mse_test": ((*lead, "step", *out), errors[keep]),
        "rate": (lead, np.array(rates)[keep]),
        "largest_rate": (lead, np.array(largest)[keep]),
        "samples": ("step", batch * times),
    }
    coordinates: dict[str, Any] = {"step": times.astype(int)}
    if several:
        coordinates["width"] = np.array(features).astype(int)
    return xarray.Dataset(variables, coordinates, {"batch_size": batch})


def _in_order(name: str, numbers: Any) -> list[int]:
    found = integers(name, numbers, at_least=0, at_most=_MOST_STEPS)
    if not found or len(set(found)) < len(found):
        raise InvalidInput(f"{name}: wanted different numbers of steps, got {found}.")
    return sorted(found)
