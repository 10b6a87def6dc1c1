"""Claims common to several of Golikov's figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from largen.experiments.power_law import PowerLaw
from papers.claims import Claim, above, below
from papers.golikov.series import Laws, Series, loss_curves
from papers.record import Found
from papers.verdicts import near

SIGMAS = 2.0
LEVELS = (np.arange(200) + 0.5) / 200
RESAMPLES = 400
QUARTER = 0.25  # predicted exponents are multiples of this
MISFIT = 0.01  # probability of the scatter about a fit below which the fit is rejected


def exponents(seen: Series, laws: Laws) -> list[Claim]:
    """Check that predicted exponents are within the intervals of the measured ones.

    Exponents between the two smallest and the two largest widths tell whether the measured one may
    still change beyond the widths at hand. The claim is open if an exponent is not resolved, or if
    the half-width of its interval exceeds the quarter of which predicted exponents are multiples.
    """
    claims = []
    for name, (law, q) in laws.items():
        if q is not None:
            low, high = interval(law)
            inside = low <= q <= high
            unclear = not law.resolved or (inside and high - low > 2 * QUARTER)
            agrees = None if unclear else bool(inside)
            says = f"{seen.scaling}: {name} ∝ N^{q:g}"
            # An exponent inside of its interval is decided by one of a quarter to either side.
            bounds = law.value - QUARTER, law.value + QUARTER
            first, last = seen.local(name)
            words = f"exponent of {name}, N = {seen.widths[0]} … {seen.widths[-1]}; of the first "
            words += f"and last two widths {first:.2f}, {last:.2f}"
            claims.append(Claim(says, words, law.value, low, high, agrees, bounds=bounds))
    return claims


def interval(law: PowerLaw) -> tuple[float, float]:
    """Return the 95 % interval of a fitted exponent."""
    return law.value - SIGMAS * law.error, law.value + SIGMAS * law.error


def closer(found: Found, prefix: str, one: str, other: str, rate: float) -> Claim:
    """Check that one limit is closer to the reference network than another.

    The distance is the Wasserstein-1 distance between the distributions of the test loss over
    initialisations, averaged over steps. It depends on means and variances, which the paper
    discusses. Its interval is a bootstrap over networks and draws.
    """
    curves = loss_curves(found, prefix)
    reference = curves["reference"]["loss"].values
    limits = [curves[name]["loss"].values for name in (one, other)]
    rng = np.random.default_rng(0)

    def gap(resample: bool) -> float:
        near, far = (
            distance(*(_resampled(rng, values) if resample else values for values in pair))
            for pair in ((reference, limit) for limit in limits)
        )
        return far - near

    value, spread = gap(False), [gap(True) for _ in range(RESAMPLES)]
    low, high = np.percentile(spread, [2.5, 97.5])
    near, far = (distance(reference, limit) for limit in limits)
    return above(
        f"at rate {rate:g} the {one} limit is closer to the reference network than the {other} "
        "limit",
        f"difference of distances of the test loss, {far:.4f} − {near:.4f}",
        value,
        float(low),
        float(high),
    )


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the mean over steps of the Wasserstein distance of samples ``(sample, step)``."""
    first, second = (np.quantile(values, LEVELS, axis=0) for values in (one, other))
    return float(np.abs(first - second).mean())


