"""A wide run against its forecast, after the fact or while it trains."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from largen.arrays import as_array, known
from largen.errors import InvalidInput, WrongRun, instance_of
from largen.results import DataResult
from largen.scalars import flag, real
from largen.sweeps.law import TINY
from largen.sweeps.tables import columns_of, is_table
from largen.text import shown

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from largen.sweeps.forecasts import Forecast

SLACK = 0.01  # of log₂ of the rate, beyond the ends of the pilots' rates


class Expected(NamedTuple):
    """What a run of one rate is expected to have, in windows."""

    ends: np.ndarray  # the last step of each window
    loss: np.ndarray
    error: np.ndarray  # standard deviation of a run's loss about it
    dof: np.ndarray  # with which that is known

    def between(self, first: int, last: int) -> tuple[float, float, float]:
        """Return loss, error and degrees of freedom of windows first … last taken together.

        Their errors are taken to be the same all along, which is the largest that they can be.
        """
        steps = np.diff(self.ends, prepend=0)[first : last + 1]
        share = steps / steps.sum()
        one = slice(first, last + 1)
        return (
            float(share @ self.loss[one]),
            float(share @ self.error[one]),
            float(self.dof[one].min()),
        )

    def z(self, loss: float, first: int, last: int) -> float:
        """Return the distance of a run's loss, as that of a normal number of the same tail."""
        from scipy.stats import norm, t

        wanted, error, dof = self.between(first, last)
        if not np.isfinite(loss):
            return np.inf
        distance = (loss - wanted) / (error + TINY)
        z = float(norm.isf(t.sf(abs(distance), dof)))
        return float(np.sign(distance) * min(z, abs(distance)))


def expected(data: xarray.Dataset, lr: float) -> Expected:
    """Return the forecast at a rate, interpolated between those of the pilots."""
    x, at = np.log2(data["lr"].values), np.log2(checked_rate(data, lr))
    loss, error = data["watch"].values, data["watch_error"].values
    ends, dof = data["window"].values, data["watch_dof"].values
    i = int(np.abs(x - at).argmin())
    if abs(x[i] - at) <= SLACK:
        return Expected(ends, loss[i], error[i], dof[i])
    right = int(np.searchsorted(x, at))
    pair = np.array([right - 1, right])
    share = _lagrange(x[pair], at)
    straight = share @ loss[pair]
    three = np.unique(np.clip([i - 1, i, i + 1], 0, len(x) - 1))
    if len(three) < 3:
        three = np.arange(len(x))[max(0, len(x) - 3) :] if i else np.arange(min(3, len(x)))
    curved = _lagrange(x[three], at) @ loss[three]
    error = np.hypot(share @ error[pair], curved - straight)
    return Expected(ends, curved, error, dof[pair].min(0))


def _lagrange(x: np.ndarray, at: float) -> np.ndarray:
    """Return the weights of the values at x of the polynomial through them."""
    return np.array(
        [np.prod((at - np.delete(x, j)) / (x[j] - np.delete(x, j))) for j in range(len(x))]
    )


def checked_rate(data: xarray.Dataset, lr: Any) -> float:
    """Check that a rate is among those of the pilots."""
    rate, rates = real("lr", lr, above=0), data["lr"].values
    if not rates.min() * 2**-SLACK <= rate <= rates.max() * 2**SLACK:
        raise InvalidInput(
            f"lr: wanted a rate among those of the pilots, {rates.min():.3g} to "
            f"{rates.max():.3g}, got {shown(lr)}."
        )
    return rate


