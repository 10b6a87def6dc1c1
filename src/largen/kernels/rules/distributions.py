"""The distributions of a program's values, known before any number is computed.

The rules of kernels hold for functions of Gaussian values and for sums of independent values. What
each value is follows from the operations, and an operation for which the rules do not hold is
refused by the name of its layer.
"""

from __future__ import annotations

from functools import lru_cache, singledispatch
from itertools import combinations
from typing import Any, NamedTuple

from largen.errors import NoTheory
from largen.kernels.rules.dispatch import has_rule, rule
from largen.programs import (
    Affine,
    Attend,
    Concatenate,
    Flatten,
    Function,
    Gain,
    Mask,
    Maximum,
    Normalise,
    Operation,
    Pool,
    Product,
    Program,
    Repeat,
    Source,
    Sum,
    no_rule,
)

ENTRY = "entry"  # the root that stands for all those of the value that enters a repetition


class OnlyByNetworks(NoTheory):
    """An operation has no kernel rule, while finite networks implement it.

    The message has no final period: the caller appends what finite networks can do.
    """


class Nature(NamedTuple):
    """The kind of distribution of a value."""

    # "data" for numbers that are not random, "gaussian" for a Gaussian process, and otherwise a
    # description for error messages, such as "an activation".
    kind: str
    centred: bool  # whether the mean is zero
    alike: bool  # whether all channels have the same distribution
    # The weights of which a channel is a function, given the values before them: values without a
    # common root are independent.
    roots: frozenset[Any] = frozenset()
    # Whether trained gains make gradients depend on the value, so that Θ behind a function of it
    # does not follow from second moments.
    moved: bool = False


GAUSSIAN = Nature("gaussian", centred=True, alike=True)
DATA = Nature("data", centred=False, alike=False, roots=frozenset({"data"}))


@lru_cache(maxsize=1024)
def natures(program: Program, start: Nature = DATA) -> tuple[Nature, ...]:
    """Return the nature of each value of a program.

    ``start``: the nature of its data.
    """
    found = [start]
    for operation, source in list(zip(program.operations, program.sources, strict=True))[1:]:
        reads = tuple(found[r] for r in operation.reads)
        nature = nature_behind(operation, reads, source)
        if not isinstance(operation, Affine | Repeat):
            moved = isinstance(operation, Gain) or any(read.moved for read in reads)
            nature = nature._replace(moved=moved)
        found.append(nature)
        if not has_rule(operation):
            raise no_rule("kernels", operation, source, rule.registry)
    return tuple(found)


@singledispatch
def nature_behind(operation: Operation, reads: tuple[Nature, ...], source: Source) -> Nature:
    """Return the nature of an operation's value, given those of the values that it reads.

    By default a linear operation on one value does not change it, and nothing is known of any
    other, so that only an affine map may follow.

    ``operation``, ``reads``: the operation, and the natures of what it reads; ``source``: its
    layer, for messages.
    """
    roots = frozenset().union(*(nature.roots for nature in reads))
    if operation.linear and len(reads) == 1:
        return reads[0]
    return Nature(f"the output of {source}", False, False, roots)


@nature_behind.register
def _(operation: Affine, reads: tuple[Nature, ...], source: Source) -> Nature:
    # The mean over the channels of a group equals that over all channels only if all channels
    # have the same distribution.
    if operation.groups > 1 and not reads[0].alike:
        raise OnlyByNetworks(
            f"kernels: {source} splits channels of different distributions into groups, such as "
            "those of the data, so that its own channels have different covariances. Put a Dense() "
            "or a Conv() of one group before it"
        )
    return Nature("gaussian", True, True, frozenset({operation.weight}))


@nature_behind.register
def _(operation: Function, reads: tuple[Nature, ...], source: Source) -> Nature:
    (nature,) = reads
    if nature.kind == "data":
        raise NoTheory(
            f"kernels: {source} stands before the first affine map and behind another layer, "
            "where inputs are data and not Gaussian. Apply that layer to the data yourself, or "
            "put a Dense() before it."
        )
    if nature.kind != "gaussian":
        raise OnlyByNetworks(
            f"kernels: {source} acts on {nature.kind}, which is not Gaussian, so that its kernel "
            "is not an integral over two Gaussians. Put a Dense() between them"
        )
    if nature.moved:
        raise OnlyByNetworks(
            f"kernels: {source} acts on a sum, an average or a normalisation of trained gains, "
            "whose part of the tangent kernel is not an integral over two Gaussians. Put a Dense() "
            "between them, or the gains right before the function"
        )
    if not nature.alike:
        raise NoTheory(
            f"kernels: {source} acts on Gaussian channels of different variances. Put it before "
            "the layer that normalises them together, or a Dense() between them."
        )
    roots = nature.roots.union(operation.weights_used())
    return Nature(f"the output of {source}", False, True, roots)


