"""The operations of which programs consist.

A network is a list of operations in single assignment: each names the values that it reads, by
their position in the list, so that skip connections over several scales, streams with several
readers and weights that are used twice are ordinary. Layers say which operations they are
(:meth:`largen.architectures.Layer.lower`); a theory has one rule for each operation that makes
sense there. Operations contain no numbers that belong to a parameterization: two networks that
differ in their variances, or in the powers of their widths, have equal operations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from largen.expectations import ActivationFunction
from largen.programs.windows import Window

if TYPE_CHECKING:
    from largen.programs.program import Program

Indices = tuple[int, ...] | dict[int, int]
BRANCH = "branch"  # the factor of residual branches, a power of the depth
Factor = float | Literal["branch"]


@dataclass(frozen=True)
class Operation:
    """Base of all operations.

    Attributes
    ----------
    reads
        Positions of the values that the operation reads.
    linear
        Whether channels are mapped separately, y_pc = Σ_q A_pq x_qc, with fixed coefficients.
    homogeneous
        Whether y(ax) = a·y(x) for a > 0, as for every linear operation.
    words
        The operation as a noun with its article, for messages; the class's name by default.
    """

    reads: tuple[int, ...]

    linear: ClassVar[bool] = False
    homogeneous: ClassVar[bool] = False
    words: ClassVar[str]

    def __init_subclass__(cls, words: str = ""):
        super().__init_subclass__()
        cls.words = words or cls.__name__
        cls.homogeneous = cls.homogeneous or cls.linear

    def weights_used(self) -> tuple[int, ...]:
        """Return the indices of the operation's weights in its program."""
        return ()

    def seeds_used(self) -> tuple[int, ...]:
        """Return the indices of the operation's seeds in its program."""
        return ()

    def renumbered(self, weights: Indices, seeds: Indices) -> Operation:
        """Return the operation with other indices of weights and seeds, by those that it has."""
        return self


@dataclass(frozen=True)
class Data(Operation, words="the data"):
    """The samples, (*space, channels): the first value of every program."""

    reads: tuple[int, ...] = ()


@dataclass(frozen=True)
class MoveChannels(Operation, words="data with another order of axes"):
    """The samples with the axis of channels moved behind the others.

    Attributes
    ----------
    axis
        The axis of channels in a sample.
    """

    axis: int

    linear = True


@dataclass(frozen=True)
class Affine(Operation, words="an affine map"):
    """Affine map, y_p = Σ_k W_k x_{p(k)} + b, with the taps k of a window.

    Attributes
    ----------
    weight
        Index of the weight in the program; two operations may name the same weight.
    window
        Geometry of the taps; None for one tap at each position.
    tied
        Whether all positions have the same weight.
    groups
        The number of groups into which channels are split.
    """

    weight: int
    window: Window | None = None
    tied: bool = True
    groups: int = 1

    def weights_used(self) -> tuple[int, ...]:
        """Return the index of the weight."""
        return (self.weight,)

    def renumbered(self, weights: Indices, seeds: Indices) -> Affine:
        """Return the map with another index of its weight."""
        return replace(self, weight=weights[self.weight])

    @property
    def dense(self) -> bool:
        """Whether there is one tap at each position, for all channels and with one weight."""
        return self.window is None and self.tied and self.groups == 1


@dataclass(frozen=True)
class Gain(Operation, words="trained gains"):
    """Trained factors and offsets of channels, y_pc = (a + g_c) x_pc + b_c; at first g = b = 0.

    Attributes
    ----------
    weight
        Index of the weight in the program, of which g and b are the parameters.
    initial
        a.
    offset
        Whether there is b.
    """

    weight: int
    initial: float = 1.0
    offset: bool = False

    def weights_used(self) -> tuple[int, ...]:
        """Return the index of the weight."""
        return (self.weight,)

    def renumbered(self, weights: Indices, seeds: Indices) -> Gain:
        """Return the gain with another index of its weight."""
        return replace(self, weight=weights[self.weight])


@dataclass(frozen=True)
class Function(Operation, words="an elementwise function"):
    """One function of each number, y = φ(x).

    Attributes
    ----------
    phi
        φ.
    gains
        Trained gains inside of φ, which joins several operations: for each the index of its
        weight, the derivative of φ with respect to the gain, and that with respect to the offset:
        None without one, or a number r for r φ'.
    """

    phi: ActivationFunction
    gains: tuple[tuple[int, ActivationFunction, ActivationFunction | float | None], ...] = ()

    def weights_used(self) -> tuple[int, ...]:
        """Return the indices of the weights of the gains."""
        return tuple(weight for weight, _, _ in self.gains)

    def renumbered(self, weights: Indices, seeds: Indices) -> Function:
        """Return the function with other indices of the weights of its gains."""
        return replace(self, gains=tuple((weights[w], *of) for w, *of in self.gains))


