"""What the kernel of a program requires: moments of its values, and covariances of two values.

Covariances of two values are required only where terms of a sum depend on the same weights. One
pass from the output backwards finds them, with how each follows from those of values before it.
There are three ways: a linear operation on either side, one weight on both sides, and functions of
Gaussian values on both sides. Networks without such sums, as most trees of layers, require none.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from largen.expectations import ActivationFunction, as_activation
from largen.kernels.rules.dispatch import wanted
from largen.kernels.rules.distributions import ENTRY, Nature, OnlyByNetworks, natures
from largen.kernels.state import Wanted
from largen.programs import (
    Affine,
    Concatenate,
    Flatten,
    Function,
    Gain,
    Mask,
    Normalise,
    Pool,
    Product,
    Program,
    Repeat,
    Scale,
    Sum,
)

Pair = tuple[int, int]
_IDENTITY = as_activation("linear")
# What the data of a program are in general, so that it may be the body of a repetition.
_ANY = Nature("gaussian", centred=False, alike=True, roots=frozenset({ENTRY}))


class CrossesCopies(Exception):
    """A covariance is required of the output of a repetition and a value before it."""


class OfMeans(NamedTuple):
    """Independent values: the product of their means."""


class Expanded(NamedTuple):
    """A linear operation on one side: ``place`` is expanded, ``other`` stays."""

    place: int
    other: int


class SameWeight(NamedTuple):
    """One weight on both sides, applied to two values."""

    one: int
    two: int


class Matched(NamedTuple):
    """Concatenations, or flattened positions, on both sides: the mean over the parts."""

    parts: tuple[Pair, ...]
    shares: tuple[float, ...]


class Factor(NamedTuple):
    """A factor φ(a) of a value: it is at ``value``, and the Gaussian value a at ``base``."""

    phi: ActivationFunction
    base: int
    value: int


class Factors(NamedTuple):
    """Products of functions of Gaussian values, in independent parts with at most one on a side."""

    parts: tuple[tuple[Factor | None, Factor | None], ...]


Way = OfMeans | Expanded | SameWeight | Matched | Factors


class Plan(NamedTuple):
    """What a program requires."""

    values: tuple[Wanted, ...]  # the moments that are required of each value
    # For each value the pairs of it and an earlier one whose covariance is required, and how they
    # follow.
    pairs: tuple[tuple[tuple[Pair, Way], ...], ...]
    wanted: dict[Pair, bool]  # of each of these, whether all pairs of positions are required

    @property
    def crossed(self) -> bool:
        """Whether any covariance of two values is required."""
        return bool(self.wanted)


def known_of(program: Program) -> tuple[Nature, ...]:
    """Return the natures of the values of a program with any data."""
    return natures(program, _ANY)


def dependent(program: Program, one: int, two: int) -> bool:
    """Whether two values depend on the same weights."""
    known = known_of(program)
    return bool(known[one].roots & known[two].roots)


def dependent_terms(program: Program, place: int) -> tuple[Pair, ...]:
    """Return the pairs of terms of a sum that depend on the same weights; none otherwise."""
    operation = program.operations[place]
    if not isinstance(operation, Sum):
        return ()
    pairs = combinations(operation.reads, 2)
    return tuple(pair for pair in pairs if dependent(program, *pair))


@lru_cache(maxsize=4096)
def plan_of(program: Program, behind: Wanted) -> Plan:
    """Return what a program requires, given the moments required of its output."""
    found = [Wanted() for _ in program.operations]
    found[-1] = behind
    asked: dict[Pair, bool] = {}
    ways: list[tuple[tuple[Pair, Way], ...]] = [() for _ in program.operations]

    def ask(pair: Pair, required: Wanted) -> None:
        one, two = max(pair), min(pair)
        if one == two:
            found[one] |= required
        elif way_of(program, one, two) is not None:
            asked[one, two] = asked.get((one, two), False) or required.pairs

    for place in range(program.output, 0, -1):
        # Pairs first: they may require moments of this value.
        computed = []
        for other in range(place - 1, -1, -1):
            if (place, other) not in asked:
                continue
            way = way_of(program, place, other)
            assert way is not None
            computed.append(((place, other), way))
            for pair, required in _before(program, (place, other), way, asked[place, other]):
                ask(pair, required)
        ways[place] = tuple(reversed(computed))
        for read in program.operations[place].reads:
            found[read] |= of_reads(program, place, found[place])
        for pair in dependent_terms(program, place):
            ask(pair, Wanted(found[place].pairs))
    return Plan(tuple(found), tuple(ways), asked)


@lru_cache(maxsize=1024)
def pairs_of_functions(
    program: Program,
) -> frozenset[tuple[ActivationFunction, ActivationFunction]]:
    """Return the functions φ and ψ of all E[φ(u)ψ(v)] that a program requires, copies included."""
    found = set()
    for computed in plan_of(program, Wanted()).pairs:
        for _, way in computed:
            for one, two in way.parts if isinstance(way, Factors) else ():
                if one is not None and two is not None:
                    found.add((one.phi, two.phi))
    for operation in program.operations:
        if isinstance(operation, Repeat):
            found |= pairs_of_functions(operation.body)
    return frozenset(found)


def requirements(program: Program, behind: Wanted) -> tuple[Wanted, ...]:
    """Return the moments that are required of each value, given those required of the output."""
    return plan_of(program, behind).values


def wanted_of_data(program: Program, behind: Wanted | None = None) -> Wanted:
    """Return the moments that a program requires of its data."""
    return requirements(program, Wanted() if behind is None else behind)[0]


def of_reads(program: Program, place: int, behind: Wanted) -> Wanted:
    """Return the moments that an operation requires of what it reads."""
    operation, known = program.operations[place], known_of(program)
    required = wanted(operation, behind)
    if isinstance(operation, Sum):
        # Second moments of a sum contain the products of the means of independent terms.
        required |= Wanted(
            means=any(
                isinstance(way_of(program, *pair), OfMeans)
                for pair in combinations(operation.reads, 2)
                if not any(known[each].centred for each in pair)
            )
        )
    if isinstance(operation, Repeat):
        for _ in range(2):  # requirements only grow, and there are two of them
            required |= requirements(operation.body, required)[0]
    return required


@lru_cache(maxsize=2**16)
def way_of(program: Program, u: int, v: int) -> Way | None:
    """Return how the covariance of two values follows; None if it is zero."""
    known, operations = known_of(program), program.operations
    if not known[u].roots & known[v].roots:
        return None if known[u].centred or known[v].centred else OfMeans()
    for place, other in sorted(((u, v), (v, u)), reverse=True):
        if isinstance(operations[place], Sum | Pool | Scale | Normalise | Mask | Gain):
            if known[other].roots.intersection(_gains(program, place)):
                raise _refused(program, u, v)
            return Expanded(place, other)
    match operations[u], operations[v]:
        case Affine(reads=(one,), weight=weight), Affine(reads=(two,), weight=other) if (
            weight == other
        ):
            return SameWeight(one, two)
        case Flatten(reads=(one,)), Flatten(reads=(two,)):
            return Matched(((one, two),), (1.0,))
        case Concatenate(ones, shares), Concatenate(twos, others) if shares == others:
            return Matched(tuple(zip(ones, twos, strict=True)), shares)
    if isinstance(operations[u], Repeat) or isinstance(operations[v], Repeat):
        raise CrossesCopies
    ones, twos = _factors(program, u), _factors(program, v)
    if ones is None or twos is None:
        raise _refused(program, u, v)
    return _in_parts(program, u, v, ones, twos)


def _gains(program: Program, place: int) -> tuple[int, ...]:
    """Return the weights of the gains that an operation has; those of affine maps do not count."""
    operation = program.operations[place]
    return operation.weights_used() if isinstance(operation, Function | Gain) else ()


def _check_gains(program: Program, u: int, v: int) -> None:
    """Refuse two values whose factors have gains in common."""
    gains = [
        {gain for each in _factors(program, value) or () for gain in _gains(program, each.value)}
        for value in (u, v)
    ]
    if gains[0] & gains[1]:
        raise _refused(program, u, v)


def _factors(program: Program, place: int) -> tuple[Factor, ...] | None:
    """Return a value as a product of functions of Gaussian values, or None if it is none."""
    match program.operations[place]:
        case Function(reads=(base,), phi=phi):
            return (Factor(phi, base, place),)
        case Product(reads=reads):
            found = [_factors(program, read) for read in reads]
            return None if None in found else tuple(f for each in found if each for f in each)
    gaussian = known_of(program)[place].kind == "gaussian"
    return (Factor(_IDENTITY, place, place),) if gaussian else None


def _in_parts(
    program: Program, u: int, v: int, ones: tuple[Factor, ...], twos: tuple[Factor, ...]
) -> Factors | None:
    """Return factors of two values by independent parts; None if the mean of one of them is 0."""
    parts = _matched(program, ones, twos)
    if parts is None:
        raise _refused(program, u, v)
    _check_gains(program, u, v)
    for one, two in parts:
        alone = one if two is None else two if one is None else None
        if alone is not None and known_of(program)[alone.value].centred:
            return None
        if one and two and one.phi == two.phi == _IDENTITY and {one.base, two.base} == {u, v}:
            raise _refused(program, u, v)
    return Factors(tuple(parts))


def _matched(
    program: Program, ones: tuple[Factor, ...], twos: tuple[Factor, ...]
) -> list[tuple[Factor | None, Factor | None]] | None:
    """Return each factor with the dependent one of the other side; None if one has several."""
    met = [[two for two in twos if dependent(program, one.value, two.value)] for one in ones]
    taken = [two for each in met for two in each]
    if any(len(each) > 1 for each in met) or len(taken) > len({*taken}):
        return None
    pairs = [(one, each[0] if each else None) for one, each in zip(ones, met, strict=True)]
    return [*pairs, *((None, two) for two in twos if two not in taken)]


def _before(program: Program, pair: Pair, way: Way, pairs: bool) -> list[tuple[Pair, Wanted]]:
    """Return what the covariance of a pair is computed from."""
    match way:
        case OfMeans():
            return [((each, each), Wanted(means=True)) for each in pair]
        case Expanded(place, other):
            return _before_linear(program, place, other, pairs)
        case SameWeight(one, two):
            operation = program.operations[pair[0]]
            tied = isinstance(operation, Affine) and operation.tied
            return [((one, two), Wanted(pairs and tied))]
        case Matched(parts):
            flat = isinstance(program.operations[pair[0]], Flatten)
            return [(each, Wanted(pairs and not flat)) for each in parts]
        case Factors(parts):
            return [_before_factors(one, two, pairs) for one, two in parts]


def _before_factors(one: Factor | None, two: Factor | None, pairs: bool) -> tuple[Pair, Wanted]:
    if one and two:
        return (one.base, two.base), Wanted(pairs)
    (alone,) = (each.value for each in (one, two) if each)
    return (alone, alone), Wanted(means=True)


def _before_linear(
    program: Program, place: int, other: int, pairs: bool
) -> list[tuple[Pair, Wanted]]:
    operation = program.operations[place]
    pairs = pairs or isinstance(operation, Pool)
    found = [((read, other), Wanted(pairs)) for read in operation.reads]
    if off_centre(program, place, other):
        found += [((each, each), Wanted(means=True)) for each in (operation.reads[0], other)]
    return found


def off_centre(program: Program, place: int, other: int) -> bool:
    """Whether a mean is subtracted at ``place`` that contributes to the covariance with another."""
    operation, known = program.operations[place], known_of(program)
    if not isinstance(operation, Normalise) or not operation.centred:
        return False
    return not (known[operation.reads[0]].centred or known[other].centred)


def _refused(program: Program, u: int, v: int) -> OnlyByNetworks:
    one, two = sorted((program.sources[v], program.sources[u]), key=lambda source: source.path)
    return OnlyByNetworks(
        f"kernels: the outputs of {one} and {two} are correlated, since no random weights separate "
        "them, and their covariance is not an integral over two Gaussians. Put a Dense() behind "
        "one of them"
    )