@nature_behind.register
def _(operation: Gain, reads: tuple[Nature, ...], source: Source) -> Nature:
    return reads[0]._replace(roots=reads[0].roots | {operation.weight})


@nature_behind.register
def _(operation: Sum, reads: tuple[Nature, ...], source: Source) -> Nature:
    for one, two in combinations(reads, 2):
        if not one.roots & two.roots and not (one.centred or two.centred or one.alike or two.alike):
            raise NoTheory(
                f"kernels: in {source}, channels of two terms have means that differ from "
                "channel to channel; put a Dense() behind one of them."
            )
    gaussian = all(nature.kind == "gaussian" for nature in reads)
    return Nature(
        "gaussian" if gaussian else f"the sum {source}",
        all(nature.centred for nature in reads),
        all(nature.alike for nature in reads),
        frozenset().union(*(nature.roots for nature in reads)),
    )


@nature_behind.register
def _(operation: Product, reads: tuple[Nature, ...], source: Source) -> Nature:
    if any(one.roots & two.roots for one, two in combinations(reads, 2)):
        raise OnlyByNetworks(
            f"kernels: branches of {source} are correlated, since no random weights separate "
            "them. Put a Dense() in all of them but one"
        )
    if sum(not nature.alike for nature in reads) > 1:
        raise NoTheory(
            f"kernels: in {source}, channels of several branches have distributions that differ "
            "from channel to channel; put a Dense() behind them."
        )
    return Nature(
        f"the product {source}",
        any(nature.centred for nature in reads),
        all(nature.alike for nature in reads),
        frozenset().union(*(nature.roots for nature in reads)),
    )


@nature_behind.register
def _(operation: Concatenate, reads: tuple[Nature, ...], source: Source) -> Nature:
    kinds = {nature.kind for nature in reads}
    return Nature(
        kinds.pop() if len(kinds) == 1 else f"{source}",
        all(nature.centred for nature in reads),
        False,
        frozenset().union(*(nature.roots for nature in reads)),
    )


@nature_behind.register
def _(operation: Pool, reads: tuple[Nature, ...], source: Source) -> Nature:
    return reads[0]


@nature_behind.register
def _(operation: Flatten, reads: tuple[Nature, ...], source: Source) -> Nature:
    return reads[0]._replace(alike=False)


@nature_behind.register
def _(operation: Normalise, reads: tuple[Nature, ...], source: Source) -> Nature:
    (nature,) = reads
    if operation.over == "batch":
        raise OnlyByNetworks(
            f"kernels: {source} makes the output of a sample depend on the whole batch, so that no "
            "kernel is a function of two samples. Use LayerNorm or RMSNorm"
        )
    by_itself = operation.centred and nature.alike and operation.over == "channels"
    return nature._replace(centred=nature.centred or by_itself)


@nature_behind.register
def _(operation: Mask, reads: tuple[Nature, ...], source: Source) -> Nature:
    (nature,) = reads
    return nature if operation.rate == 0 else nature._replace(kind=f"the output of {source}")


@nature_behind.register
def _(operation: Maximum, reads: tuple[Nature, ...], source: Source) -> Nature:
    raise OnlyByNetworks(
        f"kernels: {source} takes the largest of several correlated Gaussians, and the "
        "covariance of two such maxima has no closed form. Use AvgPool"
    )


@nature_behind.register
def _(operation: Attend, reads: tuple[Nature, ...], source: Source) -> Nature:
    queries, keys, values = reads
    if operation.concentrated:  # positions are averaged with weights that do not fluctuate
        if operation.reads[0] != operation.reads[1] and queries.roots & keys.roots:
            raise OnlyByNetworks(
                f"kernels: queries and keys of {source} are correlated, since no random weights "
                "separate them. Let them end in a Dense() each"
            )
        return values
    for name, its in (("queries", queries), ("keys", keys)):
        if its.kind != "gaussian" or its.roots & values.roots or queries.roots & keys.roots:
            raise NoTheory(
                f"kernels: {name} of {source} are {its.kind}; logits are Gaussian behind an "
                "affine map with weights of its own: let them end in a Dense()."
            )
    return values._replace(kind=f"the output of {source}")


@nature_behind.register
def _(operation: Repeat, reads: tuple[Nature, ...], source: Source) -> Nature:
    (nature,) = reads
    roots = nature.roots
    for _ in range(int(min(operation.times, 2))):  # further copies do not change the nature
        inner = natures(operation.body, nature._replace(roots=frozenset({ENTRY})))[-1]
        kept = roots if ENTRY in inner.roots else frozenset()
        drawn = frozenset({operation.weights}) if inner.roots - {ENTRY} else frozenset()
        nature, roots = inner, kept | drawn
    return nature._replace(roots=roots)
