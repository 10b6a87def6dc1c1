"""Verdicts on a sweep: whether the best rate stays, whether larger is better, and than what."""

from __future__ import annotations

from math import hypot
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import xarray

LEVEL = 0.05  # of two-sided tests
STANDARD = "standard"
SEARCH = "search the base's constants (largen.sweeps.tune)"
NUMBERS = (
    "smallest", "largest", "shift", "shift_error", "change", "change_error", "change_sure",
    "against_standard", "against_standard_error", "against_standard_sure", "edge",
)  # fmt: skip


class Difference(NamedTuple):
    """The difference of two mean losses."""

    value: float
    error: float  # its standard error; NaN with one network on a side
    sure: bool  # whether it differs from 0, by Welch's test


def difference(after: np.ndarray, before: np.ndarray) -> Difference:
    """Return the difference of the means of two sets of networks, whose scatter may differ."""
    from scipy.stats import sem, ttest_ind  # slow to import

    value = float(after.mean() - before.mean())
    if not np.isfinite(value):  # one of them diverged, or was not trained
        return Difference(value, np.nan, bool(np.isinf(value)))
    if min(len(after), len(before)) < 2:
        return Difference(value, np.nan, False)
    error = float(np.hypot(sem(after), sem(before)))
    if not error:
        return Difference(value, 0.0, value != 0)
    test: Any = ttest_ind(after, before, equal_var=False)  # Welch's
    return Difference(value, error, bool(test.pvalue < LEVEL))


def verdicts(
    best: xarray.Dataset,  # the data set that ``Sweep.best`` returns
    loss: xarray.DataArray,  # losses (scheme, width, depth, seed, lr)
    lr: xarray.DataArray,  # the base's best rate of each scheme
    along: str,  # "width" or "depth"
) -> xarray.Dataset:
    """Return the numbers of :meth:`largen.sweeps.Sweep.verdicts`."""
    import xarray

    other = "depth" if along == "width" else "width"
    found = {name: np.full((best.sizes["scheme"], best.sizes[other]), np.nan) for name in NUMBERS}
    for i, scheme in enumerate(best["scheme"].values):
        for j, size in enumerate(best[other].values):
            at = {"scheme": scheme, other: size}
            for name, number in _numbers(best, loss, lr.sel(scheme=scheme), along, at).items():
                found[name][i, j] = number
    axes = ("scheme", other)
    return xarray.Dataset(
        {name: (axes, values) for name, values in found.items()},
        {axis: best[axis] for axis in axes},
    )


def _numbers(
    best: xarray.Dataset,
    loss: xarray.DataArray,
    lr: xarray.DataArray,
    along: str,
    at: dict[str, Any],  # the scheme, and the size along the other axis
) -> dict[str, Any]:
    """Return the numbers of one scheme, from its smallest to its largest size."""
    best_here, loss_here = best.sel(at), loss.sel(at)
    ran = loss_here.notnull().any(("seed", "lr")).values
    sizes = best[along].values[ran]
    if len(sizes) < 2 or not np.isfinite(float(lr)):
        return {}
    found: dict[str, Any] = {"smallest": sizes[0], "largest": sizes[-1]}
    low, high = (best_here.sel({along: size}) for size in (sizes[0], sizes[-1]))
    if low["trains"] and high["trains"]:
        steps = np.diff(np.log2(loss["lr"].values))
        step = float(np.median(steps)) if len(steps) else 1.0
        widths = [float(end["high"] - end["low"]) / 2 for end in (low, high)]
        found["shift"] = float(high["log2_lr"] - low["log2_lr"]) / step
        found["shift_error"] = hypot(*widths) / step
    small, large = (_at(loss_here.sel({along: size}), lr) for size in (sizes[0], sizes[-1]))
    found |= _named("change", difference(large, small))
    found["edge"] = best_here["edge"].values[ran].any()
    if STANDARD in best["scheme"].values and at["scheme"] != STANDARD:
        there = {**at, "scheme": STANDARD, along: sizes[-1]}
        tuned = _at(loss.sel(there), 2.0 ** best["grid"].sel(there))
        found |= _named("against_standard", difference(large, tuned))
    return found


def _at(loss: xarray.DataArray, lr: Any) -> np.ndarray:
    """Return the losses of the seeds that were trained at one rate; NaN if there is none."""
    nothing = np.full(1, np.nan)
    if not np.isfinite(float(lr)):
        return nothing
    found = loss.sel(lr=float(lr), method="nearest").values
    found = found[~np.isnan(found)]
    return found if len(found) else nothing


def _named(name: str, difference: Difference) -> dict[str, Any]:
    return {name + end: n for end, n in zip(("", "_error", "_sure"), difference, strict=True)}


def in_words(data: xarray.Dataset, along: str) -> list[str]:
    """Return the verdicts of one direction, a few lines for every scheme."""
    other = "depth" if along == "width" else "width"
    lines = []
    for scheme in data["scheme"].values:
        for size in data[other].values:
            own = {name: float(data[name].sel({"scheme": scheme, other: size})) for name in NUMBERS}
            if np.isfinite(own["smallest"]):
                head = f"{scheme}, {along} {own['smallest']:g} to {own['largest']:g}"
                head += f" at {other} {size}" if data.sizes[other] > 1 else ""
                lines += [f"{head}:", *(f"  {clause}" for clause in _clauses(own, along))]
    return lines


def _clauses(own: dict[str, float], along: str) -> list[str]:
    larger = "wider" if along == "width" else "deeper"
    clauses = []
    if np.isfinite(own["shift"]):
        stays = "stays" if abs(own["shift"]) <= own["shift_error"] else "moves"
        clauses.append(
            f"the best rate {stays} ({own['shift']:+.1f} ± {own['shift_error']:.1f} grid steps)"
        )
    change, sure = own["change"], bool(own["change_sure"] == 1)
    if np.isposinf(change):
        clauses.append("training diverges at the base's rate")
    elif np.isfinite(change):
        better = f"{larger} is better" if change < 0 else f"{larger} is worse: {SEARCH}"
        word = better if sure else f"whether {larger} is better is open"
        clauses.append(f"{word} ({_number(own, 'change')} at the base's rate)")
    against = own["against_standard"]
    if np.isfinite(against):
        lost = own["against_standard_sure"] == 1 and against > 0
        word = "better than" if against < 0 else "worse than"
        word = word if own["against_standard_sure"] == 1 else "not distinguished from"
        advice = f": {SEARCH}" if lost else ""
        clauses.append(f"{word} standard tuned there ({_number(own, 'against_standard')}){advice}")
    if own["edge"] == 1:
        clauses.append("a best rate is at an end of the grid: widen it")
    return clauses


def _number(own: dict[str, float], name: str) -> str:
    error = own[f"{name}_error"]
    known = f" ± {error:.2g}" if np.isfinite(error) else ", one seed"
    return f"{own[name]:+.3g}{known}"
