"""The result of a sweep: the loss surface, the best rates on it, and how far they drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.errors import InvalidInput, instance_of, one_of
from largen.results import DataResult
from largen.scalars import integer
from largen.sweeps.cells import Cell
from largen.sweeps.optimum import optimum
from largen.sweeps.quality import quality
from largen.sweeps.verdicts import in_words, verdicts

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from largen.sweeps.forecasts import Forecast

AXES = ("scheme", "width", "depth")
# The probability that some rate of a shape seems to train although none does.
LEVEL = 0.05


@dataclass(frozen=True)
class Sweep(DataResult):
    """The losses of a sweep.

    Attributes
    ----------
    data
        ``loss (scheme, width, depth, seed, lr)`` after training, and ``loss_train (…, step)``
        before each step; weight_decay and momentum are axes too if there are several of them.
        Infinite where training diverged, NaN where nothing was trained, such as seeds that a width
        has fewer of. ``margin_error``, with
        the axes of ``loss``: the standard error, over the samples that the loss is a mean of, of
        its distance from the best constant answer's.
    """

    data: xarray.Dataset

    def __post_init__(self) -> None:
        import xarray

        instance_of("data", self.data, xarray.Dataset, "a data set of losses")
        missing = {"loss", "margin_error"} - set(self.data)
        if missing:
            raise InvalidInput(f"data: wanted the losses of a sweep, without {sorted(missing)}.")

    @classmethod
    def from_xarray(cls, dataset: xarray.Dataset) -> Sweep:
        """Return the result that :meth:`to_xarray` turned into a data set."""
        return cls(dataset)

    def best(self) -> xarray.Dataset:
        """Return the best rate of each scheme and shape.

        Returns
        -------
        xarray.Dataset
            Over (scheme, width, depth): ``log2_lr`` interpolated, with its interval from ``low``
            to ``high``; ``grid``, the best rate trained, and ``loss``, its mean over seeds;
            ``edge``, whether it is at an end of the grid; ``trains`` of that rate
            (:meth:`trains`). NaN where nothing trained without diverging.
        """
        import xarray

        loss = self._plain()
        x = np.log2(loss["lr"].values)
        optima = [optimum(x, block) for block in loss.values.reshape(-1, *loss.shape[-2:])]
        shape = loss.shape[:3]
        names = ("log2_lr", "low", "high", "grid", "loss", "edge")
        data = xarray.Dataset(
            {
                name: (AXES, np.array(values).reshape(shape))
                for name, values in zip(names, zip(*optima, strict=True), strict=True)
            },
            {axis: loss[axis] for axis in AXES},
        )
        there = abs(np.log2(loss["lr"]) - data["grid"]) < 1e-9
        data["trains"] = (self.trains() & there).any("lr")
        return data

    def trains(self) -> xarray.DataArray:
        """Return at which rates networks learn: whether they beat every constant prediction.

        The best constant prediction is that of the evaluated samples (their labels' frequencies,
        their targets' mean). A one-sided test, at the level 5 % for all rates of a shape together
        (Bonferroni), compares the distance between its loss and the mean loss of the networks with
        its error over samples, by Student's t with one degree of freedom less than there are
        samples. How networks of several seeds scatter does not enter: the statement is about
        those that were trained.

        Returns
        -------
        xarray.DataArray
            Over (scheme, width, depth, lr); False where training diverged or nothing was trained.
        """
        from scipy.special import stdtrit

        mean = self._plain().mean("seed")
        # The error of a mean over networks is at most the mean of their errors.
        error = self._plain("margin_error").mean("seed")
        samples = self.data.attrs.get("samples", np.inf)
        level = LEVEL / np.maximum(mean.notnull().sum("lr"), 1)
        trains = mean - stdtrit(samples - 1, level) * error < self.data.attrs["chance"]
        return trains.transpose(*AXES, "lr").rename("trains")

    def drift(self, along: str) -> xarray.DataArray:
        """Return the change of log₂ of the best rate along the width or the depth.

        Parameters
        ----------
        along
            ``"width"`` or ``"depth"``; the drift is from its smallest value. NaN where nothing
            trains.
        """
        one_of("along", along, ("width", "depth"))
        best = self.best()
        rate = best["log2_lr"].where(best["trains"])
        return (rate - rate.isel({along: 0})).rename(f"drift along the {along}")

    def transferred(self) -> xarray.Dataset:
        """Compare the losses at the base's best rate with those at the best rate of each shape.

        The transferred rate is the best one of the grid at the smallest width and depth. The ratio
        of the two losses measures the cost of transfer, which the drift of a flat minimum does not.

        Returns
        -------
        xarray.Dataset
            Over (scheme, width, depth): ``lr``, ``transferred``, ``retuned`` and ``ratio``;
            infinite if training diverges at the transferred rate.
        """
        best, loss = self.best(), self._plain()
        base = best["grid"].isel(width=0, depth=0)
        mean = loss.mean("seed")
        at = [
            mean.sel(scheme=scheme).sel(lr=2.0 ** float(base.sel(scheme=scheme)), method="nearest")
            if np.isfinite(base.sel(scheme=scheme))
            else mean.sel(scheme=scheme).isel(lr=0) * np.nan
            for scheme in loss["scheme"].values
        ]
        import xarray

        moved = xarray.concat([a.drop_vars("lr") for a in at], "scheme")
        moved = moved.assign_coords(scheme=loss["scheme"]).transpose(*AXES)
        return xarray.Dataset(
            {
                "lr": 2.0 ** base.drop_vars(("width", "depth")),
                "transferred": moved,
                "retuned": best["loss"],
                "ratio": moved / best["loss"],
            }
        )

    def quality(self, along: str) -> xarray.Dataset:
        """Return how well the best rate is extrapolated along the width or the depth.

        Three numbers with the names that Kalra and Barkeshli (arXiv 2605.21486) give them, in
        addition to :meth:`drift` and :meth:`transferred`; their formulas may differ. Below, n is
        the width or the depth, η*(n) the best rate, interpolated between rates of the grid, and
        L*(n) the smallest mean loss of the grid.

        * Fit error E: with log₂ η* = a + b·log₂ n by least squares over the k sizes that train,
          ``exponent`` is b and ``fit_error`` is E = √(Σ residual²/(k − 2)), in factors of two.
        * Robustness κ: a parabola in log₂ η through the logarithms of the best loss of the grid and
          of its neighbours has the coefficient c, so that loss/(smallest loss) = 1 + c·(log₂ η/η*)²
          + …: ``curvature`` is c, the share of the loss that a factor of two in the rate costs.
          ``kappa`` is the slope of log₂ c against log₂ n, so that c ∝ n^κ: where κ > 0, an error of
          the rate costs more at larger sizes.
        * Asymptotic penalty R(∞): ``loss_at_infinity`` is L(∞) of L*(n) = L(∞) + A n^(−p) by least
          squares with A > 0, L(∞) ≥ 0 and p of 0.1, 0.15, …, 3; of losses that do not fall with n,
          their mean. ``penalty`` is R(∞) = L(∞)/min L(∞) − 1, the minimum being that of all schemes
          at the other size. ``transferred_penalty`` has in its numerator the L(∞) of losses at
          the best rate of the smallest sizes, ``transferred_at_infinity``: a lower bound if these
          grow with n, and ∞ if training diverges at the largest n.

        Parameters
        ----------
        along
            ``"width"`` or ``"depth"``.

        Returns
        -------
        xarray.Dataset
            Over (scheme, the other axis). NaN where nothing trains, or there are too few sizes:
            two for exponents, three for E and R(∞). Of three or four sizes that span a factor of
            ten, R(∞) is an extrapolation, to be read as such.
        """
        one_of("along", along, ("width", "depth"))
        mean = self._plain().mean("seed")
        return quality(self.best(), mean, self.transferred()["transferred"], along)

    def verdicts(self, along: str) -> xarray.Dataset:
        """Return the gain and the cost of transfer from the smallest to the largest size.

        The rate is the base's best one on the grid, as in :meth:`transferred`. Differences of
        losses are between networks of several seeds; their errors are standard errors, and they
        are sure if Welch's test distinguishes them from 0 at the level 5 %. Where larger is not
        better at the base's rate, or the standard scheme with a rate tuned at the largest size is
        better, the base has faults that no rate corrects: :func:`largen.sweeps.tune` searches its
        constants.

        Parameters
        ----------
        along
            ``"width"`` or ``"depth"``.

        Returns
        -------
        xarray.Dataset
            Over (scheme, the other axis), between the sizes ``smallest`` and ``largest``:
            ``shift`` of the best rate in steps of the grid, with the half-widths of both intervals
            in quadrature; ``change`` of the loss at the base's rate; ``against_standard``, the loss
            at the base's rate minus that of ``"standard"`` at its best rate, both at the largest
            size; each with ``_error`` and the last two with ``_sure``; ``edge``, whether a best
            rate is at an end of the grid. NaN where sizes or schemes are missing.
        """
        one_of("along", along, ("width", "depth"))
        return verdicts(self.best(), self._plain(), self.transferred()["lr"], along)

    def forecast(
        self,
        width: int,
        *,
        of: str = "loss_train",
        scheme: Any = None,
        depth: int | None = None,
        windows: int = 8,
        draws: int = 1000,
        key: Any = 0,
        throw: bool = True,
    ) -> Forecast:
        """Forecast the losses of wider networks, trained for as many steps on the same batches.

        All networks of a sweep see the same batches, so that their losses differ by the width and
        the seed only, and losses are straight in 1/width under a plan that was verified; the law,
        the errors and the rules by which a forecast is refused are those of
        :func:`largen.sweeps.forecast`.

        Parameters
        ----------
        width
            The width of the forecast.
        of
            ``"loss_train"``, in windows of steps; ``"loss"``, of the held-out samples after
            training; or another variable of ``data`` with the same axes and at most one more.
        scheme, depth
            Which of the sweep's, if there are several. A forecast is in the width: over seeds,
            losses scatter by more than a larger depth changes them, and that does not shrink.
        windows, draws, key, throw
            As in :func:`largen.sweeps.forecast`.

        Returns
        -------
        Forecast
            The loss curve with its errors, the best rate, and what pilots cost.

        Raises
        ------
        InvalidInput
            If there is one width, or an argument is not that of the sweep.
        NumericalFailure
            If a rule says that the forecast is not to be trusted; also if the scheme has no limit,
            or the sweep's plans were not verified.

        Examples
        --------
        >>> from largen.sweeps import Grid, Task, sweep
        >>> from torch import nn
        >>> def mlp(width):
        ...     return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width),
        ...                          nn.ReLU(), nn.Linear(width, 2))
        >>> x = np.random.default_rng(0).normal(size=(640, 8)).astype("float32")
        >>> task = Task(x, (x[:, 0] > 0).astype(int), batch_size=16, steps=40)
        >>> grid = Grid(lrs=[2**-8, 2**-7, 2**-6], base=16, widths=[16, 32, 64], schemes=["mup"],
        ...             seeds={16: 8, 32: 6, 64: 4})
        >>> losses = sweep(mlp, task, grid, optimizer="adam")
        >>> wide = losses.forecast(width=256)
        >>> wide.reasons, bool(0.1 < wide.best().loss.at < 0.13)
        ([], True)
        """
        from largen.sweeps.pilots import pilots_of

        if depth is not None:
            integer("depth", depth, at_least=1)
        integer("width", width, at_least=int(self.data["width"].max()))
        pilots = pilots_of(self.data, of, scheme, depth)
        return pilots.forecast(width, windows=windows, draws=draws, key=key, throw=throw)

    def _figure(self) -> Figure:
        """Draw the loss against the rate, one panel for each scheme."""
        from largen.plots.sweeps import sweep_figure

        return sweep_figure(self.data, self.best())

    def __str__(self) -> str:
        best, moved, ran = self.best(), self.transferred(), self._plain().notnull()
        lines = ["best log2 rate [interval]: its loss (loss at the base's best rate)"]
        for scheme in best["scheme"].values:
            lines.append(str(scheme))
            for depth in best["depth"].values:
                cells = [
                    _cell(best.sel(at), float(moved["transferred"].sel(at)))
                    if ran.sel(at).any()
                    else " " * 34
                    for width in best["width"].values
                    for at in [{"scheme": scheme, "width": width, "depth": depth}]
                ]
                lines.append(f"  depth {depth:<4d}" + "   ".join(cells))
        widths = ", ".join(map(str, best["width"].values))
        none = f"×: no rate beats a constant answer at the level {LEVEL:.0%}"
        lines.append(f"columns: width {widths}; {none}; *: end of the grid")
        for along in ("width", "depth"):
            lines += in_words(self.verdicts(along), along)
        return "\n".join(lines)

    def _plain(self, name: str = "loss") -> xarray.DataArray:
        loss = self.data[name]
        extra = [axis for axis in loss.dims if axis not in (*AXES, "seed", "lr")]
        if extra:
            raise InvalidInput(
                f"the sweep has {' and '.join(map(str, extra))} as axes; choose one value first: "
                f"Sweep(found.data.sel({extra[0]}=…))."
            )
        return loss.transpose(*AXES, "seed", "lr")


def _cell(best: Any, moved: float) -> str:
    if not best["trains"]:
        return f"{'×':^34s}"
    mark = "*" if best["edge"] else " "
    rate = f"{float(best['log2_lr']):.1f}{mark}"
    interval = f"[{float(best['low']):.1f}, {float(best['high']):.1f}]"
    there = f"({moved:.3g})" if np.isfinite(moved) else "(diverges)"
    return f"{rate:>7s} {interval:>14s}: {float(best['loss']):.3g} {there}".ljust(34)


def surface(
    cells: Sequence[Cell],
    of_cells: Sequence[Mapping[str, np.ndarray]],
    attributes: Mapping[str, Any],
) -> Sweep:
    """Put the arrays of all cells, ``losses (replica, step)`` and others, into one data set.

    Rates that were trained in some cells only are NaN in the others.
    """
    import xarray

    def values(name: str) -> list:
        return sorted({getattr(r, name) for cell in cells for r in cell.replicas})

    coordinates = {
        "scheme": list(dict.fromkeys(str(cell.scheme) for cell in cells)),
        "width": sorted({cell.width for cell in cells}),
        "depth": sorted({cell.depth for cell in cells}),
        "weight_decay": values("weight_decay"),
        "momentum": values("momentum"),
        "seed": values("seed"),
        "lr": values("lr"),
    }
    where = {axis: {v: i for i, v in enumerate(labels)} for axis, labels in coordinates.items()}
    shape = tuple(map(len, coordinates.values()))
    numbers = {name: np.full(shape, np.nan) for name in ("final", "margin_error")}
    steps = of_cells[0]["losses"].shape[1]
    curves = np.full((*shape, steps), np.nan, np.float32)
    for cell, arrays in zip(cells, of_cells, strict=True):
        for i, r in enumerate(cell.replicas):
            at = (str(cell.scheme), cell.width, cell.depth)
            at += (r.weight_decay, r.momentum, r.seed, r.lr)
            index = tuple(where[axis][v] for axis, v in zip(coordinates, at, strict=True))
            curves[index] = arrays["losses"][i]
            for name, values_of in numbers.items():
                values_of[index] = arrays[name][i]
    axes = tuple(coordinates)
    data = xarray.Dataset(
        {
            "loss": (axes, numbers["final"]),
            "margin_error": (axes, numbers["margin_error"]),
            "loss_train": ((*axes, "step"), curves),
        },
        {**coordinates, "step": np.arange(steps)},
        dict(attributes),
    )
    single = [axis for axis in ("weight_decay", "momentum") if data.sizes[axis] == 1]
    return Sweep(data.squeeze(single))