@dataclass(frozen=True)
class Monitored(DataResult):
    """A run against its forecast: the result of :meth:`largen.sweeps.Forecast.monitor`.

    Attributes
    ----------
    data
        Over windows, by their last steps ``window``: ``loss`` of the run, ``forecast`` and its
        ``error``, the standard deviation of a run about it, and ``z``.
    """

    data: xarray.Dataset

    def __post_init__(self) -> None:
        import xarray

        instance_of("data", self.data, xarray.Dataset, "a data set of a run that was watched")
        missing = {"z", "loss", "forecast", "error"} - set(self.data)
        if missing:
            raise InvalidInput(f"data: wanted a run that was watched, without {sorted(missing)}.")

    @classmethod
    def from_xarray(cls, dataset: xarray.Dataset) -> Monitored:
        """Return the result that :meth:`to_xarray` turned into a data set."""
        return cls(dataset)

    @property
    def z(self) -> np.ndarray:
        """The distances in standard deviations, (window,)."""
        return self.data["z"].values

    @property
    def alarm(self) -> int | None:
        """The step at which the run was first seen to be another one, or None."""
        late = np.flatnonzero(np.abs(self.z) > self.data.attrs["alarm"])
        return int(self.data["window"].values[late[0]]) if len(late) else None

    @property
    def verdict(self) -> str:
        """What that means, in words."""
        ends, steps = self.data["window"].values, int(self.data.attrs["steps"])
        worst = int(np.abs(self.z).argmax())
        if self.alarm is None:
            return (
                f"as foretold in {len(ends)} windows up to step {ends[-1]} of {steps}: the loss is "
                f"at most {abs(self.z[worst]):.1f} errors from its forecast, at step {ends[worst]}"
            )
        first = int(np.flatnonzero(ends == self.alarm)[0])
        z = self.z[first]
        if not np.isfinite(z):
            return f"at step {self.alarm} of {steps} the loss is not finite: the run diverges"
        way = "above" if z > 0 else "below"
        later = f" ({abs(self.z[worst]):.0f} at step {ends[worst]})" if worst != first else ""
        return (
            f"at step {self.alarm} of {steps} the loss is {abs(z):.1f} errors {way} its "
            f"forecast{later}: this run is not the model that the pilots were; compare its plan, "
            "rate, schedule, decay, data and initial weights with theirs"
        )

    def _figure(self) -> Figure:
        from largen.plots.forecasts import monitor_figure

        return monitor_figure(self.data)

    def __str__(self) -> str:
        head = f"run of size {self.data.attrs['target']:g} at the rate {self.data.attrs['lr']:.3g}"
        return f"{head}: {self.verdict}"


def watched(data: xarray.Dataset, history: Any, lr: Any, steps: Any, alarm: float) -> Monitored:
    """Return a run against its forecast; see :meth:`largen.sweeps.Forecast.monitor`."""
    import xarray

    ends, losses = _history(history, steps)
    tell = _Teller(expected(data, lr))
    for step, loss in zip(ends, losses, strict=True):
        tell(int(step), float(loss))
    if not tell.rows:
        first = int(tell.expected.ends[0])
        raise InvalidInput(
            f"history: no window of the forecast is complete; the first ends at step {first}, and "
            "entries have to end there."
        )
    names = ("loss", "forecast", "error", "z")
    window, *columns = map(np.array, zip(*tell.rows, strict=True))
    return Monitored(
        xarray.Dataset(
            {name: ("window", own) for name, own in zip(names, columns, strict=True)},
            {"window": window},
            {
                "lr": float(lr), "alarm": alarm, "steps": int(tell.expected.ends[-1]),
                "target": data.attrs["target"], "of": data.attrs["of"],
            },
        )
    )  # fmt: skip


