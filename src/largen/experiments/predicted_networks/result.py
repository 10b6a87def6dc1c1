"""The result of :func:`largen.training.predict_networks`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from scipy.special import ndtri

from largen.arrays import numbers
from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.experiments.distances import chosen_samples
from largen.experiments.predicted_networks.pilots import (
    Check,
    Draws,
    NextOrder,
    Pilots,
    error_of_mean,
    moments,
    quantiles,
)
from largen.results import DataResult
from largen.runs import Status
from largen.scalars import integer, real

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

Levels = ArrayLike | Sequence[float]


@cites("bordelon2023dynamics")
@dataclass(frozen=True, repr=False)
class PredictedNetworks(DataResult):
    """The law of networks of a width along training; made by :func:`predict_networks`.

    Attributes
    ----------
    data
        Mean and standard deviation over networks of outputs, ``f_train (step, sample[, output])``,
        ``f_train_std``, and the standard error of the mean, ``f_train_error``; draws of losses,
        ``loss_train (draw, step)``, the standard error of their mean, ``loss_train_error (step)``,
        and the mean loss of the limit, ``loss_train_limit (step)``; the same for test samples. The
        self check: ``spread_ratio (step)``, width times the variance of pilots over that of pilots
        of half their width, and ``check_noise``, ``check_share (step)``, the distance between
        predicted and actual losses of pilots over that of a sample, and over that of the limit; by
        theory ``next_order (step)``, the share in the variance of the next power of 1/width.
    status
        ``"ok"``, or ``"inaccurate"`` if the self check failed.
    unstable_from
        The first time index at which it failed; None if at none.
    """

    data: xarray.Dataset
    status: Status
    unstable_from: int | None
    _pilots: Pilots = field(compare=False)
    _check: Check | NextOrder = field(compare=False)
    _draws: int = field(compare=False)
    _seed: np.ndarray = field(compare=False)

    @property
    def loss_train(self) -> np.ndarray:
        """Draws of the training loss, ``(draw, step)``; a draw is the same network at all times."""
        return self._variable("loss_train")

    @property
    def loss_test(self) -> np.ndarray:
        """Draws of the test loss, ``(draw, step)``."""
        return self._variable("loss_test")

    @property
    def f_train(self) -> np.ndarray:
        """Mean outputs on training samples, ``(step, sample[, output])``."""
        return self._variable("f_train")

    @property
    def f_test(self) -> np.ndarray:
        """Mean outputs on test samples, ``(step, test_sample[, output])``."""
        return self._variable("f_test")

    @property
    def f_train_std(self) -> np.ndarray:
        """Standard deviations over networks of :attr:`f_train`."""
        return self._variable("f_train_std")

    @property
    def f_test_std(self) -> np.ndarray:
        """Standard deviations over networks of :attr:`f_test`."""
        return self._variable("f_test_std")

    def quantiles(self, levels: Levels, *, on: str | None = None) -> np.ndarray:
        """Return quantiles of the loss, ``(level, step)``.

        Parameters
        ----------
        levels
            Probabilities between 0 and 1.
        on
            ``"test"`` or ``"train"`` samples; test by default if there are any.
        """
        p = np.atleast_1d(numbers("levels", levels)).astype(np.float64)
        if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
            raise InvalidInput(f"levels: wanted probabilities between 0 and 1, got {p.tolist()}.")
        return quantiles(self.data[f"loss_{self._on(on)}"].values, p)

    def interval(self, level: float = 0.9, *, on: str | None = None) -> np.ndarray:
        """Return the ends between which a network's loss is with a probability, ``(2, step)``.

        Parameters
        ----------
        level
            The probability; as much lies below as above.
        on
            ``"test"`` or ``"train"`` samples; test by default if there are any.
        """
        tail = (1 - _probability(level)) / 2
        return self.quantiles([tail, 1 - tail], on=on)

    def output_interval(self, level: float = 0.9, *, on: str | None = None) -> np.ndarray:
        """Return the ends of the same for outputs, ``(2, step, sample[, output])``.

        They are those of a Gaussian of mean ``f_test`` and standard deviation ``f_test_std``.

        Parameters
        ----------
        level
            The probability.
        on
            ``"test"`` or ``"train"`` samples; test by default if there are any.
        """
        on = self._on(on)
        half = ndtri((1 + _probability(level)) / 2) * self.data[f"f_{on}_std"].values
        return self.data[f"f_{on}"].values + np.stack([-half, half]).astype(half.dtype)

    def outputs(self, step: int = -1, *, on: str | None = None) -> np.ndarray:
        """Return draws of the outputs at a time index, ``(draw, sample[, output])``.

        They are correlated between samples and between times as those of networks are: draw i is
        the same network at all times, and its loss is ``loss_test[i]`` in a mean-field limit.

        Parameters
        ----------
        step
            The time index, also from the end.
        on
            ``"test"`` or ``"train"`` samples; test by default if there are any.
        """
        last = self.data.sizes["step"] - 1
        step, on = integer("step", step, at_least=-last - 1, at_most=last), self._on(on)
        return self._networks(self.data.attrs["width"]).outputs(on, step % (last + 1))

    def at_width(self, width: int) -> PredictedNetworks:
        """Return the prediction at another width, from the same limit and pilots.

        Parameters
        ----------
        width
            n, at least the width of the pilots; any by theory in mean-field limits.
        """
        width = integer("width", width, at_least=self._pilots.width)
        attrs = {**self.data.attrs, "width": width}
        given = self._pilots, self._check, self._draws, self._seed
        return predicted(*given, width, self.data.coords, attrs)

    def _variable(self, name: str) -> np.ndarray:
        if name not in self.data:
            raise InvalidInput(f"{name}: the run has no test samples.")
        return self.data[name].values

    def _networks(self, width: int) -> Draws:
        return Draws(self._pilots, width, self._draws, self._seed)

    def _on(self, on: str | None) -> str:
        return chosen_samples(on, "test" in self._pilots.samples)

    def _figure(self) -> Figure:
        """Plot the loss with the middle nine tenths of networks, and outputs."""
        from largen.plots import predicted_networks_figure

        return predicted_networks_figure(self.data)

    def __repr__(self) -> str:
        about, on = self.data.attrs, self._on(None)
        loss, error = (self.data[f"loss_{on}{end}"].values[..., -1] for end in ("", "_error"))
        low, high = self.interval(on=on)[:, -1]
        limit = float(self.data[f"loss_{on}_limit"][-1])
        lines = [
            f"PredictedNetworks: width {about['width']}, {about['run']}",
            f"  from    the limit ({about['theory']}) and {about['pilots']} "
            f"{about['anchor']} of width {about['pilot_width']}",
            f"  status  {self.status}; {self._check}",
            f"  loss    {on}, after training: {loss.mean():.4g} ± {error:.2g}, 90 % of networks "
            f"{low:.4g} to {high:.4g}; limit {limit:.4g}",
        ]
        if self.unstable_from is not None:
            lines.insert(3, f"  note    the self check failed from time index {self.unstable_from}")
        return "\n".join(lines)


def _probability(level: Any) -> float:
    """Check the probability of an interval."""
    level = real("level", level, above=0.0)
    if level >= 1:
        raise InvalidInput(f"level: wanted a probability below 1, got {level:g}.")
    return level


def predicted(
    pilots: Pilots, check: Check | NextOrder, draws: int, seed: np.ndarray, width: int,
    coords: Any, attrs: dict[str, Any],
) -> PredictedNetworks:  # fmt: skip
    """Return the prediction at a width, with coordinates and attributes of its data set."""
    check = check.at(width)
    bad = np.flatnonzero(check.failed)
    first = int(bad[0]) if len(bad) else None
    status = Status.OK if first is None else Status.INACCURATE
    data = dataset_of(pilots, Draws(pilots, width, draws, seed), check, seed)
    data = data.assign_coords(coords).assign_attrs({**attrs, "status": str(status)})
    return PredictedNetworks(data, status, first, pilots, check, draws, seed)


def dataset_of(
    pilots: Pilots, networks: Draws, check: Check | NextOrder, seed: np.ndarray
) -> xarray.Dataset:
    """Return the variables of a prediction, without coordinates and attributes."""
    import xarray

    variables: dict[str, Any] = {}
    for on, one in pilots.samples.items():
        axes = ("step", "sample" if on == "train" else "test_sample", *pilots.axes)
        names = (f"f_{on}", f"f_{on}_std", f"f_{on}_error")
        found = moments(one, networks.rho)
        variables |= {
            name: (axes, a.astype(one.f.dtype)) for name, a in zip(names, found, strict=True)
        }
        limit, losses = one.losses, networks.losses(on)
        error = error_of_mean(pilots, networks.rho, on, seed)
        sampled = (1 - networks.rho) * limit.std(0) / len(limit) ** 0.5
        variables |= {
            f"loss_{on}": (("draw", "step"), losses),
            f"loss_{on}_error": ("step", np.hypot(error, sampled).astype(losses.dtype)),
            f"loss_{on}_limit": ("step", limit.mean(0)),
        }
    variables |= {name: ("step", each) for name, each in check.variables.items()}
    return xarray.Dataset(variables)
