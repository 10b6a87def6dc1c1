"""The forecast of a wide run from the losses of narrow ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.arrays import as_array, known
from largen.errors import InvalidInput, NumericalFailure, instance_of
from largen.memory import check_fits
from largen.scalars import flag, integer, integers, numpy_generator, real, sequence
from largen.sweeps.forecasts import Forecast
from largen.sweeps.law import TINY, Ladder
from largen.sweeps.plans import doubts_of_plan
from largen.sweeps.tables import columns_of
from largen.sweeps.trust import reasons
from largen.sweeps.windows import averaged, log_edges, watch_edges
from largen.text import shown

if TYPE_CHECKING:
    import xarray

MOST_DOF = 1e6
LAST = "last step of the window"


@dataclass(frozen=True, eq=False)
class Pilots:
    """Losses of networks of several sizes, all trained on the same batches for the same steps.

    Attributes
    ----------
    sizes
        The widths, two or more.
    losses
        For each size an array ``(rate, seed, step)``, with four seeds or more; eight are better.
        Infinite or NaN where training diverged.
    rates
        Values of η₀, the rate at the base, the same for all sizes.
    steps
        The number of steps behind each entry of the last axis; 1, 2, … by default.
    verified
        Whether the runs are of a plan whose verification passed, as a sweep knows it.
    doubts
        What is known against a forecast, in words.
    of
        The name of the losses.

    Raises
    ------
    InvalidInput
        If numbers of sizes, rates or steps do not fit the arrays, or there is one seed.

    Examples
    --------
    >>> draw = np.random.default_rng(0)
    >>> sizes, rates = [32, 64, 128], [2**-7, 2**-6, 2**-5]
    >>> losses = [2 + 3 / n + draw.normal(size=(3, 8, 50)) * (0.3 / n)**0.5 for n in sizes]
    >>> wide = Pilots(sizes, losses, rates).forecast(1024)
    >>> bool(abs(wide.best().loss.at - 2) < 0.1), round(wide.cost, 2)
    (True, 0.49)
    """

    sizes: Sequence[float] | np.ndarray
    losses: Sequence[Any] | np.ndarray
    rates: Sequence[float] | np.ndarray
    steps: Sequence[int] | np.ndarray | None = None
    verified: bool = field(default=False, kw_only=True)
    doubts: Sequence[str] = field(default=(), kw_only=True)
    of: str = field(default="loss", kw_only=True)

    def __post_init__(self) -> None:
        sizes = [real("sizes", n, above=0) for n in sequence("sizes", self.sizes, "a list")]
        rates = [real("rates", r, above=0) for r in sequence("rates", self.rates, "a list")]
        wanted = "a list of arrays (rate, seed, step), one for each size"
        losses = [_losses(a, len(rates)) for a in _entries(self.losses, wanted)]
        if len(sizes) < 2 or len(set(sizes)) < len(sizes):
            raise InvalidInput(f"sizes: wanted two sizes or more, got {shown(self.sizes)}.")
        if not rates or len(set(rates)) < len(rates):
            raise InvalidInput(f"rates: wanted one or more, got {shown(self.rates)}.")
        if len(losses) != len(sizes):
            raise InvalidInput(f"losses: wanted {len(sizes)} arrays, got {len(losses)}.")
        if len({a.shape[2] for a in losses}) > 1:
            raise InvalidInput("losses: all sizes are to have the same steps, on the same batches.")
        by_size, by_rate = np.argsort(sizes), np.argsort(rates)
        checked = {
            "sizes": [sizes[i] for i in by_size],
            "losses": [losses[i][by_rate] for i in by_size],
            "rates": [rates[i] for i in by_rate],
            "steps": _steps(self.steps, losses[0].shape[2]),
            "verified": flag("verified", self.verified),
            "doubts": tuple(sequence("doubts", self.doubts, "a list of sentences")),
            "of": instance_of("of", self.of, str, "a name"),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_table(cls, table: Any, columns: Mapping[str, str] | None = None) -> Pilots:
        """Return the pilots of a table with a row for each size, rate, seed and step.

        Parameters
        ----------
        table
            A frame, a dict of columns, or the path of a CSV file, with the columns ``size``,
            ``lr``, ``seed``, ``step`` (the number of steps behind it) and ``loss``.
        columns
            What these are called in the table, where it has other names:
            ``{"size": "d_model", "loss": "train/loss"}``.

        Raises
        ------
        InvalidInput
            If a column is missing, or runs have different steps or sizes different rates.

        Examples
        --------
        >>> rows = np.array(np.meshgrid([16, 32], [0.1, 0.2], [0, 1], [1, 2])).reshape(4, -1)
        >>> table = dict(zip(("width", "lr", "seed", "step"), rows))
        >>> pilots = Pilots.from_table(table | {"loss": np.ones(16)})
        >>> pilots.sizes, pilots.rates, [a.shape for a in pilots.losses]
        ([16.0, 32.0], [0.1, 0.2], [(2, 2, 2), (2, 2, 2)])
        """
        wanted = ("size", "lr", "seed", "step", "loss")
        rows = columns_of("table", table, wanted, columns)
        sizes, rates, steps = (np.unique(rows[name]) for name in ("size", "lr", "step"))
        losses = []
        for n in sizes:
            own = {name: column[rows["size"] == n] for name, column in rows.items()}
            seeds = np.unique(own["seed"])
            array = np.full((len(rates), len(seeds), len(steps)), np.nan)
            at = [
                np.searchsorted(labels, own[name])
                for name, labels in (("lr", rates), ("seed", seeds), ("step", steps))
            ]
            if len(set(zip(*at, strict=True))) < len(own["loss"]):
                raise InvalidInput(f"table: size {n:g} has two rows of one rate, seed and step.")
            array[tuple(at)] = own["loss"]
            _check_whole(array, f"table: size {n:g}")
            losses.append(array)
        return cls(sizes.tolist(), losses, rates.tolist(), steps.astype(int).tolist())

    def cost(self, size: float) -> float:
        """Return all trainings in trainings of one size, whose weights are size²."""
        runs = [
            a.shape[0] * a.shape[1] * n**2 for n, a in zip(self.sizes, self.losses, strict=True)
        ]
        return float(sum(runs)) / real("size", size, above=0) ** 2

    def forecast(
        self,
        size: float,
        *,
        plan: Any = None,
        windows: int = 8,
        draws: int = 1000,
        key: Any = 0,
        throw: bool = True,
    ) -> Forecast:
        """Return the forecast of a size; the arguments are those of :func:`forecast`."""
        size = real("size", size, above=0)
        if size < max(self.sizes):
            raise InvalidInput(
                f"size: wanted at least the widest pilots', {max(self.sizes):g}, got {size:g}."
            )
        integer("windows", windows, at_least=1)
        integer("draws", draws, at_least=2)
        flag("throw", throw)
        rng = numpy_generator(key)
        keep = np.all([np.isfinite(a).all((1, 2)) for a in self.losses], 0)
        rates = np.array(self.rates)
        if not keep.any():
            raise InvalidInput(
                "losses: pilots diverge at every rate, so that there is nothing to tell from; take "
                "lower rates."
            )
        notes = []
        if not keep.all():
            out = ", ".join(f"{rate:.3g}" for rate in rates[~keep])
            notes.append(f"pilots diverge at {out}, which is left out")
        edges = log_edges(len(np.asarray(self.steps)), windows)
        ladder = Ladder(np.array(self.sizes), [averaged(a[keep], edges) for a in self.losses])
        check_fits(
            24.0 * draws * keep.sum() * len(edges), f"draws: {draws} curves", "take fewer draws"
        )
        doubts = [*self.doubts, *doubts_of_plan(plan)]
        if len(self.sizes) < 3:
            notes.append("two sizes cannot check the law: a third would")
            if not (self.verified or plan is not None or doubts):
                doubts.append(
                    "rule 1: of two sizes, nothing can be told of losses that are not straight in "
                    "1/size; take a third, or pass plan=…, a plan that was verified"
                )
        state = rng.bit_generator.state
        sample = ladder.draws(ladder.fit(size), draws, rng)
        rng.bit_generator.state = state  # the same u, v and seeds at twice the size
        twice = ladder.draws(ladder.fit(2 * size), draws, rng)[..., -1]
        attributes = {
            "target": size, "of": self.of, "cost": self.cost(size), "notes": "\n".join(notes),
            "reasons": "\n".join(doubts + reasons(ladder)),
        }  # fmt: skip
        data = _data(self, ladder, keep, size, edges, (sample, twice))
        found = Forecast(data.assign_attrs(attributes))
        if throw and found.reasons:
            told = "\n  ".join(found.reasons)
            raise NumericalFailure(
                f"the forecast for size {size:g} is not to be trusted, and throw=False returns "
                f"it:\n  {told}",
                found,
            )
        return found


def forecast(
    sizes: Sequence[float] | np.ndarray,
    losses: Sequence[Any] | np.ndarray,
    rates: Sequence[float] | np.ndarray,
    size: float,
    *,
    steps: Sequence[int] | np.ndarray | None = None,
    plan: Any = None,
    windows: int = 8,
    draws: int = 1000,
    key: Any = 0,
    throw: bool = True,
) -> Forecast:
    """Forecast the losses of wide networks from those of narrow ones, of any training loop.

    At every rate and time, losses are straight in 1/n at leading order, E l_n = L + c m/n + …, for
    widths n up to m. The weights of the pilots' means are the best linear unbiased ones, given the
    scatter over seeds, V/n, and errors of the law: a next order c u (m/n)² with u ~ N(0, 0.1²), and
    an exponent 1 + v with v ~ N(0, 0.2²). Fewer parameters would be biased, and free ones cost more
    scatter than they save.

    All networks have to see the same batches in the same order, for the same number of steps and by
    the same schedule; with batches of their own the errors are several times as large. Rates and
    initial values have to be those of one plan (:func:`largen.transfer.torch.scale`).

    Parameters
    ----------
    sizes
        The pilots' widths: two, better three or more.
    losses
        For each size an array ``(rate, seed, step)``, such as (5, 8, 200), of training losses or
        losses of held-out samples; eight seeds are good, and below four nothing is said. Infinite
        or NaN where training diverged: such rates are left out, with a note.
    rates
        Values of η₀, the rate at the base, the same for all sizes.
    size
        The width of the forecast.
    steps
        The number of steps behind each entry of the last axis; 1, 2, … by default.
    plan
        The plan of the runs, whose verification is asked for; without it three sizes are needed.
    windows
        The number of windows of steps, of equal width in log, over which losses are averaged. An
        axis of up to twice as many entries stays as it is.
    draws
        The number of draws of the errors, for intervals.
    key
        The random key of the draws, or an integer.
    throw
        Whether to raise if the forecast is not to be trusted; otherwise it has its ``reasons``.

    Returns
    -------
    Forecast
        The loss curve with its errors, the best rate, and what pilots cost.

    Raises
    ------
    InvalidInput
        If arrays do not fit, or pilots diverge at every rate.
    NumericalFailure
        If a rule says that the forecast is not to be trusted. 1: the plan is not verified, or its
        scheme has no limit, or there is no plan and there are two sizes only. 2: fewer than four
        seeds. 3: size × variance over seeds changes between sizes. 4: seeds scatter by a quarter of
        the loss. 5: the other sizes miss the widest pilots. 6: losses turn with the size. 7: their
        differences do not shrink.

    Examples
    --------
    >>> draw = np.random.default_rng(0)
    >>> sizes, rates = [32, 64, 128], [2**-7, 2**-6, 2**-5]
    >>> valley = np.array([0.3, 0.0, 0.4])[:, None, None]
    >>> noise = [draw.normal(size=(3, 8, 50)) * (0.03 / n) ** 0.5 for n in sizes]
    >>> losses = [2 + valley + 3 / n + e for n, e in zip(sizes, noise)]
    >>> wide = forecast(sizes, losses, rates, 1024)
    >>> bool(abs(wide.best().loss.at - 2.0) < 0.02), bool(abs(wide.best().lr.at - 2**-6) < 0.001)
    (True, True)
    """
    pilots = Pilots(sizes, losses, rates, steps)
    return pilots.forecast(size, plan=plan, windows=windows, draws=draws, key=key, throw=throw)


def _data(
    pilots: Pilots,
    ladder: Ladder,
    keep: np.ndarray,
    size: float,
    edges: np.ndarray,
    draws: tuple[np.ndarray, np.ndarray],
) -> xarray.Dataset:
    """Return the numbers of a forecast."""
    import xarray

    fit = ladder.fit(size)
    steps = np.asarray(pilots.steps)
    starts = np.concatenate([[0], steps])
    by_time, by_window = ("lr", "time"), ("lr", "window")
    within = watch_edges(steps)
    losses = [averaged(a[keep], within) for a in pilots.losses]
    close = Ladder(ladder.sizes, losses, ladder.law).fit(size)
    own = close.seeds + close.single**2
    total = (close.law**2).sum(0) + own
    dof = close.dof * (total / np.maximum(own, TINY)) ** 2  # Welch and Satterthwaite's
    return xarray.Dataset(
        {
            "loss": (by_time, fit.mean),
            "loss_error": (by_time, fit.error),
            "loss_std": (by_time, fit.single),
            "law_error": (by_time, np.sqrt((fit.law**2).sum(0))),
            "loss_draws": (("draw", *by_time), draws[0]),
            "twice_draws": (("draw", "lr"), draws[1]),
            "pilot_loss": (("size", *by_time), ladder.means),
            "pilot_loss_error": (("size", *by_time), np.sqrt(ladder.noise)),
            "watch": (by_window, close.mean),
            "watch_error": (by_window, np.sqrt(total)),
            "watch_dof": (by_window, np.minimum(dof, MOST_DOF)),
        },
        {
            "lr": np.array(pilots.rates)[keep],
            "time": ("time", steps[edges[1:] - 1], {"long_name": LAST}),
            "time_start": ("time", starts[edges[:-1]], {"long_name": "step before the window"}),
            "size": ("size", ladder.sizes, {"long_name": "size of the pilots"}),
            "window": ("window", steps[within[1:] - 1], {"long_name": LAST}),
        },
    )


def _entries(values: Any, wanted: str) -> list[Any]:
    """Return the arrays of all sizes, also of an array with an axis of sizes."""
    if hasattr(values, "ndim") and values.ndim == 4:
        return list(np.asarray(values))
    return sequence("losses", values, wanted)


def _losses(values: Any, rates: int) -> np.ndarray:
    known("losses", values)
    array = np.asarray(as_array("losses", values))
    if array.dtype.kind not in "fiu" or array.ndim != 3 or not array.size:
        raise InvalidInput(
            f"losses: wanted arrays (rate, seed, step), got shape {array.shape} of {array.dtype}."
        )
    if array.shape[0] != rates:
        raise InvalidInput(
            f"losses: wanted {rates} rates along the first axis, got shape {array.shape}."
        )
    if array.shape[1] < 2:
        raise InvalidInput("losses: of one seed, nothing can be said of the scatter; take eight.")
    return array.astype(float)


def _steps(steps: Any, count: int) -> np.ndarray:
    if steps is None:
        return np.arange(1, count + 1)
    found = np.array(integers("steps", steps, 1))
    if len(found) != count or np.any(np.diff(found) <= 0):
        raise InvalidInput(f"steps: wanted {count} that increase, got {shown(steps)}.")
    return found


def _check_whole(losses: np.ndarray, where: str) -> None:
    """Check that runs of a table have the same steps, save where they diverged."""
    missing = np.isnan(losses)
    if missing.all(2).any():
        raise InvalidInput(f"{where}: a rate lacks a seed that another rate has.")
    # Runs that diverge end early: what is missing of them is behind the last step that they have.
    ends = np.logical_or.accumulate(~missing[..., ::-1], -1)[..., ::-1]
    if (missing & ends).any():
        raise InvalidInput(f"{where}: runs have losses at different steps.")
