"""Orders of magnitude carried through a network of any depth, forward, backward and in time.

In the gauge of effective weights W = m·θ every sum over a layer's N neurons is of one of two
kinds. A fresh Gaussian matrix against a vector that it has not shaped: √N terms' worth (and no
more than that between two wide layers, whose matrix has norm √N entries). An increment
δW = Σ η g φᵀ against features or gradients of the same kind: they are aligned, and N terms add
up; so do the read-out's own initial weights with the features that they have moved. Hence,
with h the order of preactivations, δh of their change since initialisation, g of ∂f/∂h and δW
of an increment's entries, and writing every product as a sum of exponents,

    direct  = δW + 1 + h_in                                   what the layer's own increment does
    δh_out  = max(direct, W(0) + ½ + δh_in)                   read-out: W(0) + 1 + δh_in
    h_out   = max(h_out(0), δh_out),    h_out(0) = W(0) + ½ + h_in(0)
    g_in    = max(W(0) + ½, δW + 1) + g_out                   read-out: max(W(0), δW)
    δW     ← max(δW, rate + g_out + h_in)                     adaptive: max(δW, rate)

without the powers of N where the fan is fixed. This is the recursion (9)-(10) of Golikov's paper
and its App. G, with the same alignments for every layer; activations are taken to keep the order
of what they are applied to, which relu does exactly, and any smooth φ with φ(0) = 0, φ′(0) ≠ 0
does for preactivations that do not grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from largen.parameterizations.classification.chain import Chain, Entry, Map
from largen.parameterizations.classification.orders import (
    HALF,
    ONE,
    ZERO,
    Order,
    largest,
    product,
)


@dataclass(frozen=True)
class Moved:
    """Orders of the increments of an affine map's effective weight and bias."""

    weight: Order = None
    bias: Order = None


State = tuple[Moved, ...]


@dataclass(frozen=True)
class Signal:
    """Orders at one affine map.

    Attributes
    ----------
    input
        Of what it is applied to.
    initial, now, change
        Of its output at initialisation and now, and of the difference.
    direct
        Of the part of the difference that its own increment makes.
    backward
        Of the derivative of the network's output by its output.
    """

    input: Order
    initial: Order
    now: Order
    change: Order
    direct: Order
    backward: Order

    def through(self, fan_out: Fraction) -> Order:
        """Order of the change of the network's output through the map's own increment."""
        return product(self.backward, self.direct, fan_out)


def signals(steps: Chain, state: State) -> tuple[Signal, ...]:
    """Return the orders at every affine map, for given increments."""
    back = _backward(steps, state)
    found: list[Signal] = []
    initial, now, change = ZERO, ZERO, None
    waiting: list[tuple[Order, Order, Order]] = []
    for step in steps:
        if step == "split":
            waiting.append((initial, now, change))
        elif step == "merge":
            skipped = waiting.pop()
            here = (initial, now, change)
            initial, now, change = (largest(x, y) for x, y in zip(here, skipped, strict=True))
        elif isinstance(step, Map):
            moved, entered = state[len(found)], now
            direct = largest(product(moved.weight, step.fan_in, entered), moved.bias)
            # Only the read-out's weights are aligned with the change of what they are applied to.
            aligned = ONE if step.fan_out == 0 else HALF
            change = largest(direct, product(step.weight.initial, step.fan_in * aligned, change))
            start = None if step.bias is None else step.bias.initial
            initial = largest(product(step.weight.initial, step.fan_in * HALF, initial), start)
            now = largest(initial, change)
            found.append(Signal(entered, initial, now, change, direct, back[len(found)]))
    return tuple(found)


def advance(steps: Chain, state: State, adaptive: bool) -> State:
    """Return the increments one step later."""
    maps = [step for step in steps if isinstance(step, Map)]
    return tuple(
        Moved(
            largest(moved.weight, _update(step.weight, signal.backward, signal.input, adaptive)),
            None
            if step.bias is None
            else largest(moved.bias, _update(step.bias, signal.backward, ZERO, adaptive)),
        )
        for step, moved, signal in zip(maps, state, signals(steps, state), strict=True)
    )


def _update(entry: Entry, backward: Order, forward: Order, adaptive: bool) -> Order:
    return entry.rate if adaptive else product(entry.rate, backward, forward)


def _backward(steps: Chain, state: State) -> tuple[Order, ...]:
    found: list[Order] = []
    now: Order = ZERO
    waiting: list[Order] = []
    for step in reversed(steps):
        if step == "merge":
            waiting.append(now)
        elif step == "split":
            now = largest(now, waiting.pop())
        elif isinstance(step, Map):
            moved = state[len(state) - 1 - len(found)]
            found.append(now)
            through = largest(
                product(step.weight.initial, step.fan_out * HALF),
                product(moved.weight, step.fan_out),
            )
            now = product(now, through)
    return tuple(reversed(found))
