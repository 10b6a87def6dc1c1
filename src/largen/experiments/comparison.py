"""How far networks of finite width are from their limit, and how the distance falls."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.arrays import sequence
from largen.errors import InvalidInput, instance_of
from largen.experiments.power_law import PowerLaw, fit_exponent
from largen.files import save_figure
from largen.runs import Status, Trajectory
from largen.runs.trajectory import mean_loss
from largen.text import shown
from largen.theories import by_name

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

RESAMPLES = 1000
MATCHING = ("net", "parameterization", "optimizer", "loss")


class Comparison:
    """Distances of networks from their limit, by width; made by :func:`compare`.

    Attributes
    ----------
    exponents
        ``{"single": …, "mean": …}``: the fitted powers of the width, each an estimate with
        ``value`` and ``error``; NaN where fewer than two distances are resolved.
    """

    def __init__(self, dataset: xarray.Dataset, exponents: dict[str, PowerLaw]):
        self._dataset = dataset
        self.exponents = exponents

    def to_xarray(self) -> xarray.Dataset:
        """Return all numbers as an ``xarray.Dataset`` over ``width`` and ``step``."""
        return self._dataset.copy()

    def plot(self, path: str | PathLike[str] | None = None) -> Figure:
        """Draw the learning curves and the distances; write them to ``path`` if given."""
        from largen.plots import comparison_figure

        figure = comparison_figure(
            [(self._dataset.attrs["parameterization"], self._dataset, self.exponents)]
        )
        if path is not None:
            save_figure(path, figure)
        return figure

    def __str__(self) -> str:
        d = self._dataset
        head = f"{'width':>7} {'seeds':>6}  {'single network':>21}  {'ensemble mean':>21}"
        if "single_predicted" in d:
            head += f"  {'single, predicted':>17}"
        lines = [
            f"Distance from the limit ({d.attrs['theory']}), {d.attrs['parameterization']}, "
            f"root mean square over {d.attrs['on']} samples and steps",
            head,
            "-" * len(head),
        ]
        for row in d["width"].values:
            at = d.sel(width=row)
            lines.append(
                f"{int(row):>7} {int(at['seeds']):>6}"
                f"  {_value(at['single'], at['single_error']):>21}"
                f"  {_value(at['mean'], at['mean_error']):>21}"
                + (f"  {float(at['single_predicted']):>17.2e}" if "single_predicted" in d else "")
            )
        lines.append("-" * len(head))
        single, mean = self.exponents["single"], self.exponents["mean"]
        lines.append(f"{'exponent':>14}  {single!s:>21}  {mean!s:>21}")
        if (d["mean"] <= 2 * d["mean_error"]).any():
            lines.append("(below: not larger than twice its statistical error)")
        if d.attrs["limit_error"] > 0:
            lines.append(f"error of the limit itself: {d.attrs['limit_error']:.1e}")
        return "\n".join(lines)

    __repr__ = __str__


def compare(
    limit: Trajectory, nets: Trajectory | Sequence[Trajectory], *, on: str | None = None
) -> Comparison:
    """Measure how far networks of several widths are from their limit.

    With d_s = f_s − f_limit for the networks s = 1 … S of one width, the distance of single
    networks is √⟨d_s²⟩ and that of the ensemble mean is √⟨d̄²⟩, averages over samples, steps and
    outputs. ⟨d̄²⟩ is estimated without the contribution of the finite number of networks, from
    pairs s ≠ s′ as ⟨d_s d_s′⟩. Fluctuations of order 1/√N and a shift of the mean of order 1/N
    make the distances fall as N^(−1/2) and N^(−1). Errors are bootstrapped over networks.

    A mean-field limit that was solved with ``fluctuations=True`` says how far single networks
    should be to leading order, √⟨N Var(f)⟩/√N, and the table has that beside it.

    ``mean_shift``, among the report's variables, is the coefficient of 1/N in the ensemble's mean,
    lim N(⟨f⟩ − f_limit), extrapolated from all widths, with its statistical error.

    In the kernel limit the output at initialisation is random and of order one; there every
    network is compared with the limit's prediction given its own initial output.

    Parameters
    ----------
    limit
        What :func:`largen.solve` returned.
    nets
        What :func:`largen.train` returned for one width, or a list of them for several.
    on
        ``"test"`` or ``"train"`` samples; test by default if there are any.

    Returns
    -------
    Comparison
        Prints as a table; ``.exponents``, ``.plot()``, ``.to_xarray()``.

    Raises
    ------
    InvalidInput
        If a trajectory is not ok, or a limit where networks are wanted; if networks and limit are
        not of the same network, parameterization, optimizer, loss, data (by value) and times: it
        says which.

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
    import xarray

    instance_of("limit", limit, Trajectory, "the result of lg.solve")
    wanted = "results of lg.train"
    nets = [nets] if isinstance(nets, Trajectory) else sequence("nets", nets, wanted)
    for net in nets:
        instance_of("nets", net, Trajectory, wanted)
    _check(limit, nets)
    nets = sorted(nets, key=lambda net: net.width or 0)
    has_test = limit.f_test.size > 0
    on = chosen_samples(on, has_test)

    draw = np.random.default_rng(0)
    columns: dict[str, list[Any]] = {}
    for net in nets:
        for name, value in _one_width(limit, net, on, draw).items():
            columns.setdefault(name, []).append(value)
    widths = np.array([net.width for net in nets])
    limit_error = _limit_error(limit, on)
    shift = _mean_shift(limit, nets, on)
    spread = getattr(limit, f"f_{on}_fluctuation") if f"f_{on}_fluctuation" in limit else None
    if spread is not None:
        columns["single_predicted"] = [*(np.sqrt(np.mean(spread**2) / widths))]
    curves = dict.fromkeys(("loss", "loss_low", "loss_high", "loss_limit"), "step")
    axes = {**curves, "network": "point", "prediction": "point"}
    variables: dict[str, Any] = {
        name: (("width", axes[name]) if name in axes else "width", np.array(values))
        for name, values in columns.items()
    }
    sample = ("step", "sample" if on == "train" else "test_sample", "output")
    for name, values in zip(("mean_shift", "mean_shift_error"), shift, strict=True):
        variables[name] = (sample[: values.ndim], values)
    coordinates = {"width": widths, "step": limit.step, "time": ("step", limit.time)}
    attributes = {
        key: value
        for key, value in limit.to_xarray().attrs.items()
        if key in (*MATCHING, "theory", "reason")
    }
    dataset = xarray.Dataset(
        variables, coordinates, {**attributes, "on": on, "limit_error": limit_error}
    )
    # An error e of the limit changes a square d² by 2de + e².
    exponents = {
        kind: fit_exponent(
            widths,
            dataset[f"{kind}_square"].values,
            np.hypot(
                dataset[f"{kind}_square_error"].values,
                limit_error * (2 * dataset[kind].values + limit_error),
            ),
        )
        for kind in ("single", "mean")
    }
    return Comparison(dataset, exponents)


