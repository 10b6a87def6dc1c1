"""Verdicts on plans: how the effect of one update grows with the size of the model.

For a tensor z of the model, g fixed Gaussian numbers of its shape and s = mean(z·g), let G = ∂s/∂W
for a weight W with the rate r. The first update along G changes s, to first order, by

==================================  ============
update                              change of s
==================================  ============
normalised (Adam's, Lion's)         r·‖G‖₁
proportional (gradient descent)     r·‖G‖₂²
orthogonalised (Muon's, Shampoo's)  r·‖G‖₂
==================================  ============

which a backward pass gives, without training. It is the coherent part of the change, so that no
random part that vanishes as n^(−½) hides its power. (Orthogonalised updates change s by ‖G‖∗, at
most √rank times ‖G‖₂. The rank is at most the number of positions in the batch, so that the powers
are equal, but ‖G‖∗ grows with the width until the rank is no longer limited by it.)

Under a right plan of a scheme that learns features the slope of log₂ of the change against log₂ of
the size is 0 on the output, on attention logits and on the tensor that W acts on first. A slope is
flagged if it exceeds its threshold, and exceeds :data:`CERTAIN` by more than the half-width of its
interval, from the scatter between networks with Student's quantile.

Slopes of the output that fade are no faults of single weights: at the start, queries, keys and
routers act on the output through signals that are still random. Nor are those of vectors, whose
entries are few at small sizes, and of matrices that are applied to more signals in a wider model
(that mix the tokens of every channel, say), whose gradient along random numbers is a random sum. In
depth only the output, attention logits and sums over the copies of a block have an exponent of
their own; what all copies of a block do together to the output is neither to grow nor to fade.

Attention logits are the inputs of softmaxes, and every product of two signals, or of two vectors of
weights, that is summed over an axis that grows: scores that a sigmoid reads, say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np

from largen.transfer.coordinates import slope_with_margin
from largen.transfer.plan import Plan
from largen.transfer.updates import UPDATES
from largen.transfer.verified import Effect

# (kind, place, weight): weight is "" for a size or a sum over weights. Of the kind "uses" is the
# number of signals that a weight is applied to.
Key = tuple[str, str, str]
Rows = Sequence[Sequence[Mapping[Key, float]]]  # by size and network
Fits = Mapping[Key, tuple[float, float]]  # slope, half-width of its interval

SHARE = 0.975  # probability below the upper end of an interval
SURE = 0.9925  # the same for the model's initial output, a random sum: three standard errors
CERTAIN = 0.1
# Largest slopes: of a sum over weights or a size; the initial output; one weight's on the output;
# below 0, of a matrix's largest effect inside.
TOTAL, START, SINGLE, FADES = 0.25, 0.3, 0.35, 0.35
TINY = 1e-30
STEADY = 0.05  # of the sum over weights, above which one that does not fade counts
SIDES = ("input", "output")  # of a module
ROUNDING = 1e-5  # of the largest effect on the same tensor


@dataclass(frozen=True)
class Layout:
    """The parts of a model that verdicts refer to."""

    modules: tuple[str, ...]  # paths of the modules in the order of their calls
    # Weight → the innermost called module that holds it, in the order of weights.
    holders: Mapping[str, str]
    final: frozenset[str]  # modules whose output is the model's
    last: frozenset[str]  # weights that act on the model's output first
    vectors: frozenset[str]  # weights with fewer than two axes
    # Module → the number of entries of its input.
    inputs: Mapping[str, int] = field(default_factory=dict)
    operations: float = 0.0  # about the number of multiplications of the forward pass

    @property
    def inner(self) -> list[str]:
        """Weights that act on a tensor inside the model first."""
        return [name for name in self.holders if name not in self.last]

    def alone(self, name: str) -> bool:
        """Whether a weight is its module's only matrix, so that the output is what it makes."""
        same = [n for n, h in self.holders.items() if h == self.holders[name]]
        return name not in self.vectors and not any(
            n != name and n not in self.vectors for n in same
        )


def change_by_update(plan: Plan, name: str, absolute: float, square: float) -> float:
    """Return the change of a scalar by one update of a weight along the scalar's gradient.

    From the sums of the gradient's absolute values and of its squares.
    """
    weight = plan[name]
    kind, rate = UPDATES[weight.moved_by or plan.optimizer].kind, weight.lr
    if kind == "proportional":
        return rate * square
    if kind == "normalised":
        return rate * absolute
    if weight.moved_by == "muon":  # its steps are √max(1, fan-out/fan-in)·O
        into, out = weight.shape[weight.fan_in], weight.shape[1 - weight.fan_in]
        rate *= max(1.0, out / into) ** 0.5
    return rate * square**0.5


