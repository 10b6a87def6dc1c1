"""Distances of networks of finite width from their limit, and their power laws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.errors import instance_of
from largen.experiments.distances import (
    between_limits,
    chosen_samples,
    distances_of,
    error_of_limit,
    loss_of_limit,
    mean_shift,
    prediction_for,
)
from largen.experiments.matching import MATCHING, check_matching
from largen.experiments.power_law import PowerLaw, fit_exponent, fit_two_exponents
from largen.results import Result, with_labels
from largen.runs import Trajectory
from largen.scalars import sequence

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

KINDS = ("single", "mean")
# Variables for figures only, and their axes.
DRAWN = {
    **dict.fromkeys(("loss", "loss_low", "loss_high"), "step"),
    **dict.fromkeys(("network", "prediction"), "point"),
}


class Comparison(Result):
    """Distances of networks from their limit, by size; made by :func:`compare`.

    Attributes
    ----------
    exponents
        ``{"single": …, "mean": …}``: the fitted powers of the width, each an estimate with
        ``value`` and ``error``; NaN where fewer than two distances are resolved.
    depth_exponents
        The fitted powers of the depth in the same form, for limits of infinite depth; else None.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(1, "erf"), lg.ntk(), data, optimizer=lg.gd(lr=0.5), steps=2)
    >>> networks = [lg.train(run, width=n, seeds=8, key=0) for n in (16, 64)]
    >>> bool(lg.compare(lg.solve(run), networks).to_xarray()["single"][1] < 0.05)
    True
    """

    def __init__(
        self,
        dataset: xarray.Dataset,
        exponents: dict[str, PowerLaw],
        depth_exponents: dict[str, PowerLaw] | None = None,
    ):
        self._dataset = dataset
        self.exponents = exponents
        self.depth_exponents = depth_exponents

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return all numbers as an ``xarray.Dataset`` over ``width`` and ``step``.

        For a limit of infinite depth, over ``network``, with coordinates ``width`` and ``depth``.
        """
        laws = {"exponent": self.exponents, "depth_exponent": self.depth_exponents or {}}
        return self._dataset.assign_attrs(
            {
                f"{name}_{kind}": [law.value, law.error, law.amplitude]
                for name, fitted in laws.items()
                for kind, law in fitted.items()
            }
        )

    @classmethod
    def from_xarray(cls, dataset: xarray.Dataset) -> Comparison:
        """Return the comparison that :meth:`to_xarray` turned into a data set."""
        laws = {
            name: {
                kind: PowerLaw(*map(float, dataset.attrs[f"{name}_{kind}"]))
                for kind in KINDS
                if f"{name}_{kind}" in dataset.attrs
            }
            for name in ("exponent", "depth_exponent")
        }
        return cls(dataset, laws["exponent"], laws["depth_exponent"] or None)

    def _figure(self) -> Figure:
        """Draw the learning curves and the distances."""
        from largen.plots import comparison_figure, depth_figure, scheme_title

        if self.depth_exponents is not None:
            return depth_figure(self._dataset, self.exponents, self.depth_exponents)
        title = scheme_title(self._dataset.attrs["parameterization"])
        return comparison_figure([(title, self._dataset, self.exponents)])

    def __str__(self) -> str:
        d = self._dataset
        (rows,) = d["single"].dims
        depth = f" {'depth':>6}" if self.depth_exponents else ""
        head = f"{'width':>7}{depth} {'seeds':>6}  {'single network':>21}  {'ensemble mean':>21}"
        if "single_predicted" in d:
            head += f"  {'single, predicted':>17}"
        lines = [
            f"Distance from the limit ({d.attrs['theory']}), {d.attrs['parameterization']}, "
            f"root mean square over {d.attrs['on']} samples and steps",
            head,
            "-" * len(head),
        ]
        for row in range(d.sizes[rows]):
            at = d.isel({rows: row})
            width = f"{int(at['width'])}" if np.isfinite(at["width"]) else "∞"
            depth = f" {int(at['depth']):>6}" if self.depth_exponents else ""
            lines.append(
                f"{width:>7}{depth} {int(at['seeds']):>6}"
                f"  {_value(at['single'], at['single_error']):>21}"
                f"  {_value(at['mean'], at['mean_error']):>21}"
                + (f"  {float(at['single_predicted']):>17.2e}" if "single_predicted" in d else "")
            )
        lines.append("-" * len(head))
        if self.depth_exponents is None:
            lines.append(_powers(f"{'exponent':>14}", self.exponents))
        else:
            lines.append(_powers(f"{'power of the width':>21}", self.exponents))
            lines.append(_powers(f"{'power of the depth':>21}", self.depth_exponents))
        lines.append(_relative(d, rows))
        if (d["mean"] <= 2 * d["mean_error"]).any():
            lines.append("(below: not larger than twice its statistical error)")
        if d.attrs["limit_error"] > 0:
            lines.append(f"error of the limit itself: {d.attrs['limit_error']:.1e}")
        return "\n".join(lines)

    __repr__ = __str__


