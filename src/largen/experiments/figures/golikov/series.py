"""Parts of a figure put together: quantities against the width by scaling, and their exponents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from largen.experiments.exponents.fit import exponent
from largen.experiments.figures.golikov.setups import LIMITS, REFERENCE_WIDTH, Ladder
from largen.experiments.figures.record import Found
from largen.experiments.power_law import PowerLaw
from largen.parameterizations import scaling_class
from largen.parameterizations.classification.plane import NAMED

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Series:
    """What was measured in one scaling, against the width.

    Attributes
    ----------
    scaling
        Its name.
    widths
        N, those at which no network diverged for ``variance`` and ``increment`` to be numbers.
    loss
        Test loss after training, ``(width, seed)``.
    variance
        Of each term over test images, ``(width, seed, term)``.
    increment
        Mean |δŵ| of each matrix, ``(width, seed, weight)``.
    terms, weights
        Their names.
    """

    scaling: str
    widths: np.ndarray
    loss: np.ndarray
    variance: np.ndarray
    increment: np.ndarray
    terms: tuple[str, ...]
    weights: tuple[str, ...]

    def term_exponent(self, term: str) -> PowerLaw:
        """Return q_f of a term, half the power of its variance."""
        return self._fit(self.variance[..., self.terms.index(term)])

    def increment_exponent(self, weight: str) -> PowerLaw:
        """Return q of a matrix's increments."""
        return self._fit(self.increment[..., self.weights.index(weight)] ** 2)

    def _fit(self, squares: np.ndarray) -> PowerLaw:
        finite = np.isfinite(squares).all(1)
        return exponent(self.widths[finite], squares[finite].astype(np.float64))


def series(found: Found, prefix: str, scaling: str, how: Ladder) -> Series:
    """Return what was measured in a scaling."""
    titles = {n: "reference" if n == REFERENCE_WIDTH else scaling for n in how.widths}
    sets = [found[f"{prefix}/{title} N={n}"] for n, title in titles.items()]
    stacked = {
        name: np.stack([d[name].values for d in sets]) for name in ("loss", "variance", "increment")
    }
    return Series(
        scaling,
        np.array(how.widths),
        **stacked,
        terms=tuple(map(str, sets[0]["term"].values)),
        weights=tuple(map(str, sets[0]["weight"].values)),
    )


def predicted_terms(scaling: str, steps: int) -> dict[str, float | None]:
    """Return q_f of each term of one hidden layer; None for a term that is zero."""
    orders = scaling_class(*NAMED[scaling]).terms(steps)
    return {name: None if q is None else float(q) for name, q in orders.items()}


def predicted_increments(scaling: str, steps: int) -> dict[str, float | None]:
    """Return q_a and q_w of one hidden layer."""
    orders = scaling_class(*NAMED[scaling]).increments(steps)
    return {name: None if q is None else float(q) for name, q in orders.items()}


def loss_curves(found: Found, prefix: str) -> Mapping[str, xarray.Dataset]:
    """Return test losses at every step of the reference networks and of each limit."""
    limits = {name: found[f"{prefix}/limit {name}"] for name in LIMITS}
    return {"reference": found[f"{prefix}/curves"], **limits}
