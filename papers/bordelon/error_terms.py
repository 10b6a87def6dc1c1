"""Appendix I: the errors of width, depth and ensembles, added as signed numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.bordelon.branches import linear
from papers.claims import Claim, above, below
from papers.images import Images
from papers.powers import fitted_powers
from papers.record import Figure, Found, Part, Report
from papers.verdicts import WITHIN, alternative, near

ALPHA = "1/2"
BLOCKS = 16  # groups of networks that are left out, one at a time, for standard errors
LIMIT = "infinite width and depth"


class Settings(NamedTuple):
    """Widths, depths, number of networks of each depth by width, and sizes of ensembles."""

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    networks: tuple[int, ...]
    ensembles: tuple[int, ...]


class Terms(NamedTuple):
    """Terms of the error at one width and depth, as estimated from other networks.

    Attributes
    ----------
    variance
        Σ/N, mean over samples and steps.
    width, depth
        Mean squares of the biases c/N and d/L.
    product
        Twice the mean of their product.
    """

    variance: float
    width: float
    depth: float
    product: float

    def signed(self, ensemble: int) -> float:
        """Σ/(N E) + (c/N + d/L)²."""
        return self.variance / ensemble + self.width + self.depth + self.product

    def squares(self, ensemble: int) -> float:
        """Σ/(N E) + (c/N)² + (d/L)², as if biases were independent."""
        return self.variance / ensemble + self.width + self.depth

    def triangle(self, ensemble: int) -> float:
        """The square of the sum of norms, (128)."""
        norms = self.variance / ensemble, max(self.width, 0.0), self.depth
        return float(np.sum(np.sqrt(norms)) ** 2)

    @property
    def cosine(self) -> float:
        """The cosine of the angle between the two biases."""
        size = math.sqrt(self.width * self.depth) if self.width > 0 else math.nan
        return self.product / 2 / size


def _solved_name(depth: float) -> str:
    return LIMIT if depth == math.inf else f"infinite width, depth {depth}"


def _name(width: int, depth: int) -> str:
    return f"width {width}, depth {depth}"


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def solved(depth: float, report: Report) -> xarray.Dataset:
        run = linear(depth, ALPHA)
        theory = None if depth == math.inf else lg.theories.DeepMeanField(method="closed")
        return lg.solve(run, theory=theory, progress=report).to_xarray()

    def trained(width: int, depth: int, count: int, report: Report) -> xarray.Dataset:
        run = linear(depth, ALPHA)
        return lg.train(run, width=width, seeds=count, key=depth, progress=report).to_xarray()

    found = [
        Part(_solved_name(depth), f"linear, {_solved_name(depth)}", 2.0, partial(solved, depth))
        for depth in (math.inf, *settings.depths)
    ]
    for width, count in zip(settings.widths, settings.networks, strict=True):
        for depth in settings.depths:
            key = f"linear, {_name(width, depth)}, {count} networks"
            cost = 3 + width**2 * depth * count * 1e-7
            own = partial(trained, width, depth, count)
            found.append(Part(_name(width, depth), key, cost, own))
    return found


def _outputs(found: Found, width: int, depth: int) -> np.ndarray:
    """Return outputs on the training samples after the first step, ``(network, step, sample)``."""
    return found[_name(width, depth)]["f_train"].values[:, 1:].astype(np.float64)


def _of_limits(found: Found, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs at infinite width and this depth, and at infinite width and depth."""
    at_depth, limit = (
        found[_solved_name(each)]["f_train"].values[1:].astype(np.float64)
        for each in (depth, math.inf)
    )
    return at_depth, limit


def terms(found: Found, narrow: int, width: int, depth: int, f: np.ndarray) -> Terms:
    """Estimate the terms at a width from networks of a smaller one and from the limits.

    Estimates of squares are free of the bias by the finite number of networks.

    Parameters
    ----------
    found
        The parts' results.
    narrow, width, depth
        The width of ``f``, the width that is predicted, and L.
    f
        Outputs of networks of width ``narrow``, ``(network, step, sample)``.
    """
    at_depth, limit = _of_limits(found, depth)
    shift, own = (f.mean(0) - at_depth) * narrow / width, at_depth - limit
    variance = float(f.var(0, ddof=1).mean())
    noise = variance / len(f) * (narrow / width) ** 2
    return Terms(
        variance * narrow / width,
        float(np.mean(shift**2)) - noise,
        float(np.mean(own**2)),
        2 * float(np.mean(shift * own)),
    )


