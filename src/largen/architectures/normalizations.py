"""Layers that normalise, and dropout, as records. None of them has weights."""

from __future__ import annotations

from dataclasses import dataclass, field

from largen.architectures.traits import Layer
from largen.arrays import flag, real
from largen.errors import InvalidInput


@dataclass(frozen=True, repr=False)
class _Normalization(Layer):
    over_space: bool = field(default=False, kw_only=True)
    eps: float = field(default=1e-12, kw_only=True)

    def __post_init__(self):
        object.__setattr__(self, "over_space", flag("over_space", self.over_space))
        object.__setattr__(self, "eps", real("eps", self.eps, at_least=0))


@dataclass(frozen=True, repr=False)
class LayerNorm(_Normalization):
    """Layer normalisation, ``y = (x − mean x) / √(var x + ε)``, without gain and offset.

    Parameters
    ----------
    over_space
        Mean and variance are over channels, at each position by itself; with True over
        positions, too.
    eps
        ε, added to the variance, in its units.

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


@dataclass(frozen=True, repr=False)
class BatchNorm(Layer):
    """Batch normalisation with the statistics of the batch it is given, without gain and offset.

    Finite networks have it. It couples samples to each other, so that no kernel is a function of
    two samples alone; :func:`largen.monte_carlo_kernel` estimates those of a batch as a whole.

    Parameters
    ----------
    eps
        ε, added to the variance of each channel over samples and positions.

    Examples
    --------
    >>> import largen as lg
    >>> lg.BatchNorm()
    BatchNorm()
    """

    eps: float = field(default=1e-5, kw_only=True)

    couples_samples = True

    def __post_init__(self):
        object.__setattr__(self, "eps", real("eps", self.eps, at_least=0))


@dataclass(frozen=True, repr=False)
class Dropout(Layer):
    """Dropout, ``y = m·x / (1 − rate)`` with every entry's m drawn 1 or, with ``rate``, 0.

    Kernels have it as during training; finite networks are evaluated without it, and runs refuse
    it, since no masks are drawn in training.

    Parameters
    ----------
    rate
        Probability of an entry to be dropped, at least 0 and below 1.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Dropout(0.1)
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
        """Whether any entry is dropped."""
        return self.rate > 0
