"""Constant factors of positions, and trained ones of channels, as records."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from largen.architectures.traits import Layer
from largen.arrays import numbers
from largen.errors import InvalidInput
from largen.programs.builder import Builder
from largen.programs.operations import Gain as GainOperation
from largen.programs.operations import Scale
from largen.programs.signals import Signal
from largen.scalars import flag, real


@dataclass(frozen=True, repr=False)
class ScalePositions(Layer):
    """A constant factor for each position, ``y_p = h_p x_p``.

    Behind an activation and before a sum over positions it is the read-out with weights h of
    Bahri and Hanin, Les Houches lectures, eq. (23),

        f = b + Σ_j W_j Σ_p h_p φ(z_jp),   K = σ_b² + σ_w² Σ_pp' h_p h_p' E[φ(z_p) φ(z'_p')].

    Parameters
    ----------
    factors
        h, an array of the shape of the spatial axes: (positions,) for sequences, (height, width)
        for images.

    Raises
    ------
    InvalidInput
        If the factors are not finite numbers with at least one axis, or the input has other
        spatial axes.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> weighted = lg.layers.ScalePositions([0.5, 0.3, 0.2]), lg.layers.GlobalSumPool()
    >>> net = lg.serial(lg.Conv((3,)), lg.Activation("relu"), *weighted, lg.Dense())
    >>> lg.nngp_kernel(net, np.ones((2, 3, 4))).shape
    (2, 2)
    """

    factors: Any

    _bare = ("factors",)
    linear = True

    def __post_init__(self):
        factors = numbers("factors", self.factors)
        if not factors.ndim or not factors.size:
            raise InvalidInput(
                "factors: wanted one number for each position, with the axes of a sample's "
                f"positions, got shape {factors.shape}."
            )
        object.__setattr__(self, "factors", _nested(factors.tolist()))

    @property
    def keeps_shape(self) -> bool:
        """True: there are as many positions and channels behind the layer."""
        return True

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the same signal, whose positions must be those of the factors."""
        space = np.shape(self.factors)
        if signal.space is not None and signal.space != space:
            raise InvalidInput(
                f"net: {self!r} has factors for the spatial axes {space}, and its input has "
                f"{signal.space}."
            )
        return replace(signal, sample=None)

    def lower(self, program: Builder, value: int) -> int:
        """Append the factors."""
        array = np.asarray(self.factors)
        return program.add(Scale((value,), tuple(array.ravel().tolist()), array.shape))


@dataclass(frozen=True, repr=False)
class Gain(Layer):
    """Trained factors of channels, ``y_pc = (a + g_c) x_pc + b_c``, with g = b = 0 at the start.

    The factors of LayerScale (Touvron et al. 2021) at the end of a residual branch, and with a = 1
    the gains of a normalisation. They scale as biases in all parameterizations, and with weight
    decay tend to a. With rates ρ and ρ_b in units of η₀γ² they add to the tangent kernel what the
    mean over the channels of (∂f/∂g)(∂f'/∂g) is,

        K ← a² K,   Θ ← a² Θ + ρ K + ρ_b,

    and inside of a function of Gaussian u, y = ψ((a + g)u + b), where these are correlated (both
    derived for largen),

        Θ ← (a² Θ + ρ_b) E[ψ'(au)ψ'(au')] + ρ E[χ(u)χ(u')],   χ(u) = u ψ'(au).

    One factor for all channels has no such limit: its gradient is a sum over the channels that
    remains random, at the rate of a bias, as N → ∞.

    Parameters
    ----------
    initial
        a: 1 for the gains of a normalisation, 1e-4 to 0.1 at the end of branches of deep networks.
    offset
        Whether there are offsets b.

    Raises
    ------
    InvalidInput
        If an argument is not of its kind. By all computations, if the gains are before the first
        affine map or behind the last.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> branch = lg.serial(lg.Activation("relu"), lg.Dense(), lg.layers.Gain(0.1))
    >>> net = lg.serial(lg.Dense(), lg.Residual(branch), lg.Dense())
    >>> [name for name in lg.ntk().table(net)]
    ['0.weight', '1.0.1.weight', '1.0.2.gain', '2.weight']
    >>> lg.kernel(net, np.eye(2)).ntk.shape
    (2, 2)
    """

    initial: float = 1.0
    offset: bool = field(default=False, kw_only=True)

    _bare = ("initial",)

    def __post_init__(self):
        object.__setattr__(self, "initial", real("initial", self.initial))
        object.__setattr__(self, "offset", flag("offset", self.offset))

    def lower(self, program: Builder, value: int) -> int:
        """Append the gains."""
        return lower_gain(program, value, self.offset, self.initial)


def lower_gain(program: Builder, value: int, offset: bool, initial: float = 1.0) -> int:
    """Append the gains of a layer, and return their value."""
    one, ratio = Fraction(1), Fraction(program.signal(value).copies)
    weight = program.weight(
        value, weight_std=1.0, bias_std=float(offset), width_ratio=ratio, patch=one, gain=True
    )
    return program.add(GainOperation((value,), weight, initial, offset))


def _nested(entries: Any) -> Any:
    """Return nested lists as tuples, which can be compared and hashed."""
    return tuple(map(_nested, entries)) if isinstance(entries, list) else entries