def jackknife(statistic: Callable[[np.ndarray], float], f: np.ndarray) -> tuple[float, float]:
    """Return a statistic of independent rows and its standard error, by leaving blocks out.

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal(1600)
    >>> value, error = jackknife(lambda x: float(x.mean()), rows)
    >>> bool(0.015 < error < 0.04)  # 1/√1600 = 0.025
    True
    """
    groups = np.array_split(np.arange(len(f)), BLOCKS)
    each = np.array([statistic(np.delete(f, group, 0)) for group in groups])
    return statistic(f), float(np.sqrt((BLOCKS - 1) * each.var()))


def measured(found: Found, width: int, depth: int, ensemble: int) -> tuple[float, float]:
    """Return the mean square error of ensembles of networks, and its standard error.

    The mean over all ensembles that can be chosen from the networks: that of S networks together
    has the square of the bias and σ²/S, one of E networks σ²/E in place of that.
    """
    _, limit = _of_limits(found, depth)

    def squares(f: np.ndarray) -> float:
        own = np.mean(np.square(f.mean(0) - limit))
        return float(own + f.var(0, ddof=1).mean() * (1 / ensemble - 1 / len(f)))

    return jackknife(squares, _outputs(found, width, depth))


def _sizes(settings: Settings) -> Iterator[tuple[int, int]]:
    """Yield the widths and depths that are predicted: all but those of the smallest width."""
    for width in settings.widths[1:]:
        for depth in settings.depths:
            yield width, depth


