"""The operations of which networks of attention, normalisations and perceptrons are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from largen.expectations import ActivationFunction


@dataclass(frozen=True)
class Weights:
    """The constants of an affine map y = σ V x + σ_b b.

    Attributes
    ----------
    std, rate
        σ and ρ of the weights.
    bias_std, bias_rate
        σ_b and ρ of the bias; 0 if there is none.
    """

    std: float
    rate: float
    bias_std: float = 0.0
    bias_rate: float = 0.0


@dataclass(frozen=True)
class ReadIn:
    """The map from D inputs to a population of ``behind`` neurons per unit of width.

    It is σ E x/√D + σ_b b.
    """

    weights: Weights
    inputs: int
    population: int
    behind: float


@dataclass(frozen=True)
class HiddenMap:
    """A map between populations with ``before`` and ``behind`` neurons per unit of width."""

    weights: Weights
    source: int
    population: int
    before: float
    behind: float


@dataclass(frozen=True)
class ReadOut:
    """The map from a population to the outputs, f = σ w·x/(γ√(rN)) + σ_b b/γ."""

    weights: Weights
    population: int
    before: float


@dataclass(frozen=True)
class Normalization:
    """Division by the root mean square, of each position or over all of them.

    Attributes
    ----------
    population
        The population that is normalised.
    over_space
        Whether averages are over positions as well.
    eps
        What is added to the mean square.
    centred
        Whether the mean over neurons is subtracted before; it is 0 for fields that are linear in
        Gaussian vectors.
    """

    population: int
    over_space: bool
    eps: float
    centred: bool


@dataclass(frozen=True)
class Nonlinear:
    """φ at each neuron of a population."""

    activation: ActivationFunction
    population: int


@dataclass(frozen=True)
class Pool:
    """Mean or sum over positions."""

    mean: bool


@dataclass(frozen=True)
class OwnAttention:
    """Attention whose queries, keys and values are its input, with logits s ⟨x_s x_t⟩."""

    scale: float


@dataclass(frozen=True)
class Heads:
    """Heads of some number of neurons each, of which a population consists."""

    population: int
    size: int


@dataclass(frozen=True)
class Attention:
    """Attention with logits c ⟨q_s k_t⟩ of a population, or c q_s·k_t of each of its heads.

    Attributes
    ----------
    queries, keys, values
        The operations that make them of the input.
    scale
        c.
    causal
        Whether later positions are hidden.
    share
        The ratio of the number of values to that of keys, r_v/r_k.
    heads
        The heads of queries, keys and values; None if they all have the same logits.
    """

    queries: tuple[Any, ...]
    keys: tuple[Any, ...]
    values: tuple[Any, ...]
    scale: float
    causal: bool
    share: float
    heads: Heads | None = None


@dataclass(frozen=True)
class Skip:
    """The sum shortcut(x) + factor · branch(x)."""

    branch: tuple[Any, ...]
    shortcut: tuple[Any, ...]
    factor: float