def fitted(ratios: Sequence[float], rows: Rows) -> dict[Key, tuple[float, float]]:
    """Return the slopes of all numbers that every network has, and that are not 0."""
    numbers = [network for networks in rows for network in networks]
    shared = [key for key in numbers[0] if all(key in network for network in numbers)]
    x = np.array(ratios, float)
    fits = {}
    for key in shared:
        values = np.array([[network[key] for network in networks] for networks in rows])
        if np.isfinite(values).all() and (values > TINY).all():
            share = SURE if key == ("start", "output", "") else SHARE
            fits[key] = slope_with_margin(x, values, share)
    return fits


def with_sums(
    numbers: Mapping[Key, float],
    layout: Layout,
    star: Mapping[str, str],
    stacked: Collection[str] = (),
) -> dict[Key, float]:
    """Add the sums over weights: on the output, on logits, on inputs, and of copies of a block.

    ``star``: weight → its name with the block's number left out; ``stacked``: weights that hold
    those of all copies of a block.
    """
    sums: dict[Key, float] = {}

    def add(key: Key, value: float) -> None:
        sums[key] = sums.get(key, 0.0) + value

    inner = set(layout.inner)
    largest: dict[Key, float] = {}
    for (kind, place, name), value in numbers.items():
        at = (kind, place, "" if kind in ("output", "logits", "input") else name)
        largest[at] = max(largest.get(at, 0.0), value)
    # Gradients that vanish, of biases in front of a normalisation, are rounding errors.
    numbers = {
        (kind, place, name): value
        for (kind, place, name), value in numbers.items()
        if value > ROUNDING * largest.get((kind, place, ""), 0.0)
    }
    for (kind, place, name), value in numbers.items():
        if kind == "output":
            add(("output", "all", ""), value)
            add(("copies", star[name], ""), value)
            if "*" in star[name]:
                add(("blocks", star[name].partition("*")[0] + "*", ""), value)
            elif name in stacked:
                add(("blocks", name.partition(".")[0], ""), value)
            if name in inner:
                add(("output", "inner", ""), value)
        elif kind in ("logits", "input") and name in inner:
            add((kind, place, ""), value)
    return {**numbers, **sums}


def in_the_bases_names(numbers: Mapping[Key, float], names: Mapping[str, str]) -> dict[Key, float]:
    """Return the sizes of tensors by the base's names of parts; of copies, those of the first.

    Later copies of a block follow more blocks than any of the base's.
    """
    found: dict[Key, float] = {}
    for (kind, place, name), value in numbers.items():
        side, of, path = place.partition(" of ")
        found.setdefault((kind, side + of + names.get(path, path), name), value)
    return found


def in_the_first_copy(path: str, paths: Collection[str], names: Mapping[str, str]) -> str:
    """Return the first of the parts that the base calls by this name."""
    copies = (name for name in names if names[name] == path and name in paths)
    return next(copies, path)


def grows(
    fit: tuple[float, float] | None, most: float = TOTAL, scale: float = 1.0
) -> TypeGuard[tuple[float, float]]:
    """Whether a slope is certainly above its threshold."""
    return fit is not None and fit[0] > scale * most and fit[0] - fit[1] > scale * CERTAIN


def fades(
    fit: tuple[float, float] | None, most: float = TOTAL, scale: float = 1.0
) -> TypeGuard[tuple[float, float]]:
    """Whether a slope is certainly below minus its threshold."""
    return fit is not None and grows((-fit[0], fit[1]), most, scale)


def effects_of(
    fits: Fits,
    layout: Layout,
    along: str,
    kind: str = "normalised",
    many: bool = False,
    rows: Rows = (),
) -> list[Effect]:
    """Return the effects that decide: flagged ones in the order of the forward pass, then sums.

    Effects of proportional updates are squares, and have twice the thresholds. In depth, where
    changes of order l^(±⅓) are those of a finite depth, thresholds are doubled as well. That of the
    sum over all weights is not if ``many`` networks were measured. ``rows``: the numbers to which
    slopes were fitted.
    """
    scale = 2.0 if kind == "proportional" or along == "depth" else 1.0
    found = _starts(fits, layout)
    if along == "width":
        found += _on_tensors(fits, layout)
        single, most = {name: fits.get(("output", "", name)) for name in layout.holders}, SINGLE
    else:
        single, most = {place: fit for (of, place, _), fit in fits.items() if of == "copies"}, START
    # How one block's logits move by gradient descent depends on the gradient behind them.
    if along == "width" or kind != "proportional":
        found += _on_logits(fits, scale)
    for place, fit in single.items():
        if grows(fit, most, scale):
            found.append(Effect("output", place, fit[0], fit[1], "grows"))
    if along == "depth":
        found += _on_blocks(fits, scale)
    width = rows if along == "width" else ()
    return found + _on_total(fits, layout, width, 1.0 if many else scale)


