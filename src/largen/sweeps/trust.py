"""When pilots say that a forecast is not to be trusted: rules, each with a number.

Thresholds are those at which right forecasts are refused in 1 to 2 % of cases; rules 1 and 7 are
those of :mod:`largen.sweeps.forecasting`.
"""

from __future__ import annotations

import math

import numpy as np

from largen.sweeps.law import TINY, Ladder

FEWEST_SEEDS = 4  # of a size
MISSED = 3.0  # errors
CHANGE = 2.5  # the factor of n Var from which it is said to change


def reasons(ladder: Ladder) -> list[str]:
    """Return why a forecast is not to be trusted, in words; none if nothing was found."""
    found = [*_few_seeds(ladder), *_noise_changes(ladder), *_scatter(ladder)]
    if len(ladder.sizes) > 2:
        found += [*_widest_missed(ladder), *_turns(ladder), *_does_not_shrink(ladder)]
    return found


def missed(ladder: Ladder) -> np.ndarray:
    """Return by how many errors the others miss the widest pilots, (rate, time)."""
    before = ladder.without_widest().fit(float(ladder.sizes[-1]))
    return (ladder.means[-1] - before.mean) / np.sqrt(before.error**2 + ladder.noise[-1] + TINY)


def _few_seeds(ladder: Ladder) -> list[str]:
    few = [f"{n:g}" for n, s in zip(ladder.sizes, ladder.counts, strict=True) if s < FEWEST_SEEDS]
    if not few:
        return []
    return [
        f"rule 2: fewer than {FEWEST_SEEDS} seeds of {', '.join(few)}, of which nothing can be "
        "said within useful errors"
    ]


def _noise_changes(ladder: Ladder) -> list[str]:
    """Neighbouring sizes of which n Var differs late in training: one is out of the regime."""
    from scipy.special import digamma, polygamma

    late = slice(ladder.losses[0].shape[2] // 2, None)
    # The logarithm of a χ² of 2h degrees of freedom has the mean ψ(h) + log 2, the variance ψ'(h).
    half = (ladder.counts - 1) / 2
    logs = [
        np.log(n * a.var(1, ddof=1)[:, late] + TINY).mean()
        for n, a in zip(ladder.sizes, ladder.losses, strict=True)
    ]
    own = np.array(logs) - digamma(half) + np.log(half)
    found = []
    for i, change in enumerate(np.diff(own)):  # as if all rates and times were one
        error = math.sqrt(polygamma(1, half[i]) + polygamma(1, half[i + 1]))
        if abs(change) > max(2.6 * error, math.log(CHANGE)):
            found.append(
                f"rule 3: size × variance over seeds changes by a factor of "
                f"{math.exp(change):.2g} from {ladder.sizes[i]:g} to {ladder.sizes[i + 1]:g} (more "
                f"than {CHANGE:g}, and than 2.6 errors): leave out the narrower, or take lower "
                "rates"
            )
    return found


def _scatter(ladder: Ladder) -> list[str]:
    share = np.sqrt(ladder.noise[-1] * ladder.counts[-1]) / abs(ladder.means[-1] + TINY)
    often = np.mean(share > 0.25)
    if often <= 0.1:
        return []
    return [
        f"rule 4: seeds scatter by {np.median(share[share > 0.25]):.0%} of the loss at "
        f"{often:.0%} of rates and times (more than 25 % at 10 %): at the edge of stability, or "
        "fitted to the end; take lower rates, or held-out losses"
    ]


def _widest_missed(ladder: Ladder) -> list[str]:
    z = missed(ladder)
    bad, size = np.mean(abs(z) > MISSED), math.sqrt(np.mean(z**2))
    if bad <= 0.05 or size <= 2:
        return []
    return [
        f"rule 5: the other sizes miss the pilots of {ladder.sizes[-1]:g} by more than "
        f"{MISSED:g} errors at {bad:.0%} of rates and times (more than 5 %), by {size:.1f} in the "
        "root mean square (more than 2): losses are not straight in 1/size"
    ]


def _turns(ladder: Ladder) -> list[str]:
    step, z = _differences(ladder)
    turn = np.mean((step[0] * step[1] < 0) & (z.min(0) > MISSED))
    if turn <= 0.1:
        return []
    return [
        f"rule 6: losses turn with the size at {turn:.0%} of rates and times (more than 10 %), "
        f"both differences above {MISSED:g} errors"
    ]


def _does_not_shrink(ladder: Ladder) -> list[str]:
    (before, after), z = _differences(ladder)
    x = ladder.x
    wanted = (x[-2] - x[-1]) / (x[-3] - x[-2])
    grows = np.mean((abs(after) > 1.8 * wanted * abs(before)) & (z[1] > 6))
    if grows <= 0.2:
        return []
    return [
        f"rule 7: differences between sizes do not shrink at {grows:.0%} of rates and times (more "
        "than 20 %): more than 1.8 × what 1/size says, and than 6 errors"
    ]


def _differences(ladder: Ladder) -> tuple[np.ndarray, np.ndarray]:
    """Return the last two differences of means between neighbours, and their sizes in errors."""
    step = np.diff(ladder.means, axis=0)[-2:]
    noise = ladder.noise
    return step, abs(step) / np.sqrt(noise[1:] + noise[:-1] + TINY)[-2:]
