"""Measured quantities against the width, by scaling, and their exponents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from largen.experiments.exponents.fit import exponent
from largen.experiments.power_law import PowerLaw
from largen.parameterizations.classification import plane_class
from largen.parameterizations.classification.orders import Order
from largen.parameterizations.classification.plane import NAMED
from papers.golikov.setups import LIMITS, REFERENCE_WIDTH, Ladder
from papers.record import Found

if TYPE_CHECKING:
    import xarray

# By quantity: the fitted power law and the predicted exponent, None without a prediction.
Laws = dict[str, tuple[PowerLaw, float | None]]


@dataclass(frozen=True)
class Series:
    """The quantities measured in one scaling, against the width.

    Attributes
    ----------
    scaling
        Name of the scaling.
    widths
        N; at widths where a network diverged, ``variance`` and ``increment`` are not numbers.
    loss
        Test loss after training, ``(width, seed)``.
    variance
        Variance of each term over test images, ``(width, seed, term)``.
    increment
        Mean |δŵ| of each matrix, ``(width, seed, weight)``.
    terms, weights
        Names of the terms and of the weights.
    """

    scaling: str
    widths: np.ndarray
    loss: np.ndarray
    variance: np.ndarray
    increment: np.ndarray
    terms: tuple[str, ...]
    weights: tuple[str, ...]

    def term_laws(self, steps: int | None = None) -> Laws:
        """Return q_f of every term, half the power of its variance.

        Given ``steps``, for networks with one hidden layer, predicted exponents are included.
        """
        predicted = {} if steps is None else plane_class(*NAMED[self.scaling]).terms(steps)
        return {
            f"f_{term}": (self._fit(self.variance[..., i]), _number(predicted.get(term)))
            for i, term in enumerate(self.terms)
        }

    def increment_laws(self, steps: int) -> Laws:
        """Return q of both matrices' increments and its prediction, for one hidden layer."""
        predicted = plane_class(*NAMED[self.scaling]).increments(steps)
        return {
            f"δ{weight}": (
                self._fit(self.increment[..., self.weights.index(weight)] ** 2),
                _number(order),
            )
            for weight, order in predicted.items()
        }

    def squares(self, name: str) -> np.ndarray:
        """Return variances of a term ``f_…`` or squares of an increment ``δ…``, (width, seed)."""
        kind, which = name[0], name.lstrip("f_δ")
        if kind == "f":
            return self.variance[..., self.terms.index(which)].astype(np.float64)
        return self.increment[..., self.weights.index(which)].astype(np.float64) ** 2

    def local(self, name: str) -> tuple[float, float]:
        """Return the exponents between the two smallest and between the two largest widths."""
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.diff(np.log(self.squares(name).mean(1))) / np.diff(np.log(self.widths)) / 2
        return float(steps[0]), float(steps[-1])

    def _fit(self, squares: np.ndarray) -> PowerLaw:
        finite = np.isfinite(squares).all(1)
        return exponent(self.widths[finite], squares[finite].astype(np.float64))


def series(found: Found, prefix: str, scaling: str, how: Ladder) -> Series:
    """Return the quantities measured in one scaling."""
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


def by_scaling(
    found: Found, prefix: str, scalings: Iterable[str], how: Ladder
) -> dict[str, Series]:
    """Return the quantities measured in several scalings."""
    return {name: series(found, prefix, name, how) for name in scalings}


def loss_curves(found: Found, prefix: str) -> Mapping[str, xarray.Dataset]:
    """Return test losses at every step of the reference networks and of each limit."""
    limits = {name: found[f"{prefix}/limit {name}"] for name in LIMITS}
    return {"reference": found[f"{prefix}/curves"], **limits}


def _number(order: Order) -> float | None:
    return None if order is None else float(order)
