"""Networks of attention, normalisations and multilayer perceptrons, as a sequence of operations.

Attention with logits of order one and normalisations act on a population of neurons through
averages over it. Affine maps multiply a field by a Gaussian matrix, so that the fields behind them
are linear combinations of the Gaussian vectors of their population, whatever the fields before
them. Activations act on each neuron of their population, which then has to be sampled. Neurons that
are added up, such as those of a residual stream, form one population; queries and keys of an
attention layer, whose products are averaged, do so as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from largen.architectures import (
    Dense,
    Elementwise,
    GlobalAvgPool,
    GlobalSumPool,
    Layer,
    LayerNorm,
    MultiHeadAttention,
    Parallel,
    QKVAttention,
    Residual,
    RMSNorm,
    SelfAttention,
    Sequence,
    carry,
    signal_of,
)
from largen.errors import NoRule, NoTheory
from largen.expectations import ActivationFunction, activation
from largen.parameterizations import CanonicalForm, CanonicalWeight
from largen.parameterizations.weight_rules import first_fan_in

LINEAR = activation("linear")
Path = tuple[int, ...]


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
    """The map from D inputs to the neurons of a population, σ E x/√D + σ_b b."""

    weights: Weights
    inputs: int
    population: int


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
class Attention:
    """Attention with logits c ⟨q_s k_t⟩.

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
    """

    queries: tuple[Any, ...]
    keys: tuple[Any, ...]
    values: tuple[Any, ...]
    scale: float
    causal: bool
    share: float


@dataclass(frozen=True)
class Skip:
    """The sum shortcut(x) + factor · branch(x)."""

    branch: tuple[Any, ...]
    shortcut: tuple[Any, ...]
    factor: float


@dataclass(frozen=True)
class _Place:
    """A point of a network: the operations until there, and what the signal is there.

    Attributes
    ----------
    done
        The operations.
    population
        The number of the signal's population; None for data.
    ratio
        The number of neurons per unit of width.
    """

    done: tuple[Any, ...] = ()
    population: int | None = None
    ratio: float = 1.0


class Populations:
    """The populations of a network, numbered; some turn out to be the same."""

    def __init__(self) -> None:
        self._same: list[int] = []
        self._activated: list[int] = []

    def new(self) -> int:
        """Return the number of a new population."""
        self._same.append(len(self._same))
        return self._same[-1]

    def unite(self, one: int, other: int) -> int:
        """Make two populations the same, and return its number."""
        one, other = self.of(one), self.of(other)
        self._same[max(one, other)] = min(one, other)
        return min(one, other)

    def activate(self, number: int) -> None:
        """Note that an activation acts on a population."""
        self._activated.append(number)

    @property
    def activated(self) -> set[int]:
        """The numbers of the populations on which activations act."""
        return set(map(self.of, self._activated))

    def of(self, number: int) -> int:
        """Return the number under which a population is known."""
        while self._same[number] != number:
            number = self._same[number]
        return number


@dataclass(frozen=True)
class Program:
    """A network as operations, one after the other.

    Attributes
    ----------
    operations
        The operations; the first one is the read-in, and the last one the read-out.
    populations
        Which populations are the same.
    positions
        The number of positions of a sample.
    attentions
        The number of attention layers.
    """

    operations: tuple[Any, ...]
    populations: Populations
    positions: int
    attentions: int


def program(net: Layer, inputs: int | tuple[int, ...], form: CanonicalForm) -> Program:
    """Return the operations of a network.

    Parameters
    ----------
    net, inputs
        The network, and the shape of a sample.
    form
        The constants of its weights.

    Raises
    ------
    NoTheory
        If the logits of a layer do not act through averages over neurons, or the network does not
        begin with an affine map.
    NoRule
        For a layer that is not known here.
    """
    found = _Reader(net, inputs, form)
    place = carry(net, _Place(), leaf=found.leaf, join=found.join)
    positions = prod(signal_of(inputs).space or ())
    return Program(place.done, found.populations, positions, found.attentions)


class _Reader:
    """What is collected along a network."""

    def __init__(self, net: Layer, inputs: Any, form: CanonicalForm):
        self.net, self.inputs, self.form = net, inputs, form
        self.populations, self.attentions = Populations(), 0
        self._weights: dict[Path, dict[str, CanonicalWeight]] = {}
        for weight in form.weights.values():
            self._weights.setdefault(weight.site.path, {})[weight.kind] = weight

    def leaf(self, layer: Layer, path: Path, place: _Place) -> _Place:
        """Return the place behind a layer that contains no others."""
        if isinstance(layer, Dense):
            return self._affine(path, place)
        if isinstance(layer, Elementwise) and layer.activation == LINEAR:
            return place
        if place.population is None:
            raise NoTheory(
                f"this limit wants a Dense(), the read-in, before {layer!r}, which reads the data."
            )
        one = place.population
        if isinstance(layer, Elementwise):
            self.populations.activate(one)
            return _behind(place, Nonlinear(layer.activation, one))
        if isinstance(layer, LayerNorm | RMSNorm):
            centred = isinstance(layer, LayerNorm)
            return _behind(place, Normalization(one, layer.over_space, layer.eps, centred))
        if isinstance(layer, GlobalAvgPool | GlobalSumPool):
            return _behind(place, Pool(isinstance(layer, GlobalAvgPool)))
        if isinstance(layer, SelfAttention):
            self.attentions += 1
            return _behind(place, OwnAttention(layer.logit_scale))
        raise no_rule(layer)

    def join(self, layer: Parallel, path: Path, place: _Place, ways: Any) -> _Place:
        """Return the place behind parallel parts."""
        if isinstance(layer, MultiHeadAttention):
            raise NoTheory(
                f"{layer!r} has logits q·k/√d, which stay random and differ from head to head; the "
                "limit of such heads under training is not implemented. With logits q·k/d, those "
                "of lg.QKVAttention(), there is one."
            )
        if not isinstance(layer, Residual | QKVAttention):
            raise no_rule(layer)
        if place.population is None:
            raise NoTheory(
                f"this limit wants a Dense(), the read-in, before {layer!r}, which reads the data."
            )
        before = replace(place, done=())
        found = [way(before) for way in ways]
        if isinstance(layer, Residual):
            branch, shortcut = found
            one = self.populations.unite(branch.population, shortcut.population)
            skip = Skip(branch.done, shortcut.done, self.form.branch)
            return _Place((*place.done, skip), one, branch.ratio)
        self.attentions += 1
        queries, keys, values = found
        self.populations.unite(queries.population, keys.population)
        attention = Attention(
            queries.done,
            keys.done,
            values.done,
            layer.logit_scale,
            layer.causal,
            values.ratio / keys.ratio,
        )
        return _Place((*place.done, attention), values.population, values.ratio)

    def _affine(self, path: Path, place: _Place) -> _Place:
        """Return the place behind an affine map."""
        weight = self._weights[path]["weight"]
        bias = self._weights[path].get("bias")
        constants = Weights(weight.std, weight.rate)
        if bias is not None:
            constants = replace(constants, bias_std=bias.std, bias_rate=bias.rate)
        if weight.site.role == "output":
            assert place.population is not None
            return _behind(place, ReadOut(constants, place.population, place.ratio))
        behind, ratio = self.populations.new(), float(weight.site.width_ratio)
        if place.population is None:
            inputs = first_fan_in(self.inputs, weight.site)
            made: Any = ReadIn(constants, inputs, behind)
        else:
            made = HiddenMap(constants, place.population, behind, place.ratio, ratio)
        return _Place((*place.done, made), behind, ratio)


def _behind(place: _Place, operation: Any) -> _Place:
    return replace(place, done=(*place.done, operation))


def no_rule(layer: Layer) -> NoRule:
    """Return the error for a layer that this limit does not cover."""
    known = (
        Dense, Elementwise, LayerNorm, RMSNorm, GlobalAvgPool, GlobalSumPool,
        SelfAttention, QKVAttention, Residual, Sequence,
    )  # fmt: skip
    return NoRule("the mean-field limit of attention", layer, known)