def _on_blocks(fits: Fits, scale: float) -> list[Effect]:
    """What all copies of a block do to the output, if that is wrong.

    Embeddings and read-outs, whose effects do not fade, hide it in the sum over all weights.
    """
    found = []
    for (kind, place, _), fit in fits.items():
        if kind == "blocks" and (grows(fit, TOTAL, scale) or fades(fit, TOTAL, scale)):
            found.append(Effect("output", place, *fit, "grows" if fit[0] > 0 else "fades"))
    return found


def _on_total(fits: Fits, layout: Layout, rows: Rows, scale: float) -> list[Effect]:
    """What all weights together do to the output, right or wrong; nothing if it is unknown."""
    total = fits.get(("output", "all", ""))
    if total is None:
        return []
    wrong = "grows" if grows(total, TOTAL, scale) else ""
    wrong = "fades" if fades(total, TOTAL, scale) and not _is_steady(fits, layout, rows) else wrong
    return [Effect("output", "", *total, wrong)]


def _is_steady(fits: Fits, layout: Layout, rows: Rows) -> bool:
    """Whether the effect of a matrix inside, a part of the whole that counts, does not fade.

    Products of signals that start as n^(−½) hide what is behind them from the output at first,
    and the sum over all weights fades until this part is small.
    """
    last = rows[-1] if rows else ()
    whole = sum(row.get(("output", "all", ""), 0.0) for row in last)
    for name in layout.inner:
        part = sum(row.get(("output", "", name), 0.0) for row in last)
        fit = fits.get(("output", "", name))
        heavy = name not in layout.vectors and part > STEADY * whole
        if heavy and fit is not None and abs(fit[0]) < CERTAIN:
            return True
    return False


def _starts(fits: Fits, layout: Layout) -> list[Effect]:
    """Tensors that start too large."""
    found = [
        Effect("start", f"{side} of {path}", fit[0], fit[1], "grows")
        for path, side, fit in growing_starts(fits, layout)
    ]
    fit = fits.get(("start", "output", ""))
    if grows(fit, START):
        found.append(Effect("start", "", fit[0], fit[1], "grows"))
    return found


def growing_starts(fits: Fits, layout: Layout) -> Iterator[tuple[str, str, tuple[float, float]]]:
    """Yield the modules and the sides of them where a tensor inside starts too large."""
    for path in filter(None, layout.modules):
        for side in SIDES if path not in layout.final else SIDES[:1]:
            fit = fits.get(("start", f"{side} of {path}", ""))
            if grows(fit):
                yield path, side, fit


def _on_tensors(fits: Fits, layout: Layout) -> list[Effect]:
    """Weights that move the tensor they act on first too much, or nothing inside enough."""
    found = []
    for name in layout.inner:
        fit = fits.get(("tensor", "", name))
        if grows(fit):
            found.append(Effect("tensor", name, fit[0], fit[1], "grows"))
        elif fit is not None and moves_nothing(fits, layout, name):
            found.append(Effect("tensor", name, fit[0], fit[1], "fades"))
    return found


def moves_nothing(fits: Fits, layout: Layout, name: str) -> bool:
    """Whether the effects of a matrix on tensors inside and on logits certainly fade."""
    fit, applied = fits.get(("tensor", "", name)), fits.get(("uses", "", name))
    known = layout.alone(name) and not grows(applied)
    if not (known and fades(fit, FADES) and fades(largest(fits, layout, name), FADES)):
        return False
    # A tensor that starts as small is multiplied by a power of the width in the forward pass.
    start = fits.get(("start", f"output of {layout.holders[name]}", ""))
    return start is None or fades((fit[0] - start[0], fit[1]), FADES)


def _on_logits(fits: Fits, scale: float) -> list[Effect]:
    """Attention logits that move too much; if none do, those that move most."""
    slopes = {
        place.partition("#")[0]: fit
        for (kind, place, name), fit in fits.items()
        if (kind, name) == ("logits", "")
    }
    found = [
        Effect("logits", p, fit[0], fit[1], "grows")
        for p, fit in slopes.items()
        if grows(fit, TOTAL, scale)
    ]
    most = max(slopes, key=lambda place: slopes[place], default=None)
    return found if found or most is None else [Effect("logits", most, *slopes[most])]


def largest(fits: Fits, layout: Layout, name: str) -> tuple[float, float] | None:
    """Return the largest slope among a weight's effects on tensors inside that grow, and logits."""
    slopes = [
        fit
        for (kind, place, weight), fit in fits.items()
        if weight == name
        and (kind in ("tensor", "logits") or (kind == "input" and place in layout.inputs))
    ]
    return max(slopes, default=None)
