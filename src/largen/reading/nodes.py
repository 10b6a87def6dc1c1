"""A model as a graph of nodes: layers whose constants follow from the laws of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod, sqrt
from typing import Any, Literal

from largen.architectures import Conv, Dense, Gain, Graph, Layer
from largen.architectures.graph import ENTRY, JOINS
from largen.programs import Path
from largen.reading.laws import Law, Parameter
from largen.reading.refusals import refused
from largen.reading.values import Value


@dataclass(eq=False)
class Map:
    """An affine map of a model."""

    # weight, bias: names of its parameters; None without a bias.
    weight: str
    bias: str | None
    # fan_in, fan_out: the axes of the weight that are summed over, and that of the outputs; behind
    # the others for a vector, which has none.
    fan_in: tuple[int, ...]
    fan_out: int
    reads_data: bool  # whether it acts on the data, before any other weights
    geometry: dict[str, Any] | None  # the arguments of Conv, None for a map of each position
    place: str  # the module and the operation, for messages
    ratio: Fraction = Fraction(1)  # the number of outputs per unit of width; 1 for the read-out
    last: bool = False  # whether it is the read-out
    # weight_factor, bias_factor: constant factors of the forward pass that multiply W x and b, such
    # as 1/√n.
    weight_factor: float = 1.0
    bias_factor: float = 1.0

    @property
    def use(self) -> tuple[Any, ...]:
        """What has to be the same of all uses of a weight."""
        return self.bias, self.fan_in, self.geometry, self.reads_data, self.weight_factor

    def layer(self, weight_std: float, bias_std: float) -> Layer:
        """Return the map with its constants."""
        stds = {"weight_std": weight_std, "bias_std": bias_std, "width_ratio": self.ratio}
        return Dense(**stds) if self.geometry is None else Conv(**self.geometry, **stds)

    def variances(self, parameters: Mapping[str, Parameter]) -> tuple[float, float]:
        """Return σ_w² = Var[W]·fan_in and σ_b² of a model as constructed, with its factors."""
        weight = centred_law(self.weight, parameters)
        shape = parameters[self.weight].shape
        summed = weight.variance * prod(shape[axis] for axis in self.fan_in)
        bias = 0.0 if self.bias is None else law_of(self.bias, parameters).variance
        return summed * self.weight_factor**2, bias * self.bias_factor**2


def part_of(name: str) -> str:
    """Return the name of the part of a model that holds a parameter, with its place in a stack.

    >>> part_of("blocks.0.weight"), part_of("blocks.w[2]")
    ('blocks.0', 'blocks[2]')
    """
    whole, bracket, place = name.partition("[")
    return (whole.rpartition(".")[0] or whole) + bracket + place


def law_of(name: str, parameters: Mapping[str, Parameter]) -> Law:
    """Return the law of a parameter."""
    law = parameters[name].law
    if law is None:
        raise refused(
            name,
            f"the law of its entries cannot be read: {parameters[name].why}. Fill it by one "
            "function of torch.nn.init, or of jax.random, with independent entries",
        )
    return law


def centred_law(name: str, parameters: Mapping[str, Parameter]) -> Law:
    """Return the law of a parameter after a check that its entries fluctuate around 0."""
    law = law_of(name, parameters)
    if law.kind == "constant":
        raise refused(
            name,
            f"its entries are all {law.mean:g} at initialisation, so that it has no fluctuating "
            "outputs; remove the module, or initialise it at random",
        )
    if law.mean:
        raise refused(name, f"its entries have the mean {law.mean:.3g}, wanted 0")
    return law


@dataclass(frozen=True)
class Trained:
    """Gains and offsets of channels that a model trains, behind a node with a factor for them."""

    # The names of the parameters; None for one that is not there.
    gain: str | None
    offset: str | None
    factor: float  # the gains at the start, which are a part of the node
    alike: bool  # whether there is one for each channel, the same at all positions


Does = Map | Layer | str | tuple[Literal["again"], str]


@dataclass(eq=False)
class Nodes:
    """The nodes of a model in the order of its forward pass."""

    # What each node does: an affine map, a layer without weights, a join, or the map of another
    # node once more.
    does: dict[str, Does] = field(default_factory=dict)
    # The nodes that it reads, with factors.
    reads: dict[str, tuple[tuple[float, str], ...]] = field(default_factory=dict)
    trained: dict[str, Trained] = field(default_factory=dict)  # by the nodes that they are behind
    # Of nodes that became a part of a map, the node whose value theirs is; None if it is that of
    # no node.
    became: dict[str, str | None] = field(default_factory=dict)
    # The call that makes the value of each node, before calls were joined, and its axis of samples.
    places: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, name: str, does: Does, *reads: str, factors: tuple[float, ...] = ()) -> str:
        """Append a node with a name that is free, and return its name."""
        free, count = name or "forward", 2
        while free in self.does or free in (ENTRY, *JOINS):
            free, count = f"{name or 'forward'}#{count}", count + 1
        self.does[free] = does
        self.reads[free] = tuple(zip(factors or (1.0,) * len(reads), reads, strict=True))
        return free

    def until(self, output: str) -> Nodes:
        """Return the nodes on which an output depends."""
        needed, stack = {output}, [output]
        while stack:
            for _, read in self.reads.get(stack.pop(), ()):
                if read not in needed:
                    needed.add(read)
                    stack.append(read)
        kept = [name for name in self.does if name in needed]
        found = Nodes(*({n: of[n] for n in kept if n in of} for of in vars(self).values()))
        for name, does in found.does.items():  # the first use of a weight may not be needed
            if isinstance(does, tuple) and does[1] not in needed:
                found.does[name] = self.does[does[1]]
        return found

    def factor(self, name: str) -> float | None:
        """Return the constant factor that a node is, a sum of one term; None for other nodes."""
        reads = self.reads[name]
        return reads[0][0] if self.does[name] == "sum" and len(reads) == 1 else None

    def absorbed(self, output: str) -> str:
        """Make constant factors before and behind maps a part of them; return the output's node.

        They are with the variances of weights, where a power of the width in one cancels that in
        the other.
        """
        shared = {does[1] for does in self.does.values() if isinstance(does, tuple)}
        for name in list(self.does):
            if (factor := self.factor(name)) is None:
                continue
            ((_, read),) = self.reads[name]
            behind = self._readers(name)
            alone = len(behind) == 1 and name != output
            before, after = self.does.get(read), self.does[behind[0]] if alone else None
            if isinstance(before, Map) and read not in shared and self._readers(read) == [name]:
                before.weight_factor *= factor
                before.bias_factor *= factor
                self.became[name] = read
            elif isinstance(after, Map) and behind[0] not in shared and name not in self.trained:
                after.weight_factor *= factor
                self.became[name] = None
            else:
                continue
            self._bypass(name, read)
            output = read if output == name else output
        return output

    def place(self, name: str, origin: int, samples: int) -> None:
        """Note the call that makes the value of a node, or of that which it became."""
        found: str | None = name
        while found in self.became:
            found = self.became[found]
        if found in self.does:
            self.places[found] = origin, samples

    def _bypass(self, name: str, read: str) -> None:
        """Remove a node; those that read it read another one."""
        for other in self._readers(name):
            self.reads[other] = tuple((c, read if r == name else r) for c, r in self.reads[other])
        del self.does[name], self.reads[name]
        if name in self.trained:
            self.trained[read] = self.trained.pop(name)

    def note_gains(
        self, behind: Value, names: tuple[str | None, str | None], factor: float,
        parameters: Mapping[str, Parameter],
    ) -> None:  # fmt: skip
        """Note gains and offsets by their names, that are trained behind a value."""
        sizes = {prod(parameters[name].shape) for name in names if name}
        if sizes:
            alike = sizes == {behind.shape[behind.axes.index("channels")]}
            self.trained[behind.node] = Trained(*names, factor, alike)

    @property
    def gains(self) -> set[str]:
        """The names of trained gains and offsets."""
        names = (name for its in self.trained.values() for name in (its.gain, its.offset))
        return {name for name in names if name is not None}

    def with_gains(self) -> tuple[Nodes, dict[str, Trained]]:
        """Return the nodes with a layer for all trained gains, and the gains by its name."""
        found, trained = Nodes(), dict[str, Trained]()
        new: dict[str, str] = {}
        for name, does in self.does.items():
            found.does[name] = does
            found.reads[name] = tuple((c, new.get(read, read)) for c, read in self.reads[name])
            if its := self.trained.get(name):
                new[name] = found.add(f"{name} gain", Gain(offset=its.offset is not None), name)
                trained[new[name]] = its
        return found, trained

    def _readers(self, name: str) -> list[str]:
        """Return the nodes that read a node, as often as they do."""
        return [other for other, reads in self.reads.items() for _, read in reads if read == name]

    def felt(self, node: str) -> bool:
        """Whether a function or a product reads what a map makes, before further maps.

        Only then more than second moments of it matters.
        """
        stack = [node]
        while stack:
            for name in self._readers(stack.pop()):
                does = self.does[name]
                if does == "product" or (isinstance(does, Layer) and does.elementwise):
                    return True
                if not isinstance(does, (Map, tuple)):
                    stack.append(name)
        return False

    def difference(self, other: Nodes) -> str:
        """Return the first node in which a model of another width differs, or an empty text."""
        for name, does in self.does.items():
            theirs = other.does.get(name)
            if isinstance(does, Map) and isinstance(theirs, Map):
                does, theirs = does.geometry, theirs.geometry
            if other.reads.get(name) != self.reads[name] or theirs != does:
                return name
        return "" if len(self.does) == len(other.does) else next(reversed(other.does))

    def read_out(self, output: str) -> str:
        """Return the map of which the output is linear."""
        found, stack = set(), [output]
        while stack:
            name = stack.pop()
            does = self.does.get(name)
            if isinstance(does, (Map, tuple)):
                found.add(name)
                continue
            linear = isinstance(does, Layer) and does.linear
            if does is None or not (linear or does == "sum"):
                raise refused(
                    name if does is not None else "the output",
                    "the output is not linear in the last weights, or has an offset; read a module "
                    "that returns what it makes of them by an affine map, without a constant",
                )
            stack += [read for _, read in self.reads[name]]
        if len(found) != 1 or not isinstance(self.does[next(iter(found))], Map):
            raise refused(
                ", ".join(sorted(found)),
                "the output is a sum of several affine maps, or of one that is used elsewhere; "
                "there is a rule for one read-out",
            )
        return found.pop()

    @property
    def maps(self) -> dict[str, Map]:
        """The affine maps by node."""
        return {name: does for name, does in self.does.items() if isinstance(does, Map)}

    def graph(self, variances: Mapping[str, tuple[float, float]]) -> Graph:
        """Return the graph with the given σ_w² and σ_b² of each node that is a map."""
        nodes = {}
        for name, does in self.does.items():
            reads = self.reads[name]
            named: list[Any] = [read if c == 1.0 else (c, read) for c, read in reads]
            if isinstance(does, Map):
                does = does.layer(*map(sqrt, variances[name]))
            elif isinstance(does, tuple):
                does = does[1]
            nodes[name] = (does, *named)
        return Graph(nodes)

    def paths(self) -> dict[Path, str]:
        """Return the names of nodes with layers by their paths in the graph."""
        own = [n for n, does in self.does.items() if isinstance(does, (Map, Layer))]
        return {(place,): name for place, name in enumerate(own)}
