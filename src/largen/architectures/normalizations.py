"""Layers that normalise, and dropout, as records. None of them has weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from largen.architectures.traits import Layer
from largen.errors import InvalidInput
from largen.programs.builder import Builder
from largen.programs.operations import Mask, Normalise
from largen.scalars import flag, real


@dataclass(frozen=True, repr=False)
class _Normalization(Layer):
    over_space: bool = field(default=False, kw_only=True)
    eps: float = field(default=1e-12, kw_only=True)

    _centred: ClassVar[bool] = True

    def __post_init__(self):
        object.__setattr__(self, "over_space", flag("over_space", self.over_space))
        object.__setattr__(self, "eps", real("eps", self.eps, at_least=0))

    def lower(self, program: Builder, value: int) -> int:
        """Append the normalisation."""
        over = "sample" if self.over_space else "channels"
        return program.add(Normalise((value,), over, self._centred, self.eps))


@dataclass(frozen=True, repr=False)
class LayerNorm(_Normalization):
    """Layer normalisation, ``y = (x − mean x) / √(var x + ε)``, without gain and offset.

    Parameters
    ----------
    over_space
        Whether mean and variance are over channels and positions; by default they are over the
        channels of each position.
    eps
        ε, added to the variance, in the units of the variance.

    Examples
    --------
    >>> import largen as lg
    >>> lg.LayerNorm()
    LayerNorm()
    """


@dataclass(frozen=True, repr=False)
class RMSNorm(_Normalization):
    """Root-mean-square normalisation, ``y = x / √(mean x² + ε)``, without gain.

    Parameters are those of :class:`LayerNorm`.

    Examples
    --------
    >>> import largen as lg
    >>> lg.RMSNorm(eps=1e-6)
    RMSNorm(eps=1e-06)
    """

    _centred = False


@dataclass(frozen=True, repr=False)
class BatchNorm(Layer):
    """Batch normalisation with the statistics of the batch it is given, without gain and offset.

    It is implemented for finite networks. It couples samples to each other, so that no kernel is a
    function of two samples alone; :func:`largen.networks.monte_carlo_kernel` estimates the kernel
    of a whole batch.

    Parameters
    ----------
    eps
        ε, added to the variance of each channel over samples and positions.

    Examples
    --------
    >>> import largen as lg
    >>> lg.layers.BatchNorm()
    BatchNorm()
    """

    eps: float = field(default=1e-5, kw_only=True)

    couples_samples = True

    def __post_init__(self):
        object.__setattr__(self, "eps", real("eps", self.eps, at_least=0))

    def lower(self, program: Builder, value: int) -> int:
        """Append the normalisation."""
        return program.add(Normalise((value,), "batch", True, self.eps))


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
