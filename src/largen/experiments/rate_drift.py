"""How far the best learning rate drifts with the width, from a limit and small networks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory, instance_of
from largen.kernels import ntk_kernel
from largen.parameterizations import momentum_of, ntk
from largen.regression import critical_learning_rate
from largen.results import Result, with_labels
from largen.runs import Run
from largen.scalars import integers
from largen.text import aligned

if TYPE_CHECKING:
    import xarray

_FINE = 2000  # points at which interpolated curves are evaluated
_RESAMPLED = 200  # bootstrap samples


@cites("yang2022tensor", "bordelon2023depthwise")
@dataclass(frozen=True, repr=False)
class RateDrift(Result):
    """The best rates at several widths; made by :meth:`LearningRateCurve.drift`.

    Attributes
    ----------
    widths
        n, ``(width,)``.
    limit
        The best rate of the limit.
    optima
        The best rates, ``(width,)``.
    drift, drift_error
        log(optimum/limit), and its error; NaN for one network. It is the standard error over the
        networks and, in quadrature, the largest change if one of the rates is left out, since
        losses are interpolated between them.
    gap
        (loss of the networks − loss of the limit) at the limit's best rate.
    excess
        What networks lose at the limit's best rate against their own.
    """

    widths: np.ndarray
    limit: float
    optima: np.ndarray
    drift: np.ndarray
    drift_error: np.ndarray
    gap: np.ndarray
    excess: np.ndarray

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return ``optimum``, ``drift``, ``drift_error``, ``gap`` and ``excess`` over ``width``."""
        import xarray

        columns = {
            "optimum": self.optima, "drift": self.drift, "drift_error": self.drift_error,
            "gap": self.gap, "excess": self.excess,
        }  # fmt: skip
        return xarray.Dataset(
            {name: ("width", values) for name, values in columns.items()},
            {"width": self.widths},
            {"limit": self.limit},
        )

    def __repr__(self) -> str:
        rows = [["width", "best rate", "log drift", "loss gap", "excess loss"]]
        for n, rate, d, e, gap, excess in zip(
            self.widths, self.optima, self.drift, self.drift_error, self.gap, self.excess,
            strict=True,
        ):  # fmt: skip
            shown = f"{d:+.3f} ± {e:.3f}"
            rows.append([str(n), f"{rate:.4g}", shown, f"{gap:+.3g}", f"{excess:.2g}"])
        return "\n".join([f"best rate of the limit {self.limit:.4g}", *aligned(rows)])


def some_widths(widths: Iterable[int]) -> list[int]:
    """Check that an argument is a list of at least one width."""
    found = integers("widths", widths, at_least=1)
    if not found:
        raise InvalidInput("widths: wanted at least one, got none.")
    return found


def drift_of(
    rates: np.ndarray, limit: np.ndarray, networks: np.ndarray, width: int, widths: np.ndarray
) -> RateDrift:
    """Minimise ℓ_∞ + c/n at each n, with c = m(ℓ_m − ℓ_∞) of networks (rate, seed) of width m."""
    x, mean = np.log(rates), networks.mean(1)

    def minima(of: np.ndarray, kept: Any = slice(None)) -> _Minima:
        return _minima(x[kept], limit[kept], of[kept], width, widths)

    fine, at_infinity, curves, start, lowest = minima(mean)
    _check_inside(rates, start, lowest, widths)
    drift = fine[lowest] - fine[start]
    rng, seeds = np.random.default_rng(0), networks.shape[1]
    errors = np.full(len(widths), np.nan)
    if seeds > 1:
        chosen = rng.integers(seeds, size=(_RESAMPLED, seeds))
        drawn = [fine[minima(networks[:, i].mean(1)).lowest] for i in chosen]
        fewer = [minima(mean, np.arange(len(x)) != i) for i in range(1, len(x) - 1)]
        moved = [fine[each.lowest] - fine[each.start] - drift for each in fewer]
        errors = np.hypot(np.std(drawn, axis=0, ddof=1), np.abs(moved).max(0))
    every = np.arange(len(widths))
    return RateDrift(
        widths=widths,
        limit=float(np.exp(fine[start])),
        optima=np.exp(fine[lowest]),
        drift=drift,
        drift_error=errors,
        gap=curves[:, start] - at_infinity[start],
        excess=curves[:, start] - curves[every, lowest],
    )


class _Minima(NamedTuple):
    """Interpolated curves and their minima."""

    x: np.ndarray  # log η, (point,)
    limit: np.ndarray  # ℓ_∞, (point,)
    curves: np.ndarray  # ℓ_∞ + c/n, (width, point)
    start: int  # of the limit
    lowest: np.ndarray  # (width,)


def _minima(
    x: np.ndarray, limit: np.ndarray, narrow: np.ndarray, width: int, widths: np.ndarray
) -> _Minima:
    """Return the minimum of the limit, and those downhill from it at each width."""
    fine = np.linspace(x[0], x[-1], _FINE)
    at_infinity, at_width = (CubicSpline(x, y)(fine) for y in (limit, narrow))
    start = int(np.argmin(at_infinity))
    curves = at_infinity + width * (at_width - at_infinity) / widths[:, None]
    lowest = np.array([_descend(curve, start) for curve in curves])
    return _Minima(fine, at_infinity, curves, start, lowest)


