"""Scaling laws of errors in samples, width, steps and compute, as users call them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput, instance_of
from largen.regression.learning_curves import power_laws
from largen.regression.learning_curves.population import Population
from largen.regression.learning_curves.spectrum import Spectrum
from largen.results import Result, with_labels
from largen.text import aligned

if TYPE_CHECKING:
    import xarray

_FEWEST = 64  # samples or modes to which laws are fitted
NAMES = {
    "eigenvalue_decay": "a of the eigenvalues, i^(−a)",
    "power_decay": "b of the targets' power, i^(−b)",
    "samples": "error against samples",
    "width": "error against random features",
    "steps": "error against steps of SGD",
    "compute": "error against compute, at the best width",
    "compute_width": "the best width against compute",
}


@cites("paquette2024phases", "bordelon2024dynamical", "bordelon2020spectrum")
@dataclass(frozen=True, repr=False)
class ScalingLaws(Result):
    """Exponents of a task; made by :func:`scaling_laws`.

    Attributes
    ----------
    exponents
        Positive numbers: ``eigenvalue_decay`` a and ``power_decay`` b, and c in n^(−c) for errors
        against ``samples``, ``width``, ``steps`` and ``compute``; ``compute_width`` is x in
        k ~ C^x.
    errors
        Their standard errors, from halves of the samples; empty for a population.
    phase
        By the names of Paquette et al. (2024): "Ia", "Ib", "Ic", "II", "III", "IVa" or "IVb";
        "none" for b ≤ 1, targets of infinite power.
    """

    exponents: dict[str, float]
    errors: dict[str, float]
    phase: str

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return exponents and errors, (law,)."""
        import xarray

        names = list(NAMES)
        return xarray.Dataset(
            {
                "exponent": ("law", [self.exponents[name] for name in names]),
                "exponent_error": ("law", [self.errors.get(name, np.nan) for name in names]),
            },
            {"law": names},
            {"phase": self.phase},
        )

    def __repr__(self) -> str:
        cells = [["", "exponent", "standard error"]]
        for name, words in NAMES.items():
            shown = f"{self.errors[name]:.2g}" if self.errors else ""
            cells.append([words, f"{self.exponents[name]:.3f}", shown])
        head = f"ScalingLaws: phase {self.phase}"
        return "\n".join([head, *(f"  {line}" for line in aligned(cells))])


def scaling_laws(task: Spectrum) -> ScalingLaws:
    """Return the exponents of power laws of errors that a spectrum leads to.

    Power laws λ_i ~ i^(−a) and v_i² ~ i^(−b) of a population are fitted to the modes themselves,
    from 0.1 % to half of them. Of M samples they are fitted for n = 2 … 30 % of these: a to the
    effective ridge κ ~ n^(−a), Σ λ_i/(λ_i + κ) = n, and b to the error without a ridge, floor +
    level · n^(−(b − 1)), whose floor is noise. A random n of the samples are n samples of the
    population, so that the bias of the last modes is not in them. Errors then scale as

        samples   n^(−min(b − 1, 2a)),        random features   k^(−min(b − 1, a)),
        steps     t^(−min((b − 1)/a, 2 − 1/a)) of one pass of SGD at a fixed rate,
        compute   C^(−c) for C = kt at the best width k ~ C^x,

    where for a ≤ 1/2 the 2 − 1/a is left out, and c and x follow from the parts of the error of
    SGD on k features: what features lack k^(−min(b − 1, a)), what is not learned r^(−(b − 1)/a),
    noise of gradients η r^(−2 + 1/a), for a > 1/2, and, for a > 1 and b − a > 1, distortion by
    features k⁻¹ r^(−1 + 1/a), with r = ηt, η of order one for a > 1 and k^(a − 1) below, where
    modes are in proportion to features. They are derived for largen from the sums of
    :func:`random_feature_curve` and :func:`one_pass_sgd`, with κ ~ k^(−a) without samples and
    modes of λ_i < 1/r not learned, Σ λ_i² e^(−2λ_i r) ~ r^(−2 + 1/a), and, by κ(1 − z/k) = 1/r,
    Σ v_i²κ/(λ_i + κ) changed by k⁻¹ r^(−1 + 1/a). The phase says which of them compete.

    Parameters
    ----------
    task
        The :class:`Spectrum`, of at least 64 samples or, of a population, 64 modes.

    Raises
    ------
    InvalidInput
        For fewer modes, or targets without power.

    Notes
    -----
    From samples whose error falls as n^(−2a), b = 1 + 2a is returned, the least it can be. Laws are
    asymptotic. Errors of 6 · 10⁴ features fall with compute as fast as said within 3 % in the
    phases Ia, Ib, II, III and IVa, and 11 and 18 % more slowly in IVb and Ic: near a = 1/2 the sum
    Σ λ_i² of the noise of gradients is that over r^(1/a) < i < k, which differs from its power by a
    fraction (r^(1/a)/k)^|2a − 1|. Spectra of small data sets bend, which standard errors include as
    far as halves of the samples have other exponents than all of them.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> i = np.arange(1, 4001.0)
    >>> found = lg.regression.scaling_laws(lg.regression.Spectrum(i**-1.5, i**-1.8))
    >>> found.phase, round(found.exponents["samples"], 1), round(found.exponents["compute"], 1)
    ('Ia', 0.8, 0.3)
    """
    instance_of("task", task, Spectrum, "a spectrum, as lg.regression.target_spectrum returns")
    count = len(task.eigenvalues) if task.samples is None else task.samples
    if min(count, int((task.eigenvalues > 0).sum())) < _FEWEST:
        raise InvalidInput(f"task: wanted at least {_FEWEST} modes with positive eigenvalues.")
    if not task.power.sum() > 0:
        raise InvalidInput("task: the targets have no power.")
    found, phase = _exponents(task.population, task.samples)
    square = dict.fromkeys(NAMES if task.of_halves else (), 0.0)
    pairs = list(zip(task.of_halves[::2], task.of_halves[1::2], strict=True))
    for pair in pairs:
        first, second = (_exponents(_half(*half), len(half[0]))[0] for half in pair)
        for name in NAMES:
            mean = (first[name] + second[name]) / 2
            apart = (first[name] - second[name]) ** 2 / 4
            square[name] += (apart + (mean - found[name]) ** 2) / len(pairs)
    return ScalingLaws(found, {name: float(np.sqrt(s)) for name, s in square.items()}, phase)


def _half(values: np.ndarray, power: np.ndarray) -> Population:
    return Population(values, power.reshape(len(power), -1), 0.0)


def _exponents(population: Population, samples: int | None) -> tuple[dict[str, float], str]:
    if samples is None:
        laws = power_laws.fit(population)
    else:
        laws = power_laws.fit_to_samples(population, samples)
    compute = power_laws.in_compute(laws)
    numbers: tuple[Any, ...] = (
        laws.a,
        laws.b,
        power_laws.in_samples(laws),
        power_laws.in_width(laws),
        power_laws.in_steps(laws),
        compute.error,
        compute.width,
    )
    return dict(zip(NAMES, map(float, numbers), strict=True)), compute.phase
