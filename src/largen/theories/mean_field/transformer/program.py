"""Networks of attention, normalisations and multilayer perceptrons, as a sequence of operations.

Attention with logits of order one and normalisations act on a population of neurons through
averages over it. Affine maps multiply a field by a Gaussian matrix, so that the fields behind them
are linear combinations of the Gaussian vectors of their population, whatever the fields before
them. Activations act on each neuron of their population, which then has to be sampled; so has a
population of heads of a fixed size, in each of which logits are products of few neurons. Neurons
that are added up, such as those of a residual stream, form one population; queries and keys of an
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
from largen.expectations import activation
from largen.parameterizations import CanonicalForm, CanonicalWeight
from largen.parameterizations.weight_rules import first_fan_in
from largen.theories.mean_field.transformer.operations import (
    Attention,
    Heads,
    HiddenMap,
    Nonlinear,
    Normalization,
    OwnAttention,
    Pool,
    ReadIn,
    ReadOut,
    Skip,
    Weights,
)

LINEAR = activation("linear")
Path = tuple[int, ...]


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
        self._split: list[tuple[int, int]] = []

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

    def split(self, number: int, size: int) -> None:
        """Note that a population consists of heads of some number of neurons."""
        self._split.append((number, size))

    @property
    def activated(self) -> set[int]:
        """The numbers of the populations on which activations act."""
        return set(map(self.of, self._activated))

    @property
    def head_sizes(self) -> dict[int, int]:
        """The numbers of neurons of a head, of populations that consist of heads."""
        return {self.of(number): size for number, size in self._split}

    @property
    def sampled(self) -> set[int]:
        """The numbers of the populations that have to be sampled."""
        return self.activated | set(self.head_sizes)

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
        if not isinstance(layer, Residual | QKVAttention | MultiHeadAttention):
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
        return self._attention(layer, place, found)

    def _attention(self, layer: Any, place: _Place, ways: Any) -> _Place:
        """Return the place behind attention with weights of its own."""
        self.attentions += 1
        queries, keys, values = ways
        one = self.populations.unite(queries.population, keys.population)
        scale, share, heads = layer.logit_scale, values.ratio / keys.ratio, None
        if isinstance(layer, MultiHeadAttention):
            size = _size_of_heads(layer, share)
            one = self.populations.unite(one, values.population)
            self.populations.split(one, size)
            scale, heads = scale / size**0.5, Heads(one, size)
        parts = (queries.done, keys.done, values.done)
        attention = Attention(*parts, scale, layer.causal, share, heads)
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
            made: Any = ReadIn(constants, inputs, behind, ratio)
        else:
            made = HiddenMap(constants, place.population, behind, place.ratio, ratio)
        return _Place((*place.done, made), behind, ratio)


def _size_of_heads(layer: MultiHeadAttention, share: float) -> int:
    """Return the number of neurons of a head, with values and keys in the given ratio.

    Raises
    ------
    NoTheory
        If it grows with the width, there is no softmax, or there are not as many values as keys.
    """
    if layer.key_size is None:
        raise NoTheory(
            f"{layer!r} has heads whose keys grow in number with the width, and logits q·k/√d that "
            "stay random; their limit under training is not implemented. With key_size=… there is "
            "that of heads of a fixed size, and with logits q·k/d, those of lg.QKVAttention(), "
            "that of large keys."
        )
    if layer.mechanism != "softmax":
        raise NoTheory(f"{layer!r} has no softmax; its limit under training is not implemented.")
    if share != 1:
        raise NoTheory(
            f"{layer!r} has {share:g} values for each key; the limit of heads of a fixed size "
            "wants as many values as keys."
        )
    return layer.key_size


def _behind(place: _Place, operation: Any) -> _Place:
    return replace(place, done=(*place.done, operation))


def no_rule(layer: Layer) -> NoRule:
    """Return the error for a layer that this limit does not cover."""
    known = (
        Dense, Elementwise, LayerNorm, RMSNorm, GlobalAvgPool, GlobalSumPool,
        SelfAttention, QKVAttention, MultiHeadAttention, Residual, Sequence,
    )  # fmt: skip
    return NoRule("the mean-field limit of attention", layer, known)