def ratio(settings: Settings, found: Found, ensemble: int, kind: str) -> tuple[float, float]:
    """Return measured over predicted squares, the mean over sizes, with its error.

    Networks of different sizes are independent. Predictions for several widths at one depth share
    the networks of the smallest width, so that their errors are added.
    """
    narrow, values, errors = settings.widths[0], [], []
    shared = dict.fromkeys(settings.depths, 0.0)
    for width, depth in _sizes(settings):
        value, error = measured(found, width, depth, ensemble)

        def predicted(f: np.ndarray, width: int = width, depth: int = depth) -> float:
            return getattr(terms(found, narrow, width, depth, f), kind)(ensemble)

        by, its_error = jackknife(predicted, _outputs(found, narrow, depth))
        values.append(value / by)
        errors.append(error / by)
        shared[depth] += value / by * its_error / by
    return float(np.mean(values)), math.hypot(*errors, *shared.values()) / len(values)


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on how the terms of the error add, and on their powers."""
    narrow, wide = settings.widths[0], settings.widths[1:]
    sizes = f"N = {', '.join(map(str, wide))}, L = {', '.join(map(str, settings.depths))}"
    words = f"measured over predicted square, {sizes}, Σ and c from N = {narrow}"
    made = [
        near(
            f"ensembles of {E}: the square error is Σ/(N E) + (c/N + d/L)², ratio",
            words, ratio(settings, found, E, "signed"), 1.0, 0.1,
        )
        for E in settings.ensembles
    ]  # fmt: skip
    largest = settings.ensembles[-1]
    for E in (settings.ensembles[0], largest):
        value, error = ratio(settings, found, E, "triangle")
        low, high = value - WITHIN * error, value + WITHIN * error
        says = f"ensembles of {E}: (128) is an upper bound"
        made.append(below(says, words, value, low, high, 1.0))
        made.append(
            alternative(near(
                f"ensembles of {E}: (132), the norms of the terms add up to the error, ratio",
                words, (value, error), 1.0, 0.1,
            ))
        )  # fmt: skip
    depth = settings.depths[0]
    value, error = jackknife(
        lambda f: terms(found, narrow, narrow, depth, f).cosine, _outputs(found, narrow, depth)
    )
    low, high = value - WITHIN * error, value + WITHIN * error
    says = "the biases of width and depth have the same sign, and add"
    where = f"cosine of the angle between c and d, N = {narrow}, L = {depth}"
    made.append(above(says, where, value, low, high))
    counts = zip(settings.widths, settings.networks, strict=True)
    every = f"L = {', '.join(map(str, settings.depths))}; networks of each depth: "
    every += ", ".join(f"{count} of N = {width}" for width, count in counts)
    for says, law, wanted in (
        ("single networks: the standard deviation falls as N^p, p", "variance", -0.5),
        ("the mean of all networks: its distance from infinite width falls as N^p, p", "width", -1),
    ):
        made.append(near(says, every, _power(settings, found, law), wanted, 0.2))
    return made


def _power(settings: Settings, found: Found, term: str) -> tuple[float, float]:
    """Return the power of the width in the root of a term, fitted together with the depth's."""
    sizes = np.array([(n, l) for n in settings.widths for l in settings.depths])

    def value(f: np.ndarray, width: int, depth: int) -> float:
        return getattr(terms(found, width, width, depth, f), term)

    pairs = [jackknife(partial(value, width=n, depth=l), _outputs(found, n, l)) for n, l in sizes]
    width, depth = sizes.T.astype(float)
    square, error = fitted_powers({"N": width, "L": depth}, *np.transpose(pairs))["N"]
    return square / 2, error / 2


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(9, 3.6), layout="constrained")
    left, right = picture.subplots(1, 2, sharey=True)
    narrow, depths = settings.widths[0], settings.depths
    lines = {"signed": "-", "squares": ":", "triangle": "--"}
    says = {"signed": "(c/N + d/L)²", "squares": "(c/N)² + (d/L)²", "triangle": "(128)"}
    for k, width in enumerate(settings.widths[1:]):
        for ensemble, mark in ((settings.ensembles[0], "o"), (settings.ensembles[-1], "s")):
            pairs = np.array([measured(found, width, L, ensemble) for L in depths])
            label = f"N = {width}, E = {ensemble}"
            left.errorbar(depths, *pairs.T, fmt=mark, ms=4, color=f"C{k}", label=label)
            by = [
                terms(found, narrow, width, L, _outputs(found, narrow, L)).signed(ensemble)
                for L in depths
            ]
            left.plot(depths, by, "-", color=f"C{k}", lw=1)
    width, depth = settings.widths[1], depths[0]
    pairs = np.array([measured(found, width, depth, E) for E in settings.ensembles])
    right.errorbar(settings.ensembles, *pairs.T, fmt="o", ms=4, color="black", label="measured")
    own = terms(found, narrow, width, depth, _outputs(found, narrow, depth))
    for j, (kind, line) in enumerate(lines.items()):
        by = [getattr(own, kind)(E) for E in settings.ensembles]
        right.plot(settings.ensembles, by, line, color=f"C{j + 3}", label=says[kind])
    left.set(xlabel="depth $L$", xscale="log", yscale="log", ylabel="square error")
    right.set(xlabel="networks in the ensemble, E", xscale="log", yscale="log")
    right.set_title(f"N = {width}, L = {depth}")
    for axes in (left, right):
        axes.legend(fontsize=7)
    return picture


FIGURE = Figure(
    name="001-I",
    title="Errors of width, depth and ensembles: biases add as signed numbers",
    source="Bordelon et al., Depthwise hyperparameter transfer in residual networks, Appendix I",
    images=(),
    settings=Settings((32, 64, 128), (4, 8, 16), (10240, 4096, 4096), (1, 8, 64)),
    fast=Settings((8, 16), (2, 4), (512, 512), (1, 32)),
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=(
        "linear residual networks, whose limits are known to more digits than networks resolve",
        "squares are means over the four training samples and the steps after the first",
        "Σ/N, c/N and d/L are the variance of outputs, the distance of their mean from infinite "
        "width at this depth, and the distance of infinite width at this depth from infinite depth",
        "the appendix adds norms, (128), an upper bound; no figure of the paper has the terms",
        "the sum Σ/(N E) + (c/N + d/L)² is derived here, from (129) to (131), and so is the sign "
        "of its biases, of which the appendix says nothing",
    ),
)