def compare(
    limit: Trajectory, nets: Trajectory | Sequence[Trajectory], *, on: str | None = None
) -> Comparison:
    """Measure the distances of networks of several widths from their limit.

    With d_s = f_s − f_limit for the networks s = 1 … S of one width, the distance of single
    networks is √⟨d_s²⟩ and that of the ensemble mean is √⟨d̄²⟩, averages over samples, steps and
    outputs. ⟨d̄²⟩ is estimated without the contribution of the finite number of networks, from
    pairs s ≠ s′ as ⟨d_s d_s′⟩. Fluctuations of order 1/√N and a shift of the mean of order 1/N
    make the distances fall as N^(−1/2) and N^(−1). Errors are bootstrapped over networks.

    A mean-field limit that was solved with ``fluctuations=True`` predicts the distance of single
    networks to leading order, √⟨N Var(f)⟩/√N, which the table shows as well.

    ``mean_shift``, among the report's variables, is the coefficient of 1/N in the ensemble's mean,
    lim N(⟨f⟩ − f_limit), extrapolated from all widths, with its statistical error.

    A limit of infinite depth is compared with networks of several widths and depths, and both
    powers are fitted together, ⟨d_s²⟩ = (a Nᵖ)² + (b L^q)². There ``nets`` may hold limits of
    infinite width and finite depth, too (solutions of :func:`largen.solve` for finitely many of the
    same blocks): they determine the power of the depth without that of the width.

    In the kernel limit the output at initialisation is random and of order one; there every
    network is compared with the limit's prediction given its own initial output. ``loss_limit``,
    the curve of the limit in the picture, is the mean loss over these outputs, which is above the
    loss of the mean output by half of the variance.

    Parameters
    ----------
    limit
        The trajectory that :func:`largen.solve` returned.
    nets
        The trajectory that :func:`largen.train` returned for one width, or a list for several.
    on
        ``"test"`` or ``"train"`` samples; test by default if there are any.

    Raises
    ------
    InvalidInput
        If a trajectory is not ok, or a limit where networks are wanted; if networks and limit are
        not of the same network, parameterization, optimizer, loss, data (by value) and times; the
        message names the difference.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), data, optimizer=lg.gd(lr=0.5), steps=5)
    >>> nets = [lg.train(run, width=n, seeds=8, key=0) for n in (16, 64)]
    >>> report = lg.compare(lg.solve(run), nets)
    >>> report.exponents["single"].value < 0
    True
    """
    instance_of("limit", limit, Trajectory, "the result of lg.solve")
    wanted = "results of lg.train"
    nets = [nets] if isinstance(nets, Trajectory) else sequence("nets", nets, wanted)
    for net in nets:
        instance_of("nets", net, Trajectory, wanted)
    endless = limit.depth == np.inf
    check_matching(limit, nets, any_depth=endless)
    nets = sorted(nets, key=lambda net: (net.width or np.inf, net.depth))
    on = chosen_samples(on, limit.f_test.size > 0)

    draw = np.random.default_rng(0)
    columns: dict[str, list[Any]] = {}
    predictions = [prediction_for(limit, net, on) if net.width else None for net in nets]
    for net, prediction in zip(nets, predictions, strict=True):
        if prediction is None:
            distances = between_limits(limit, net, on)
        else:
            distances = distances_of(net, prediction, on, draw)
        for name, value in distances.items():
            columns.setdefault(name, []).append(value)
    error = error_of_limit(limit, on)
    widths = np.array([net.width or np.inf for net in nets])
    if endless:
        depths = np.array([net.depth for net in nets])
        dataset = _by_network(limit, on, error, columns, widths, depths)
        return Comparison(dataset, *_laws_in_both(dataset, widths, depths, error))
    dataset = _by_width(limit, nets, predictions, on, error, columns, widths.astype(int))
    laws = {kind: fit_exponent(widths, *_squares(dataset, kind, error)) for kind in KINDS}
    return Comparison(dataset, laws)