def _check_inside(rates: np.ndarray, start: int, lowest: np.ndarray, widths: np.ndarray) -> None:
    """Refuse minima at an end of the rates, beyond which the loss may fall further."""
    ends = 0, _FINE - 1
    low, high = rates[[0, -1]]
    stable = f"of the rates at which limit and networks are stable, {low:.4g} to {high:.4g}"
    if start in ends:
        side = "lower rates" if start == 0 else "rates beyond it, or closer to where training fails"
        raise InvalidInput(
            f"rates: the limit has its smallest loss at an end {stable}, so that its best rate is "
            f"not known; take {side}."
        )
    beyond = widths[np.isin(lowest, ends)].tolist()
    if beyond:
        raise InvalidInput(
            f"widths: at {', '.join(map(str, beyond))} the smallest loss is at an end {stable}; "
            "take more rates, or larger widths."
        )


def _descend(curve: np.ndarray, place: int) -> int:
    """Return the local minimum of a curve downhill from a place."""
    step = 1 if place + 1 < len(curve) and curve[place + 1] < curve[place] else -1
    while 0 <= place + step < len(curve) and curve[place + step] < curve[place]:
        place += step
    return place


@cites("bahri2022les", "yang2022tensor")
def critical_rates(run: Run, widths: Iterable[int]) -> np.ndarray:
    """Return the critical rate η₀ = 2(1 + β)P/λ_max at initialisation by width, in any scheme.

    The mean tangent kernel of networks of width n is, to leading order,

        Θ_n = v Σ_w ρ_w(n) Θ_w,

    with the part Θ_w of each weight in :func:`largen.ntk`, its rate over the variance at
    initialisation ρ_w, and the variance v of the read-out, both relative to :func:`largen.ntk`. In
    :func:`largen.ntk`, :func:`largen.mup` and :func:`largen.mean_field` it does not depend on n. In
    :func:`largen.standard` it is nA + B with the part B of the first layer, which has no limit at
    one rate: where B dominates the rate is constant, and at large n it falls as 1/n. The best rate
    follows the same law while features move little. On 16 of scikit-learn's digits, tanh and one
    hidden layer, its change between the widths 16 and 256 is −1.25 in the logarithm and −1.34 by
    this law; 1/n alone has −2.77.

    Parameters
    ----------
    run
        A run of gradient descent on the squared error whose network has a tangent kernel.
    widths
        n, one or several.

    Returns
    -------
    numpy.ndarray
        η₀ at each width, (width,).

    Raises
    ------
    InvalidInput
        If an argument is invalid.
    NoTheory
        For other optimizers and losses, and for parameterizations whose hidden layers change their
        variance with the width.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "tanh"), lg.standard(), data, optimizer=lg.gd(0.1), steps=9)
    >>> lg.training.critical_rates(run, [1, 16, 256]).round(4)
    array([6.8261, 1.4789, 0.1093])
    """
    instance_of("run", run, Run, "an lg.Run")
    if not run.optimizer.descends_in_steps:
        raise NoTheory(
            f"lg.training.critical_rates: wanted gradient descent such as lg.gd(0.1), got "
            f"{run.optimizer}."
        )
    if not run.loss.squared:
        raise NoTheory(
            'lg.training.critical_rates: wanted the loss "mse", whose curvature is the largest '
            f"eigenvalue of the tangent kernel over P, got {run.loss.name}."
        )
    beta = momentum_of(run.optimizer)
    found = [
        critical_learning_rate(
            ntk_kernel(run.net, run.data.x_train, param=ntk().with_rates(_factors(run, n))),
            momentum=beta,
        )
        for n in some_widths(widths)
    ]
    return np.array(found)


def _factors(run: Run, width: int) -> dict[str, float]:
    """Return vρ_w of all weights relative to :func:`largen.ntk`, by name."""
    sizes = {"width": width, "inputs": run.data.inputs}
    rows, usual = (param.table(run.net, **sizes).rows for param in (run.param, ntk()))
    scale, factors = 1.0, {}
    for row, other in zip(rows, usual, strict=True):
        mine, its = row.rule, other.rule
        if row.site.gain:  # the factor is 1 at the start, whatever the parameterization
            factors[row.name] = mine.lr * mine.multiplier**2 / (its.lr * its.multiplier**2)
            continue
        factors[row.name] = (mine.lr / mine.init_std**2) / (its.lr / its.init_std**2)
        variance = (mine.multiplier * mine.init_std) ** 2 / (its.multiplier * its.init_std) ** 2
        if row.site.last:
            scale = variance
        elif abs(variance - 1) > 1e-9:
            raise NoTheory(
                f"lg.training.critical_rates: {run.param} starts {row.name} at {variance:.3g} "
                "times the variance that keeps signals of order one."
            )
    return {name: scale * factor for name, factor in factors.items()}
