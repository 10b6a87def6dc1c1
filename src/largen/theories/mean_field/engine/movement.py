r"""The precision of a solution, chosen by how far training moves a network.

Outputs of mean fields are small averages of large numbers, f = ⟨zφ⟩/γ₀, where z and φ are of the
size that they have at initialisation, σ in total. The relative movement

    m = γ₀ |f|/σ

says how much of ⟨zφ⟩ is left after its terms cancel. Rounding errors of numbers with a relative
precision ε, ε√T after T steps, are a part ε√T/m of the outputs, whatever the tolerance of the
solution is. Targets, rates and γ₀ enter through m alone. The equations of motion are invariant
exactly under

    y → sy, γ₀ → γ₀/s, f → sf        (for a loss with ℓ′(sf, sy) = sℓ′(f, y))
    η₀ → η₀/s, t → st                (gradient flow)
    x → sx, y → sy, η₀ → η₀/s², f → sf        (homogeneous networks without biases: relu, linear)

and γ₀ → −γ₀ is the same as the opposite sign of all read-out weights, which have a symmetric
distribution, so that f(γ₀) is even: f(sy)/s, and f(sη₀)/s, approach a limit as s → 0, from which
they differ by a relative part of order m². A run whose m is below the root of the precision is
therefore solved with a larger γ₀ (times ``boost``), for which m ≈ 1e-5: its outputs are the same up
to 1e-10, and their rounding errors 1e-11 instead of 1e-16/m.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from largen.parameterizations import momentum_of
from largen.runs import Run

Found = TypeVar("Found")

# m to which a smaller movement is enlarged, where m² and ε/m are both small.
LEAST = {np.dtype(np.float64): 1e-5, np.dtype(np.float32): 4e-3}
ROUGHLY = 100.0  # factor to which the movement of an enlarged one has to be known
ROUNDING = 4.0  # rounding errors of outputs over ε√T/m: several times what is usual
NONLINEAR = 10.0  # relative change of outputs by features that move, times m²
SHARE = 1 / 3  # share of the target error that rounding errors may have
MOST_TRIES = 5
TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Attempt(Generic[Found]):
    """A solution with some precision."""

    found: Found
    f: np.ndarray  # its outputs
    dtype: Any  # the precision of its numbers
    ended: bool = True  # whether it came to its end


@dataclass(frozen=True)
class Units:
    """The units of a solution: the factor of γ₀, and the precision of numbers."""

    gamma: float  # γ₀ of the run
    size: float  # σ, the root mean square of z times that of φ
    steps: int  # T
    boost: float  # the factor of γ₀
    dtype: Any
    expected: float = 1.0  # m as it is guessed, or as it was in other units
    from_zero: bool = True  # whether outputs before training are 0, but for rounding errors

    def moved(self, f: np.ndarray) -> float:
        """Return m of outputs; 0 without any."""
        return self.boost * self.gamma * _root_mean_square(f) / max(self.size, TINY)

    def rounding(self, m: float) -> float:
        """Return the rounding error of outputs over their size, for a movement m."""
        return ROUNDING * float(np.finfo(self.dtype).eps) * self.steps**0.5 / m if m else 0.0

    def missed(self, f: np.ndarray) -> float:
        """Return the rounding error of outputs over their size, as outputs at the start show it."""
        if not (m := self.moved(f)):
            return 0.0
        start = _root_mean_square(f[0]) / _root_mean_square(f) if self.from_zero else 0.0
        return max(self.rounding(m), start)

    def error(self, f: np.ndarray) -> np.ndarray:
        """Return the errors of outputs by rounding, and by a larger γ₀, as f; 0 where f is."""
        if not np.isfinite(f).all():
            return np.zeros_like(f)
        m = self.moved(f)
        enlarged = NONLINEAR * m**2 * np.abs(f) if self.boost > 1 else 0.0
        return (f != 0) * np.hypot(self.missed(f) * _root_mean_square(f), enlarged)


def solve_in_units(
    run: Run,
    gamma: float,  # γ₀
    size: float,  # σ
    rtol: float,  # the target relative error
    # Returns a solution with γ₀ and numbers in some units, given whether it is solved again.
    solve: Callable[[Units, bool], Attempt[Found]],
    *,
    single: float = np.inf,  # the smallest target error of solutions in single precision
    only: Any = None,  # the precision, if there is one alone
    # Whether solutions with a larger γ₀ are those of the run, and outputs before training 0.
    enlarges: bool = True,
) -> tuple[Found, Units]:
    """Solve a run with the precision, and the unit of γ₀, that its outputs need.

    They are guessed first, and the run is solved again if its outputs have not moved as guessed.
    """
    double, steps = np.dtype(np.float64), max(len(run.times) - 1, 1)
    units = Units(gamma, size, steps, 1.0, np.dtype(only or double), from_zero=enlarges)
    guess = gamma * _guess(run, size) / size if size else 0.0
    if only is None and rtol >= single:
        rough = replace(units, dtype=np.dtype(np.float32))
        units = rough if rough.rounding(guess) <= SHARE * rtol else units
    units = replace(units, expected=guess)
    if enlarges and 0 < guess < LEAST[units.dtype] / ROUGHLY:
        least = LEAST[units.dtype]
        units = replace(units, boost=least / guess, expected=least)
    tries = 0
    while True:
        attempt = solve(units, tries > 0)
        units, tries = replace(units, dtype=np.dtype(attempt.dtype)), tries + 1
        if not attempt.ended or tries == MOST_TRIES:
            return attempt.found, units
        better = _better(units, attempt.f, rtol, double if only is None else units.dtype)
        if not enlarges or (tries == MOST_TRIES - 1 and better.boost != units.boost):
            better = replace(better, boost=1.0)
        if (better.boost, better.dtype) == (units.boost, units.dtype):
            return attempt.found, units
        units = better


def guessed_dtype(run: Run, gamma: float, size: float, rtol: float) -> Any:
    """Return the precision that outputs probably need, of a run that is not solved twice."""
    rough = Units(gamma, size, max(len(run.times) - 1, 1), 1.0, np.dtype(np.float32))
    guess = gamma * _guess(run, size) / size if size else 0.0
    return np.float32 if rough.rounding(guess) <= SHARE * rtol else np.float64


def _better(units: Units, f: np.ndarray, rtol: float, finest: Any) -> Units:
    """Return the units that outputs need, given those that they were computed in."""
    if not np.isfinite(f).all():
        return replace(units, boost=1.0)  # features may move in truth where they hardly seem to
    m, enough = units.moved(f), SHARE * rtol
    if not m:
        return units
    units = replace(units, expected=m)
    if units.missed(f) > enough and units.dtype != finest:
        units = replace(units, dtype=finest)
        too_small = units.rounding(m) > enough
    else:
        too_small = units.missed(f) > enough
    least = LEAST[units.dtype]
    too_small = too_small and m < least / 2
    too_large = units.boost > 1 and NONLINEAR * m**2 > enough and m > 2 * least
    if not (too_small or too_large):
        return units
    boost = max(1.0, units.boost * least / m)
    return replace(units, boost=boost, expected=m * boost / units.boost)


def _root_mean_square(f: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(f)))) if f.size else 0.0


def _guess(run: Run, size: float) -> float:
    """Return roughly the size of the outputs of a run.

    They are at most of the size of the targets, and after a short time η₀ K Δ with K ≥ σ².
    """
    y, optimizer = run.data.y_train, run.optimizer
    wanted = float(np.sqrt(np.mean(np.square(y)))) if y.dtype.kind == "f" and y.size else 1.0
    time = float(np.sum(run.rates) if run.steps is not None else optimizer.lr * run.times[-1])
    time /= 1 - momentum_of(optimizer)
    if optimizer.adaptive:
        return size * time / run.param.gamma
    return wanted * min(1.0, time * size**2)
