"""A reading held against the model itself: draws of its construction at several widths."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import sem

from largen.bibliography import cites
from largen.results import fields_over, in_notebooks, plot_result, save_result
from largen.text import aligned

MOST_Z = 4.0  # largest z-score with which a reading and draws agree


@cites("jacot2018neural", "lee2018deep")
class Check(NamedTuple):
    """Kernels of a model, drawn at several widths, against those of its reading.

    The difference d(n) of the drawn kernels and those with the constants of width n is fitted by
    d(n) = a + b/n, each width with its error bar. For a right reading a = 0.

    Attributes
    ----------
    widths
        The widths, (width,).
    nngp_distance, ntk_distance
        |K̂(n) − K_n|/|K_n| with the constants of each width, (width,).
    nngp_limit_distance, ntk_limit_distance
        The same from the limit of infinite width, (width,); NaN without a limit.
    nngp_error, ntk_error
        The standard error of K̂(n) in the same norm, with that of a reading by populations of
        neurons, (width,).
    nngp_z, ntk_z
        a over its standard error, for all pairs of samples, (n, n).
    first
        The first module, in the order of the forward pass, whose outputs have other mean squares
        than the reading says, |z| > 4 at infinite width. Empty if kernels agree, if no single
        module shows the difference, or behind a read-in of a few numbers that are not Gaussian.
    uniform
        The modules behind which preactivations are not Gaussian at the largest width, if kernels
        do not agree: biases such as those of ``torch.nn.Linear``, which are uniform, are a large
        part of the variance there. Kernels with the constants of a width take them as Gaussian.
    """

    widths: np.ndarray
    nngp_distance: np.ndarray
    ntk_distance: np.ndarray
    nngp_limit_distance: np.ndarray
    ntk_limit_distance: np.ndarray
    nngp_error: np.ndarray
    ntk_error: np.ndarray
    nngp_z: np.ndarray
    ntk_z: np.ndarray
    first: str = ""
    uniform: str = ""

    @property
    def exponents(self) -> tuple[float, float]:
        """The powers of the width in the distances of NNGP and NTK from the limit.

        −1 is expected; NaN without a limit, or where the distances are within two error bars.
        """
        powers = []
        for name in ("nngp", "ntk"):
            far, error = getattr(self, f"{name}_limit_distance"), getattr(self, f"{name}_error")
            seen = bool(np.all(far > 2 * error))
            fit = np.polyfit(np.log(self.widths), np.log(far), 1)[0] if seen else np.nan
            powers.append(float(fit))
        return powers[0], powers[1]

    @property
    def agrees(self) -> bool:
        """Whether no z-score is above 4."""
        return bool(max(abs(self.nngp_z).max(), abs(self.ntk_z).max()) <= MOST_Z)

    @property
    def verdict(self) -> str:
        """Agreement or disagreement in a sentence."""
        largest = [abs(z).max() for z in (self.nngp_z, self.ntk_z)]
        said = "agree" if self.agrees else "disagree"
        return (
            f"the model and its reading {said}: largest z-score {largest[0]:.1f} in the NNGP and "
            f"{largest[1]:.1f} in the NTK, extrapolated to infinite width"
            + (f"; the first module whose second moments differ is {self.first}" * bool(self.first))
            + (
                f"; at width {max(self.widths)} the biases of {self.uniform} are a large "
                "part of the variance, and not Gaussian, as kernels take them to be: compare "
                "at larger widths" * bool(self.uniform)
            )
        )

    def __repr__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("width", "NNGP off by", "± error", "from limit", "NTK off by", "± error", "from limit")
        ]
        columns = (
            self.nngp_distance, self.nngp_error, self.nngp_limit_distance,
            self.ntk_distance, self.ntk_error, self.ntk_limit_distance,
        )  # fmt: skip
        for width, *numbers in zip(self.widths, *columns, strict=True):
            rows.append((str(width), *(f"{100 * number:.2f} %" for number in numbers)))
        powers = [f"{p:.2f}" for p in self.exponents if np.isfinite(p)]
        falls = [f"distance from the limit ∝ width^{' and '.join(powers)}"] * bool(powers)
        return "\n".join([*aligned(rows), *falls, self.verdict])

    _repr_html_ = in_notebooks
    to_xarray = fields_over(
        widths=("width",),
        nngp_distance=("width",),
        ntk_distance=("width",),
        nngp_limit_distance=("width",),
        ntk_limit_distance=("width",),
        nngp_error=("width",),
        ntk_error=("width",),
        nngp_z=("sample", "sample_2"),
        ntk_z=("sample", "sample_2"),
    )
    save = save_result
    plot = plot_result


def compared(widths: tuple[int, ...], drawn: list[Any], theory: list[Any], limit: Any) -> Check:
    """Return the comparison of kernels.

    ``drawn``: at each width, K and Θ of draws, (seed, n, n) each; ``theory``: at each width, K and
    Θ with its constants; ``limit``: K and Θ in the limit, or None.
    """
    found: dict[str, Any] = {"widths": np.asarray(widths)}
    for place, name in enumerate(("nngp", "ntk")):
        means = [kernels[place].mean(0) for kernels in drawn]
        own = [np.asarray(getattr(each, f"{name}_error", 0.0)) for each in theory]
        errors = [np.hypot(sem(each[place]), e) for each, e in zip(drawn, own, strict=True)]
        expected = [np.asarray(kernels[place]) for kernels in theory]
        sizes = [np.linalg.norm(kernel) for kernel in expected]
        differences = np.stack([m - k for m, k in zip(means, expected, strict=True)])
        off = [np.linalg.norm(d) / s for d, s in zip(differences, sizes, strict=True)]
        found[f"{name}_distance"] = np.asarray(off)
        found[f"{name}_error"] = np.asarray(
            [np.linalg.norm(e) / s for e, s in zip(errors, sizes, strict=True)]
        )
        far = np.full(len(widths), np.nan)
        if limit is not None:
            whole = np.asarray(limit[place])
            far = np.asarray([np.linalg.norm(m - whole) / np.linalg.norm(m) for m in means])
        found[f"{name}_limit_distance"] = far
        found[f"{name}_z"] = z_of_intercept(np.asarray(widths), differences, np.stack(errors))
    return Check(**found)


def z_of_intercept(widths: np.ndarray, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return a/σ_a of weighted least squares a + b/n, for all entries; of one width, value/σ."""
    # Rounding alone is no deviation: an entry without fluctuations has an error bar of that size.
    errors = np.maximum(errors, 1e-12 * np.abs(values).max() + 1e-300)
    weights = errors**-2
    if len(widths) == 1:
        return values[0] / errors[0]
    t = (1 / widths)[:, None, None]
    s0, s1, s2 = (np.sum(weights * t**k, axis=0) for k in range(3))
    v0, v1 = (np.sum(weights * t**k * values, axis=0) for k in range(2))
    determinant = s0 * s2 - s1**2
    return (s2 * v0 - s1 * v1) / np.sqrt(s2 * determinant)