def _history(history: Any, steps: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps behind each entry, and the losses."""
    if is_table(history):
        if steps is not None:
            raise InvalidInput("steps: the history has a column of steps; leave this out.")
        columns = columns_of("history", history, ("step", "loss"))
        ends, losses = columns["step"], columns["loss"]
    else:
        losses = _line("history", history)
        ends = np.arange(1, len(losses) + 1) if steps is None else _line("steps", steps)
    if len(ends) != len(losses):
        raise InvalidInput(f"steps: wanted {len(losses)}, one for each loss, got {len(ends)}.")
    whole = np.isfinite(ends).all() and np.array_equal(ends, np.round(ends))
    if not whole or np.any(np.diff(ends, prepend=0) <= 0):
        raise InvalidInput("steps: wanted integers ≥ 1 that increase from entry to entry.")
    return ends.astype(int), losses


def _line(name: str, values: Any) -> np.ndarray:
    """Return losses, which may be infinite or NaN where a run diverges."""
    known(name, values)
    array = np.asarray(as_array(name, values))
    if array.ndim != 1 or not array.size or array.dtype.kind not in "fiu":
        raise InvalidInput(f"{name}: wanted a list of numbers, got {shown(values)}.")
    return array.astype(float)


class _Teller:
    """Takes entries of a run one after the other, and tells z as windows become complete."""

    def __init__(self, expected: Expected):
        self.expected = expected
        self.rows: list[tuple[int, float, float, float, float]] = []
        self._told = 0  # windows that are done
        self._step, self._sum, self._steps = 0, 0.0, 0  # of the entries since
        self._torn = False  # whether the window began before the entries did

    def begin(self, step: int) -> None:
        """Go on behind a step whose losses were not seen, as from a checkpoint."""
        if step > self._step:
            ends = self.expected.ends
            self._told = int(np.searchsorted(ends, step, side="right"))
            self._torn = step not in ends
            self._step, self._sum, self._steps = step, 0.0, 0

    def __call__(self, step: int, loss: float) -> float | None:
        """Take an entry, the mean of the steps since the one before; return z of a window."""
        ends = self.expected.ends
        self._sum += loss * (step - self._step)
        self._steps, self._step = self._steps + step - self._step, step
        at = int(np.searchsorted(ends, step))
        if at >= len(ends) or ends[at] != step:
            return None
        mean, first, self._told = self._sum / self._steps, self._told, at + 1
        self._sum, self._steps = 0.0, 0
        if self._torn:
            self._torn = False
            return None
        z = self.expected.z(mean, first, at)
        wanted, error, _ = self.expected.between(first, at)
        self.rows.append((step, mean, wanted, error, z))
        return z


class Watch:
    """A callback that watches a run against its forecast; of :meth:`Forecast.watch`.

    In a loop of one's own, ``watch(loss)`` after each step. As a callback of the trainers of
    Hugging Face and of Lightning it reads the losses that they log, and each batch's; it needs
    neither of these libraries, and answers all their other events with nothing.
    """

    state_key = "largen forecast"  # by which Lightning keeps a callback's state

    def __init__(self, forecast: Forecast, lr: float, alarm: float, stop: bool):
        self.forecast, self.lr, self.alarm = forecast, lr, alarm
        self.stop = flag("stop", stop)
        self.alarmed: int | None = None  # the step of the first alarm
        self._tell = _Teller(expected(forecast.data, lr))
        self._part: list[Any] = []  # losses of the window so far, as they came
        self._step = 0

    def __call__(self, loss: Any) -> float | None:
        """Take the loss of one step; return z where a window ends, and None otherwise.

        Losses that are tensors are read when a window ends, so that no device is waited for.
        """
        self._part.append(loss.detach() if hasattr(loss, "detach") else loss)
        self._step += 1
        ends = self._tell.expected.ends
        if self._step not in ends:
            return None
        values = [real_or_infinite("loss", each) for each in self._part]
        self._part = []
        return self._take(self._step, float(np.mean(values)))

    def monitored(self) -> Monitored:
        """Return what was seen so far, as :meth:`Forecast.monitor` does."""
        steps = [row[0] for row in self._tell.rows]
        losses = [row[1] for row in self._tell.rows]
        return self.forecast.monitor(losses, self.lr, steps, self.alarm)

    def _take(self, step: int, loss: float) -> float | None:
        z = self._tell(step, loss)
        if z is not None and abs(z) > self.alarm and self.alarmed is None:
            self.alarmed = step
            warnings.warn(self.monitored().verdict, WrongRun, stacklevel=3)
        return z

    # ------------------------------------------------------------ Hugging Face
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Go on behind the steps of a checkpoint."""
        self._tell.begin(int(state.global_step))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Read the mean loss of the steps since the last log."""
        if logs and "loss" in logs:
            self._take(int(state.global_step), float(logs["loss"]))
            if self.alarmed is not None and self.stop:
                control.should_training_stop = True

    # --------------------------------------------------------------- Lightning
    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Go on behind the steps of a checkpoint."""
        self._step = int(trainer.global_step)
        self._tell.begin(self._step)

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any = None, batch_idx: int = 0
    ) -> None:
        """Read the loss of a batch, of which several may make a step."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is None:
            return
        # Lightning has divided it by the number of batches of a step.
        self._part.append(loss.detach() if hasattr(loss, "detach") else loss)
        step, parts = int(trainer.global_step), self._part
        if step == self._step:
            return
        times = int(getattr(trainer, "accumulate_grad_batches", 1))
        self._part, self._step = [], step
        self._take(step, times * float(np.mean([real_or_infinite("loss", p) for p in parts])))
        if self.alarmed is not None and self.stop:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """Return nothing to keep."""
        return {}

    def load_state_dict(self, state_dict: Any) -> None:
        """Go on from a checkpoint, from the next window."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Answer the other events of trainers."""
        if name.startswith("on_") or name in ("setup", "teardown"):
            return _nothing
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing at an event."""


def real_or_infinite(name: str, value: Any) -> float:
    """Return a loss as a number, which may be infinite or NaN."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name}: wanted a number, got {shown(value)}.") from None
