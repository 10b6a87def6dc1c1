"""A program at a size: the shapes of its values and of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from largen.errors import InvalidInput
from largen.networks.rules import Features, channels_behind, has_rule
from largen.networks.rules.affine import Rules, shapes
from largen.parameterizations import RuleTable
from largen.programs import Affine, Gain, Path, Program, Repeat, Source, Weight, name_of, no_rule
from largen.programs.rewriting import copies_of


@dataclass(frozen=True)
class Size:
    """The sizes of a whole network, and its rule table."""

    table: RuleTable[float]  # the rule of every weight, with numbers at this size
    width: int  # N, the unit of width
    outputs: int
    readout: Path  # path of the last affine map

    def names(self, path: Path) -> dict[str, str]:
        """Return the names of the parameters at a path in the rule table, by their kinds."""
        names = {kind: f"{name_of(path)}.{kind}" for kind in ("weight", "bias", "gain", "offset")}
        return {kind: name for kind, name in names.items() if name in self.table}

    def rules(self, weight: Weight) -> Rules:
        """Return the rules of a weight and its bias, by their kinds."""
        return {kind: self.table[name] for kind, name in self.names(weight.path).items()}

    def whole(self, features: Fraction, source: Source) -> int:
        """Return a number of features as an integer; raise an error if it is not one."""
        if features.denominator != 1:
            raise InvalidInput(
                f"width: {self.width} does not give {source} an integer number of features; take "
                f"a multiple of {features.denominator}."
            )
        return int(features)


@dataclass(frozen=True)
class Sized:
    """A program at a size."""

    # program, size: the program, and the size of the whole network.
    program: Program
    size: Size
    # The shape of each value without the axis of samples, (*space, channel).
    features: tuple[Features, ...]
    # The shape of each parameter, by its name in the rule table.
    shapes: Mapping[str, tuple[int, ...]]
    bodies: Mapping[int, Sized]  # the bodies of repetitions, by the positions of their values


def sized(program: Program, size: Size, start: Features) -> Sized:
    """Return a program at a size, given the shape of its data."""
    features, bodies = [start], dict[int, Sized]()
    shapes_by_name: dict[str, tuple[int, ...]] = {}
    for place in range(1, len(program.operations)):
        operation, source = program.operations[place], program.sources[place]
        space, reads = program.signals[place].space, [features[r] for r in operation.reads]
        assert space is not None
        if isinstance(operation, Repeat):
            bodies[place] = body = sized(operation.body, size, reads[0])
            times = copies_of(operation, str(source))
            shapes_by_name |= {name: (times, *shape) for name, shape in body.shapes.items()}
            channels = body.features[-1][-1]
        elif isinstance(operation, Affine | Gain):
            weight = program.weights[operation.weight]
            if isinstance(operation, Gain):
                channels = reads[0][-1]
                made = dict.fromkeys(weight.kinds, (channels,))
            else:
                channels = size.outputs
                if weight.path != size.readout:
                    channels = size.whole(weight.width_ratio * size.width, source)
                made = shapes(operation, reads[0], (*space, channels), source)
            for kind, name in size.names(weight.path).items():
                if shapes_by_name.setdefault(name, made[kind]) != made[kind]:
                    raise InvalidInput(
                        f"net: {source} shares {name} with another layer, in which it has the "
                        f"shape {shapes_by_name[name]} instead of {made[kind]}."
                    )
        else:
            channels = _channels(program, place, tuple(reads), size)
        features.append((*space, channels))
    return Sized(program, size, tuple(features), shapes_by_name, bodies)


def _channels(program: Program, place: int, reads: tuple[Features, ...], size: Size) -> int:
    """Return the number of channels behind an operation without weights."""
    operation, source = program.operations[place], program.sources[place]
    if not has_rule(operation):
        raise no_rule("a finite network", operation, source)
    channels = channels_behind(operation, reads, source)
    if channels is not None:
        return channels
    before, behind = (Fraction(program.signals[i].copies) for i in (operation.reads[-1], place))
    return size.whole(behind / before * reads[-1][-1], source)
