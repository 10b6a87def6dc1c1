"""Layers that normalise, perhaps with trained gains, and dropout, as records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from largen.architectures.scaling import lower_gain
from largen.architectures.traits import Layer
from largen.errors import InvalidInput
from largen.programs.builder import Builder
from largen.programs.operations import Mask, Normalise
from largen.scalars import flag, real


@dataclass(frozen=True, repr=False)
class _Normalization(Layer):
    eps: float = field(default=1e-12, kw_only=True)
    gain: bool = field(default=False, kw_only=True)
    offset: bool = field(default=False, kw_only=True)

    _centred: ClassVar[bool] = True

    def __post_init__(self):
        for name in ("gain", "offset"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        object.__setattr__(self, "eps", real("eps", self.eps, at_least=0))
        if self.offset and not self.gain:
            raise InvalidInput("offset: trained offsets go with trained gains; wanted gain=True.")

    @property
    def _over(self) -> Literal["channels", "sample", "batch"]:
        return "batch"

    def lower(self, program: Builder, value: int) -> int:
        """Append the normalisation, and its gains."""
        value = program.add(Normalise((value,), self._over, self._centred, self.eps))
        return lower_gain(program, value, self.offset) if self.gain else value


@dataclass(frozen=True, repr=False)
class _OfSamples(_Normalization):
    over_space: bool = field(default=False, kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "over_space", flag("over_space", self.over_space))

    @property
    def _over(self) -> Literal["channels", "sample", "batch"]:
        return "sample" if self.over_space else "channels"


@dataclass(frozen=True, repr=False)
class LayerNorm(_OfSamples):
    """Layer normalisation, ``y = g (x − mean x) / √(var x + ε) + b``, with g = 1, b = 0 by default.

    Parameters
    ----------
    over_space
        Whether mean and variance are over channels and positions; by default they are over the
        channels of each position.
    eps
        ε, added to the variance, in the units of the variance.
    gain, offset
        Whether g, or g and b, are trained, a number for each channel; see
        :class:`largen.layers.Gain`.

    Raises
    ------
    InvalidInput
        If an option is not of its kind, or there is an offset without a gain.

    Examples
    --------
    >>> import largen as lg
    >>> lg.LayerNorm(gain=True)
    LayerNorm(gain=True)
    """


@dataclass(frozen=True, repr=False)
class RMSNorm(_OfSamples):
    """Root-mean-square normalisation, ``y = g x / √(mean x² + ε) + b``.

    Parameters are those of :class:`LayerNorm`.

    Examples
    --------
    >>> import largen as lg
    >>> lg.RMSNorm(eps=1e-6)
    RMSNorm(eps=1e-06)
    """

    _centred = False


@dataclass(frozen=True, repr=False)
class BatchNorm(_Normalization):
    """Batch normalisation with the statistics of the batch it is given.

    It couples samples to each other, so that no kernel is a function of two samples alone;
    :func:`largen.networks.monte_carlo_kernel` estimates the kernel of a whole batch. In training,
    finite networks and the mean-field limit have it.

    Parameters
    ----------
    eps
        ε, added to the variance of each channel over samples and positions.
    gain, offset
        Trained gains and offsets of channels, as in :class:`LayerNorm`.

    Examples
    --------
    >>> import largen as lg
    >>> lg.layers.BatchNorm()
    BatchNorm()
    """

    eps: float = field(default=1e-5, kw_only=True)

    couples_samples = True


@dataclass(frozen=True, repr=False)
class Dropout(Layer):
    """Dropout, ``y = m·x / (1 − rate)`` with m = 0 with probability ``rate`` and m = 1 otherwise.

    Every entry of x has an m of its own. Kernels are those during training, with dropout; finite
    networks are evaluated without it. Runs do not accept it, since training draws no masks.

    Parameters
    ----------
    rate
        The probability that an entry is set to 0, at least 0 and below 1.

    Examples
    --------
    >>> import largen as lg
    >>> lg.layers.Dropout(0.1)
    Dropout(rate=0.1)
    """

    rate: float

    def __post_init__(self):
        rate = real("rate", self.rate, at_least=0)
        if rate >= 1:
            raise InvalidInput(f"rate: wanted a probability below 1, got {rate:g}.")
        object.__setattr__(self, "rate", rate)

    @property
    def random(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the rate is positive, so that masks are random."""
        return self.rate > 0

    def lower(self, program: Builder, value: int) -> int:
        """Append the masks."""
        return program.add(Mask((value,), self.rate))