@dataclass(frozen=True)
class Sum(Operation, words="a sum with constant factors"):
    """Weighted sum of values of equal shape, y = Σ_i c_i x_i.

    Attributes
    ----------
    factors
        c_i: numbers, or ``"branch"`` for the parameterization's factor of residual branches.
    """

    factors: tuple[Factor, ...]

    linear = True


@dataclass(frozen=True)
class Product(Operation, words="a product of values"):
    """Elementwise product of values of equal shape."""


@dataclass(frozen=True)
class Concatenate(Operation, words="a concatenation of channels"):
    """Concatenation along the channels.

    Attributes
    ----------
    shares
        The share of each value in the channels.
    """

    shares: tuple[float, ...]


@dataclass(frozen=True)
class Pool(Operation, words="an average over positions"):
    """Average over the positions of a window that are inside the sample, or their sum.

    Attributes
    ----------
    window
        None for all positions, which removes the axes of space.
    total
        Whether positions are added instead of averaged.
    """

    window: Window | None
    total: bool = False

    linear = True


@dataclass(frozen=True)
class Scale(Operation, words="factors of positions"):
    """A constant factor for each position, y_p = h_p x_p.

    Attributes
    ----------
    factors
        h, in the order in which positions are stored.
    space
        The spatial axes.
    """

    factors: tuple[float, ...]
    space: tuple[int, ...]

    linear = True

    @property
    def along(self) -> np.ndarray:
        """The factors as an array (*space, 1)."""
        return np.reshape(self.factors, (*self.space, 1))


@dataclass(frozen=True)
class Maximum(Operation, words="a maximum over positions"):
    """Largest entry in each window."""

    window: Window

    homogeneous = True


@dataclass(frozen=True)
class Flatten(Operation, words="positions as channels"):
    """All positions and channels as one axis of features."""

    linear = True


@dataclass(frozen=True)
class Normalise(Operation):
    """Division by the root of the second moment, (x − m)/√(⟨(x − m)²⟩ + ε).

    Attributes
    ----------
    over
        What averages are over: the channels at each position, channels and positions
        (``"sample"``), or samples and positions (``"batch"``).
    centred
        Whether the mean m is subtracted.
    eps
        ε.
    """

    over: Literal["channels", "sample", "batch"]
    centred: bool
    eps: float


@dataclass(frozen=True)
class Mask(Operation, words="random masks"):
    """Multiplication by independent masks m/(1 − rate), with m = 0 with probability ``rate``."""

    rate: float


@dataclass(frozen=True)
class Attend(Operation, words="attention"):
    """Attention of positions, y_p = Σ_r A_pr v_r in each head; it reads queries, keys and values.

    Logits of a head with d features are ``scale`` · q·k/d, which converge in the limit of many
    features, or ``scale`` · q·k/√d, which stay random.

    Attributes
    ----------
    concentrated
        Whether logits are q·k/d.
    softmax
        Whether A is the softmax of the logits over the visible positions, or the logits.
    scale
        The factor of the logits.
    causal
        Whether positions see themselves and earlier ones only.
    heads, key_size
        The number of heads, or the number of features d of each; both None for as many heads as
        the largest divisor of the width up to its root.
    draws, seed
        For kernels of random logits, the number of heads that are drawn, and the index of their
        seed in the program.
    """

    concentrated: bool
    softmax: bool = True
    scale: float = 1.0
    causal: bool = False
    heads: int | None = None
    key_size: int | None = None
    draws: int = 0
    seed: int | None = None

    def seeds_used(self) -> tuple[int, ...]:
        """Return the index of the seed, if there is one."""
        return () if self.seed is None else (self.seed,)

    def renumbered(self, weights: Indices, seeds: Indices) -> Attend:
        """Return the same attention with another index of its seed."""
        return self if self.seed is None else replace(self, seed=seeds[self.seed])


@dataclass(frozen=True)
class Repeat(Operation, words="a repetition"):
    """Copies of a program in sequence, with weights of their own.

    Attributes
    ----------
    body
        The program of one copy; its data are the value that enters the copy.
    times
        The number of copies, which may be ``math.inf``.
    weights
        Rows of indices: the weights of the surrounding program that take the place of the body's.
        One row stands for all copies, whose weights then have the same constants; otherwise there
        is a row for each copy.
    seeds
        The same for the seeds of the body.
    """

    body: Program
    times: float
    weights: tuple[tuple[int, ...], ...] = ((),)
    seeds: tuple[tuple[int, ...], ...] = ((),)

    def weights_used(self) -> tuple[int, ...]:
        """Return the indices of the weights of all copies."""
        return tuple(weight for row in self.weights for weight in row)

    def seeds_used(self) -> tuple[int, ...]:
        """Return the indices of the seeds of all copies."""
        return tuple(seed for row in self.seeds for seed in row)

    def renumbered(self, weights: Indices, seeds: Indices) -> Repeat:
        """Return the copies with other indices of their weights and seeds."""
        return replace(
            self,
            weights=tuple(tuple(weights[i] for i in row) for row in self.weights),
            seeds=tuple(tuple(seeds[i] for i in row) for row in self.seeds),
        )