def _resampled(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    return values[rng.integers(len(values), size=len(values))]


def scatter(found: Found, prefix: str) -> Claim:
    """Check that the NTK limit's test loss varies with the initialisation as the network's does.

    The ratio of the two standard deviations is 1 if it does, and 0 for a deterministic limit,
    as the other two are. The claim is confirmed if the ratio is nearer to 1.
    """
    curves = loss_curves(found, prefix)
    final = {name: data["loss"].values[:, -1] for name, data in curves.items()}
    rng = np.random.default_rng(1)

    def ratio(resample: bool) -> float:
        ntk, net = (
            np.std(_resampled(rng, final[k]) if resample else final[k], ddof=1)
            for k in ("NTK", "reference")
        )
        return float(ntk / net)

    low, high = np.percentile([ratio(True) for _ in range(RESAMPLES)], [2.5, 97.5])
    return above(
        "the NTK limit is random, as the reference network is; the mean-field and the "
        "intermediate limits are not",
        "standard deviation of the final test loss over initialisations, NTK limit over reference",
        ratio(False),
        float(low),
        float(high),
        0.5,
    )


def convergence(seen: Series) -> Claim:
    """Check that the test loss converges: it is of order N⁰ at the largest widths.

    Orders are multiples of a quarter, so that the exponent of the last doubling is to be within an
    eighth of 0.
    """
    last = seen.loss[-2:]
    mean, error = last.mean(1), last.std(1, ddof=1) / np.sqrt(last.shape[1])
    value = float(np.log2(mean[1] / mean[0]))
    return near(
        f"{seen.scaling}: the test loss converges with the width, as N^p, p",
        f"exponent of the loss between N = {seen.widths[-2]} and {seen.widths[-1]}",
        (value, float(np.hypot(*(error / mean)) / np.log(2))),
        0.0,
        QUARTER / 2,
    )


def approach(seen: Series, found: Found, prefix: str) -> Claim:
    """Check that networks of a scaling approach its limit as the width grows."""
    limit = float(loss_curves(found, prefix)[seen.scaling]["loss"].values[:, -1].mean())
    gap = seen.loss[[0, -1]] - limit
    mean, error = gap.mean(1), gap.std(1, ddof=1) / np.sqrt(gap.shape[1])
    value = float(abs(mean[1]) / abs(mean[0]))
    half = 2 * float(np.hypot(error[1], value * error[0]) / abs(mean[0]))
    return below(
        f"{seen.scaling}: the test loss converges to that of the limit",
        f"|distance| at N = {seen.widths[-1]} over that at {seen.widths[0]} ({abs(mean[0]):.4f})",
        value,
        value - half,
        value + half,
        1.0,
    )


def divergence(seen: Series, far: tuple[int, np.ndarray]) -> Claim:
    """Check that the test loss of the default scaling grows beyond all others."""
    width, loss = far
    ratio = loss / seen.loss[0].mean()
    value, half = float(ratio.mean()), float(2 * ratio.std(ddof=1) / np.sqrt(len(ratio)))
    return above(
        "default: the test loss diverges with the width",
        f"test loss at N = {width} over that at {seen.widths[0]}",
        value,
        value - half,
        value + half,
        1.0,
    )


def straight(seen: Series, weight: str) -> Claim:
    """Check that increments of a matrix are a power of the width (Figure 3).

    The exponents of the first and of the last doubling of the width are to differ by less than half
    of the quarter of which predicted exponents are multiples.
    """
    squares = seen.squares(f"δ{weight}")
    mean = squares.mean(1)
    relative = squares.std(1, ddof=1) / np.sqrt(squares.shape[1]) / mean
    local = np.diff(np.log(mean)) / np.diff(np.log(seen.widths)) / 2
    return near(
        f"{seen.scaling}: δ{weight} is a power of the width, whose exponent does not change",
        f"exponent of the last doubling, {local[-1]:.2f}, minus that of the first, {local[0]:.2f}",
        (local[-1] - local[0], np.linalg.norm(relative[[0, 1, -2, -1]]) / (2 * np.log(2))),
        0.0,
        QUARTER / 2,
    )


def remains(seen: Series, term: str) -> Claim:
    """Check that a term with a limit keeps it: ⟨variance⟩ = c² + b²/N with c² > 0.

    A sum over N neurons has a mean, and fluctuations of relative order N^(−1/2). If the
    fluctuations are the larger part at small widths, a single fitted power of the width is that of
    neither part, whereas the sum of both is linear in (1, 1/N).
    """
    from scipy.stats import chi2

    squares = seen.variance[..., seen.terms.index(term)].astype(np.float64)
    mean, error = squares.mean(1), squares.std(1, ddof=1) / np.sqrt(squares.shape[1])
    law = np.stack([np.ones(len(mean)), 1 / seen.widths], 1) / error[:, None]
    (limit, _), (misfit, *_), *_ = np.linalg.lstsq(law, mean / error, rcond=None)
    half = SIGMAS * float(np.sqrt(np.linalg.inv(law.T @ law)[0, 0]))
    fits = misfit < chi2.isf(MISFIT, len(mean) - 2)
    value, half = limit / mean[-1], half / mean[-1]
    claim = above(
        f"{seen.scaling}: f_{term} keeps a part that does not fall with the width",
        f"c² of its variance c² + b²/N, over the variance at N = {seen.widths[-1]} "
        f"(χ² {misfit:.2g}, {len(mean) - 2} degrees of freedom)",
        float(value),
        float(value - half),
        float(value + half),
    )
    return claim if fits else replace(claim, agrees=None)
