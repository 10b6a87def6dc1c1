"""The result of a forecast: the loss curve of a wide network, its best rate, and their errors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import floor, log10
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput, instance_of, one_of
from largen.results import DataResult
from largen.scalars import real
from largen.sweeps.valley import Valleys, valleys
from largen.sweeps.watching import Monitored, Watch, checked_rate, watched

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

VARIABLES = {
    "loss", "loss_error", "loss_std", "law_error", "loss_draws", "twice_draws", "pilot_loss",
    "watch", "watch_error", "watch_dof",
}  # fmt: skip
LEVEL = 0.9
OFTEN = 0.1  # share of draws with the best rate at an end, from which that is said


class Interval(NamedTuple):
    """A median and the ends of an interval."""

    at: float
    low: float
    high: float


class Best(NamedTuple):
    """The best rate of the wide network, and what is lost at that of the pilots."""

    lr: Interval
    loss: Interval  # the mean over networks at the best rate
    network: Interval  # the loss of one network there
    pilot_lr: float  # the best rate of the widest pilots
    pilot_loss: float  # their loss there
    excess: Interval  # what the wide network loses at the rate of the widest pilots
    gain: Interval  # what a network of twice the size would gain
    edge: float  # the share of draws in which the best rate is at an end of the rates


@cites("bordelon2023dynamics", "yang2022tensor")
@dataclass(frozen=True)
class Forecast(DataResult):
    """What networks of one size will reach, by those of smaller sizes.

    The result of :meth:`largen.sweeps.Sweep.forecast` and :func:`largen.sweeps.forecast`.

    Attributes
    ----------
    data
        ``loss (lr, time)``, the mean over networks, with ``loss_error``, its standard error, of
        which ``law_error`` is that of the law in 1/size, and ``loss_std``, how single networks
        scatter about it; ``time`` is the last step of a window that begins behind ``time_start``.
        ``loss_draws (draw, lr, time)`` are draws of the mean, ``twice_draws (draw, lr)`` those of
        twice the size at the end; ``pilot_loss (size, lr, time)`` what the pilots have.
        ``watch (lr, window)``, ``watch_error`` and ``watch_dof`` are what :meth:`monitor`
        compares with.
    """

    data: xarray.Dataset

    def __post_init__(self) -> None:
        import xarray

        instance_of("data", self.data, xarray.Dataset, "a data set of a forecast")
        missing = VARIABLES - set(self.data)
        if missing:
            raise InvalidInput(f"data: wanted a forecast, without {sorted(missing)}.")

    @classmethod
    def from_xarray(cls, dataset: xarray.Dataset) -> Forecast:
        """Return the result that :meth:`to_xarray` turned into a data set."""
        return cls(dataset)

    @property
    def size(self) -> float:
        """The size that is foretold."""
        return float(self.data.attrs["target"])

    @property
    def cost(self) -> float:
        """All trainings of pilots in trainings of this size, of which weights are size²."""
        return float(self.data.attrs["cost"])

    @property
    def notes(self) -> list[str]:
        """What else is to be known, in words."""
        lines = [line for line in str(self.data.attrs["notes"]).split("\n") if line]
        if self.data.sizes["lr"] > 1 and self.best().edge > OFTEN:
            lines.append("the best rate may be at an end of the rates: take more of them")
        return lines

    @property
    def reasons(self) -> list[str]:
        """Why the forecast is not to be trusted, in words with the rules' numbers; usually none."""
        return [line for line in str(self.data.attrs["reasons"]).split("\n") if line]

    def interval(self, level: float = LEVEL, of: str = "network") -> xarray.DataArray:
        """Return the interval of losses at every rate and time.

        Parameters
        ----------
        level
            Its probability, between 0 and 1.
        of
            ``"network"``: of one network's loss; ``"mean"``: of the mean over networks.

        Returns
        -------
        xarray.DataArray
            Over (end, lr, time), with the ends ``"low"`` and ``"high"``.
        """
        import xarray

        one_of("of", of, ("network", "mean"))
        draws = self.data["loss_draws"].values
        if of == "network":
            draws = draws + self._normals[:, None, None] * self.data["loss_std"].values
        low_and_high = np.quantile(draws, _ends(level), axis=0)
        at = {axis: self.data[axis] for axis in ("lr", "time")}
        return xarray.DataArray(low_and_high, {"end": ["low", "high"], **at}, ("end", "lr", "time"))

    def best(self, level: float = LEVEL) -> Best:
        """Return the best rate at the end of training, and the losses there, with intervals.

        Each draw of the curve over rates has its minimum, of a parabola in log₂ of the rate about
        the lowest; the rate of the widest pilots is compared with it on the same draw.

        Parameters
        ----------
        level
            The probability of the intervals, between 0 and 1.
        """
        ends = [0.5, *_ends(level)]
        x, found = np.log2(self.data["lr"].values), self._valleys
        widest = self.data["pilot_loss"].values[-1, :, -1]
        pilots = valleys(x, widest[None])
        own = float(pilots.at[0])
        twice = valleys(x, self.data["twice_draws"].values)
        nearest = np.abs(x[:, None] - found.at).argmin(0)
        scatter = self._normals * self.data["loss_std"].values[nearest, -1]

        def interval(draws: np.ndarray) -> Interval:
            return Interval(*np.quantile(draws, ends).tolist())

        return Best(
            interval(2.0**found.at),
            interval(found.loss),
            interval(found.loss + scatter),
            2.0**own,
            float(pilots.loss[0]),
            interval(np.maximum(found.at_rate(own) - found.loss, 0.0)),
            interval(found.loss - twice.loss),
            float(found.edge.mean()),
        )

    def monitor(self, history: Any, lr: float, steps: Any = None, alarm: float = 4.0) -> Monitored:
        """Compare the losses of a wide run so far with the forecast, on the same batches.

        In windows of ten steps, z is the distance of the run's mean loss from the forecast over
        the standard deviation of both (the law, the pilots' seeds, one network's scatter), as that
        of a normal number of the same tail, since the scatter is estimated from few seeds.

        Parameters
        ----------
        history
            The losses of the run, each the mean of the steps since the entry before: one number
            for each step, or what a trainer logs. A frame or a dict with the columns ``step`` and
            ``loss``, or the path of such a CSV file, has the steps as well.
        lr
            The rate η₀ of the run. Between two rates of the pilots the forecast is interpolated.
        steps
            The number of steps behind each entry; 1, 2, … by default.
        alarm
            The size of z from which the run is said to be another one.

        Returns
        -------
        Monitored
            z in windows, and a verdict in words.

        Raises
        ------
        InvalidInput
            If there is no complete window, steps do not increase, or the rate is outside those of
            the pilots.
        """
        return watched(self.data, history, lr, steps, real("alarm", alarm, above=0))

    def watch(self, lr: float, alarm: float = 4.0, stop: bool = False) -> Watch:
        """Return a callback that watches a run while it trains.

        ``watch(loss)`` after each step of a loop; or ``callbacks=[watch]`` of the trainers of
        Hugging Face and Lightning. It warns once, by :class:`largen.errors.WrongRun`.

        Parameters
        ----------
        lr
            The rate η₀ of the run.
        alarm
            The size of z from which the run is said to be another one.
        stop
            Whether to end the run then, where a trainer does so when asked.
        """
        checked_rate(self.data, lr)
        return Watch(self, lr, real("alarm", alarm, above=0), stop)

    @cached_property
    def _valleys(self) -> Valleys:
        """The minimum of each draw at the end of training."""
        return valleys(np.log2(self.data["lr"].values), self.data["loss_draws"].values[..., -1])

    @property
    def _normals(self) -> np.ndarray:
        """One number for each draw: how far one network is off, the same at all times."""
        return np.random.default_rng(1).standard_normal(self.data.sizes["draw"])

    def _figure(self) -> Figure:
        from largen.plots.forecasts import forecast_figure

        return forecast_figure(self.data, self.best(), self.interval(), self.interval(of="mean"))

    def __str__(self) -> str:
        best, data = self.best(), self.data
        near = int(np.abs(np.log(data["lr"].values / best.lr.at)).argmin())
        sizes = ", ".join(f"{n:g}" for n in data["size"].values)
        law, one = (float(data[name].values[near, -1]) for name in ("law_error", "loss_std"))
        error = float(data["loss_error"].values[near, -1])
        seeds = max(error**2 - law**2, 0.0) ** 0.5

        def loss(*values: float) -> list[str]:
            return [_rounded(value, max(best.loss.high - best.loss.low, one)) for value in values]

        at, low, high, first, last, pilots = loss(*best.loss, *best.network[1:], best.pilot_loss)
        lines = [
            f"forecast of {data.attrs['of']} for size {self.size:g} from {sizes} "
            f"({LEVEL:.0%} intervals)",
            f"  best rate    {best.lr.at:.3g}, {best.lr.low:.3g} to {best.lr.high:.3g}; that of "
            f"the widest pilots, {best.pilot_lr:.3g}, costs {best.excess.at:.2g}, "
            f"{best.excess.high:.2g} at most",
            f"  final loss   {at} there: mean of networks {low} to {high}, one network {first} to "
            f"{last}; the widest pilots have {pilots}",
            f"  errors       at {data['lr'].values[near]:.3g}: seeds {seeds:.2g}, law {law:.2g}, "
            f"one network {one:.2g}",
            f"  twice that   size {2 * self.size:g} would gain {best.gain.at:.2g}, "
            f"{best.gain.low:.2g} to {best.gain.high:.2g}",
            f"  pilots cost  {self.cost:.2g} trainings of size {self.size:g}",
        ]
        if data.sizes["lr"] == 1:
            lines[1] = f"  rate         {best.lr.at:.3g}, the only one"
        lines += [f"  note         {note}" for note in self.notes]
        return "\n".join(lines + [f"  NOT TRUSTWORTHY: {reason}" for reason in self.reasons])


def _ends(level: float) -> list[float]:
    """Return the quantiles of an interval's ends."""
    if not real("level", level, above=0) < 1:
        raise InvalidInput(f"level: wanted a probability between 0 and 1, got {level}.")
    return [(1 - level) / 2, (1 + level) / 2]


def _rounded(value: float, error: float) -> str:
    """Return a number with the digits that its error leaves, and one more."""
    return f"{value:.{min(max(1 - floor(log10(error)), 0), 12)}f}" if error > 0 else f"{value:.6g}"