def _one_width(
    limit: Trajectory, net: Trajectory, on: str, draw: np.random.Generator
) -> dict[str, Any]:
    """Return the distances at one width with their errors, and what there is to draw."""
    prediction = _prediction(limit, net, on)
    outputs = getattr(net, f"f_{on}")
    distance = (outputs - prediction).reshape(len(outputs), -1).astype(np.float64)
    seeds = len(distance)
    # All that follows needs only the inner products of the networks' distances.
    gram = distance @ distance.T / distance.shape[1]
    counts = draw.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES)
    found = dict(zip(("single", "mean"), _squares(gram, np.ones((1, seeds))), strict=True))
    resampled = dict(zip(("single", "mean"), _squares(gram, counts), strict=True))
    numbers: dict[str, Any] = {"seeds": seeds}
    for kind, (square,) in found.items():
        enough = seeds > (1 if kind == "single" else 2)
        spread = float(np.std(resampled[kind])) if enough else float("inf")
        root = float(np.sqrt(max(square, 0.0)))
        # d√m = dm/(2√m) where the square is resolved; where it is not, the error is √dm.
        error = min(spread / (2 * root), spread**0.5) if root else spread**0.5
        numbers |= {kind: root, f"{kind}_error": error}
        numbers |= {f"{kind}_square": float(square), f"{kind}_square_error": spread}
    losses = getattr(net, f"loss_{on}")
    numbers["loss"] = losses.mean(0)
    numbers["loss_low"], numbers["loss_high"] = np.quantile(losses, (0.1, 0.9), axis=0)
    if net.run is not None:
        targets = getattr(net, f"y_{on}")
        shape = np.broadcast_shapes(prediction.shape, outputs.shape[:1] + prediction.shape[1:])
        predicted = np.broadcast_to(prediction, shape)
        numbers["loss_limit"] = mean_loss(net.run.loss, predicted, targets, leading=1).mean(0)
    # The first network's outputs after training beside the limit's, for the eye.
    numbers["network"] = outputs[0, -1].reshape(-1)
    numbers["prediction"] = prediction[0, -1].reshape(-1)
    return numbers


