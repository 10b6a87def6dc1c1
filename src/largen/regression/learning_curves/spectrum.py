"""Eigenvalues of kernels and the power of targets in their modes, as users call them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.arrays import floating, known, numbers
from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.interrupts import interruptible
from largen.parameterizations import Parameterization
from largen.regression.learning_curves.inputs import given
from largen.regression.learning_curves.measured import generator
from largen.regression.learning_curves.pool import Pool, pool_with_modes
from largen.regression.learning_curves.population import Population
from largen.regression.learning_curves.predicted import FEWEST, halves
from largen.results import Result, with_labels
from largen.scalars import real

if TYPE_CHECKING:
    import xarray


@cites("bordelon2020spectrum")
@dataclass(frozen=True, eq=False, repr=False)
class Spectrum(Result):
    """A task as a kernel sees it: K(x, x') = Σ λ_i φ_i(x)φ_i(x'), and targets Σ v_iφ_i + noise.

    :func:`target_spectrum` makes one from samples. Modes are sorted by their eigenvalues.

    Attributes
    ----------
    eigenvalues
        λ_i ≥ 0, (mode,), of the kernel as an operator over the distribution of inputs: those of a
        kernel matrix divided by the number of samples.
    power
        v_i² ≥ 0, (mode,) or (mode, output); their sum is the mean square of the targets.
    noise
        σ² ≥ 0, the variance of what no mode has, which counts in errors.
    samples
        The number of samples that the modes are of; None for those of a population.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> i = np.arange(1, 1001.0)
    >>> task = lg.regression.Spectrum(i**-1.5, i**-1.6, noise=0.05)
    >>> task.samples is None, len(task.eigenvalues)
    (True, 1000)
    """

    eigenvalues: Any
    power: Any
    noise: float = 0.0
    samples: int | None = field(default=None, init=False)
    of_halves: tuple[tuple[np.ndarray, np.ndarray], ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        for name in ("eigenvalues", "power"):
            known(name, getattr(self, name))
        values = np.asarray(floating("eigenvalues", numbers("eigenvalues", self.eigenvalues), 1))
        power = np.asarray(floating("power", numbers("power", self.power), ndim=(1, 2)))
        values, power = values.astype(np.float64), power.astype(np.float64)
        if len(values) != len(power):
            raise InvalidInput(f"power: has {len(power)} modes, eigenvalues has {len(values)}.")
        for name, array in (("eigenvalues", values), ("power", power)):
            if not (array >= 0).all():
                raise InvalidInput(f"{name}: wanted numbers ≥ 0, got {array.min():g}.")
        if not (values > 0).any():
            raise InvalidInput("eigenvalues: wanted at least one that is positive.")
        order = np.argsort(-values, kind="stable")
        object.__setattr__(self, "eigenvalues", values[order])
        object.__setattr__(self, "power", power[order])
        object.__setattr__(self, "noise", real("noise", self.noise, at_least=0.0))

    def check_samples(self, name: str, most: float) -> None:
        """Check that samples of which the modes are known determine what is asked of them."""
        if self.samples is not None and most > self.samples / 2:
            raise InvalidInput(
                f"{name}: {most:.0f} samples are more than half of the {self.samples} that the "
                "spectrum is of, whose last modes are not those of the population."
            )

    @property
    def population(self) -> Population:
        """The modes, with outputs as the last axis."""
        power = self.power.reshape(len(self.power), -1)
        return Population(self.eigenvalues, power, self.noise)

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return eigenvalues, power, and the fraction of it in the first modes."""
        import xarray

        axes = ("mode", "output")[: self.power.ndim]
        total = self.power.sum(axis=0)
        share = np.cumsum(self.power, axis=0) / np.where(total > 0, total, 1)
        variables = {
            "eigenvalue": ("mode", self.eigenvalues),
            "power": (axes, self.power),
            "alignment": (axes, share),
        }
        attributes = {"noise": self.noise, "samples": self.samples or 0}
        return xarray.Dataset(variables, attrs=attributes)

    def __repr__(self) -> str:
        of = "a population" if self.samples is None else f"{self.samples} samples"
        return (
            f"Spectrum: {len(self.eigenvalues)} modes of {of}, trace "
            f"{self.eigenvalues.sum():.4g}, power {self.power.sum():.4g}, noise {self.noise:.4g}"
        )


@interruptible()
def target_spectrum(
    net: Any,
    x: Any = None,
    y: Any = None,
    *,
    kernel: str = "ntk",
    noise: float = 0.0,
    mask: Any = None,
    param: Parameterization | None = None,
) -> Spectrum:
    """Return the modes of a network's kernel over M samples, and the power of targets in them.

    With K = Σ w_m u_m u_mᵀ over the samples, λ_m = w_m/M and v_m² = (u_mᵀy)²/M. The first modes
    are those of the distribution that the samples are from; eigenvalues beyond a third of M are
    too small, and labels' noise is in the power of the last modes.

    Parameters
    ----------
    net, x, y, kernel, mask, param
        As in :func:`learning_curve`: a network and samples, or a kernel matrix and no ``x``.
    noise
        σ², the variance of additional noise.

    Raises
    ------
    InvalidInput, NoTheory, OutOfMemory
        As in :func:`learning_curve`.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.random.default_rng(0).standard_normal((200, 3))
    >>> task = lg.regression.target_spectrum(lg.mlp(1, "relu", bias_std=0.5), x, x[:, 0])
    >>> bool(task.power[1:4].sum() > 0.9)
    True
    """
    of = given(net, x, y, kernel, mask, param)
    sigma2 = real("noise", noise, at_least=0.0)
    matrix, _ = of.matrix(net, kernel, param)
    pool = pool_with_modes("net" if x is None else "x", matrix, of.columns, sigma2)
    spectrum = Spectrum(*_modes(pool, of.several), sigma2)
    object.__setattr__(spectrum, "samples", pool.size)
    if pool.size >= 2 * FEWEST:
        pairs = halves(pool, matrix, of.columns, generator(0))
        found = tuple(_modes(half, of.several) for pair in pairs for half in pair)
        object.__setattr__(spectrum, "of_halves", found)
    return spectrum


def _modes(pool: Pool, several: bool) -> tuple[np.ndarray, np.ndarray]:
    power = pool.amplitudes**2 / pool.size
    return pool.values / pool.size, power if several else power[:, 0]