def _laws_in_both(
    dataset: xarray.Dataset, widths: np.ndarray, depths: np.ndarray, error: Any
) -> Iterator[dict[str, Any]]:
    """Yield the powers of the width, then those of the depth, which are fitted together."""
    both = {
        kind: fit_two_exponents(
            widths, depths, *_squares(dataset, kind, error), common=kind == "mean"
        )
        for kind in KINDS
    }
    for i in (0, 1):
        yield {kind: laws[i] for kind, laws in both.items()}


def _by_width(
    limit: Trajectory,
    nets: list[Trajectory],
    predictions: list[Any],
    on: str,
    error: float,
    columns: dict[str, list[Any]],
    widths: np.ndarray,
) -> xarray.Dataset:
    """Return the distances over the axis ``width``."""
    import xarray

    spread = getattr(limit, f"f_{on}_fluctuation") if f"f_{on}_fluctuation" in limit else None
    if spread is not None:
        columns["single_predicted"] = [*(np.sqrt(np.mean(spread**2) / widths))]
    variables: dict[str, Any] = {
        name: (("width", DRAWN[name]) if name in DRAWN else "width", np.array(values))
        for name, values in columns.items()
    }
    sample = limit.to_xarray()[f"f_{on}"].dims
    about = "width times the shift of the mean output"
    for name, values in zip(("", "_error"), mean_shift(nets, predictions, on), strict=True):
        words = {"long_name": f"standard error of: {about}" if name else about}
        variables[f"mean_shift{name}"] = (sample, values, words)
    runs = [each.run for each in (limit, *nets) if each.run is not None]
    of_limit = loss_of_limit(limit, runs[0], on) if runs else None
    if of_limit is not None:
        words = {"long_name": "mean loss of networks in the limit"}
        variables["loss_limit"] = ("step", of_limit, words)
    coordinates = {"width": widths, "step": limit.step, "time": ("step", limit.time)}
    return xarray.Dataset(variables, coordinates, _attributes(limit, on, error))


def _by_network(
    limit: Trajectory,
    on: str,
    error: float,
    columns: dict[str, list[Any]],
    widths: np.ndarray,
    depths: np.ndarray,
) -> xarray.Dataset:
    """Return the distances over the axis ``network``, each of a width and a depth."""
    import xarray

    variables = {name: ("network", np.array(v)) for name, v in columns.items() if name not in DRAWN}
    coordinates = {"width": ("network", widths), "depth": ("network", depths)}
    return xarray.Dataset(variables, coordinates, _attributes(limit, on, error))


def _attributes(limit: Trajectory, on: str, error: float) -> dict[str, Any]:
    said = limit.to_xarray().attrs
    same = {key: said[key] for key in (*MATCHING, "theory", "reason")}
    return {**same, "on": on, "limit_error": error}


def _squares(dataset: xarray.Dataset, kind: str, error: float) -> tuple[np.ndarray, np.ndarray]:
    """Return squared distances and errors; an error e of the limit changes d² by 2de + e²."""
    square_error, distance = dataset[f"{kind}_square_error"].values, dataset[kind].values
    return dataset[f"{kind}_square"].values, np.hypot(square_error, error * (2 * distance + error))


def _relative(d: xarray.Dataset, rows: Any) -> str:
    """Return a line with the distances of the smallest and the largest networks, in per cent."""
    ends = [d.isel({rows: i}) for i in sorted({0, d.sizes[rows] - 1})]
    words = " to ".join(f"{100 * float(at['single_relative']):.2g} %" for at in ends)
    size = float(ends[-1]["output_size"])
    return f"outputs of the limit are {size:.3g} in size: single networks are off by {words} of it"


def _powers(name: str, laws: dict[str, PowerLaw]) -> str:
    return "  ".join([name, *(f"{laws[kind]!s:>21}" for kind in KINDS)])


def _value(value: Any, error: Any) -> str:
    value, error = float(value), float(error)
    if not np.isfinite(error):
        return "too few networks"
    text = f"{value:.2e} ± {error:.1e}"
    return text if value > 2 * error else f"below {2 * error:.1e}"