def _mean_shift(
    limit: Trajectory, nets: list[Trajectory], on: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return N times the distance of the mean from the limit, all widths together, and its error.

    N d̄ has the variance N · (N Var f)/S for S networks: widths count as S/N.
    """
    shifts, errors, weights = [], [], []
    for net in nets:
        distance = getattr(net, f"f_{on}") - _prediction(limit, net, on)
        seeds, width = len(distance), net.width or 1
        shifts.append(width * distance.mean(0))
        deviation = distance.std(0, ddof=1) if seeds > 1 else np.full(distance.shape[1:], np.nan)
        errors.append(width * deviation / np.sqrt(seeds))
        weights.append(seeds / width)
    share = np.array(weights) / np.sum(weights)
    error = np.sqrt(np.tensordot(share**2, np.square(errors), 1))
    return np.tensordot(share, np.array(shifts), 1), error


def _squares(gram: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ⟨d_s²⟩ and the mean of ⟨d_s d_s′⟩ over pairs s ≠ s′, for resampled networks."""
    own = np.diag(gram)
    single = counts @ own / counts.sum(1)
    pairs = counts.sum(1) ** 2 - (counts**2).sum(1)
    products = np.einsum("rs,rs->r", counts @ gram, counts) - counts**2 @ own
    return single, np.where(pairs > 0, products / np.maximum(pairs, 1), np.nan)


def _limit_error(limit: Trajectory, on: str) -> float:
    """Return the error of the limit's outputs; its predictions for known starts have none."""
    name = f"f_{on}_error"
    if by_name(limit.theory).random_outputs or name not in limit:
        return 0.0
    return float(np.sqrt(np.mean(getattr(limit, name) ** 2)))


def chosen_samples(on: Any, tested: bool) -> str:
    """Return the samples that outputs are compared on: ``"test"`` by default, if there are any.

    Raises
    ------
    InvalidInput
        For anything but ``"train"``, or ``"test"`` where there are test samples.
    """
    if on is None:
        return "test" if tested else "train"
    if not isinstance(on, str) or on not in (("train", "test") if tested else ("train",)):
        raise InvalidInput(f"on: wanted 'train', or 'test' where there are any, got {shown(on)}.")
    return on


def _prediction(limit: Trajectory, net: Trajectory, on: str) -> np.ndarray:
    """Return the limit's outputs, given the networks' initial ones where these matter."""
    theory = by_name(limit.theory)
    if not theory.random_outputs:
        return getattr(limit, f"f_{on}")[None]
    # A limit read from a file has lost its run; the networks were asked the same.
    limit = limit if limit.run is not None else Trajectory(limit.to_xarray(), net.run)
    train, test = theory().given(limit, net.f_train[:, 0], net.f_test[:, 0])
    return np.asarray(train if on == "train" else test)


def _check(limit: Trajectory, nets: list[Trajectory]) -> None:
    if limit.seeds is not None:
        raise InvalidInput("limit: wanted the result of lg.solve, got trained networks.")
    if not nets:
        raise InvalidInput("nets: wanted at least one result of lg.train, got none.")
    if limit.status is not Status.OK:
        raise InvalidInput(
            f"limit: its status is {limit.status!s}; networks have no distance to it."
        )
    theirs = limit.to_xarray()
    for net in nets:
        if net.seeds is None or net.width is None:
            raise InvalidInput("nets: wanted results of lg.train, got a limit.")
        if net.status is not Status.OK:
            raise InvalidInput(
                f"nets: the status at width {net.width} is {net.status!s}; there is no distance "
                "from the limit."
            )
        ours = net.to_xarray()
        for key in MATCHING:
            if ours.attrs[key] != theirs.attrs[key]:
                raise InvalidInput(
                    f"nets: the {key} at width {net.width} is {ours.attrs[key]}, the limit's "
                    f"{theirs.attrs[key]}."
                )
        # In files without the digests of all parts there still are these.
        arrays = {"times": "time", "y_train": "y_train", "y_test": "y_test"}
        other = [
            part
            for part, name in arrays.items()
            if not np.array_equal(getattr(net, name), getattr(limit, name))
        ]
        digests = limit.identity
        other += [p for p, one in net.identity.items() if digests.get(p, one) != one]
        if other:
            named = ", ".join(dict.fromkeys(other))
            raise InvalidInput(f"nets: at width {net.width}, not the limit's are: {named}.")


def _value(value: Any, error: Any) -> str:
    value, error = float(value), float(error)
    if not np.isfinite(error):
        return "too few networks"
    text = f"{value:.2e} ± {error:.1e}"
    return text if value > 2 * error else f"below {2 * error:.1e}"
