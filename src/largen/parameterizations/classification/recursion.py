"""Recursion of orders of magnitude in a network of any depth, forward, backward and in time.

In the gauge of effective weights W = m·θ every sum over a layer's N neurons is of one of two
kinds. A Gaussian matrix times a vector that is independent of it has the order √N of one term (and
no larger one between two wide layers, since the norm of the matrix is √N times one entry). An
increment δW = Σ η g φᵀ is aligned with features or gradients of the same kind, and its product with
them has the order N of one term; so has the product of the read-out's initial weights with the
features that they have moved. Hence, with h the order of preactivations, δh that of their change
since initialisation, g that of ∂f/∂h and δW that of an increment's entries, and with every product
written as a sum of exponents,

    direct  = δW + 1 + h_in                                   effect of the layer's own increment
    δh_out  = max(direct, W(0) + ½ + δh_in)                   read-out: W(0) + 1 + δh_in
    h_out   = max(h_out(0), δh_out),    h_out(0) = W(0) + ½ + h_in(0)
    g_in    = max(W(0) + ½, δW + 1) + g_out                   read-out: max(W(0), δW)
    δW     ← max(δW, rate + g_out + h_in)                     adaptive: max(δW, rate)

without the powers of N where the fan-in or fan-out is fixed. This is the recursion (9)-(10) of
Golikov's paper and its App. G, with the same alignments for every layer. Activations are assumed
not to change the order of their argument, which is exact for relu, and holds for any smooth φ with
φ(0) = 0, φ′(0) ≠ 0 as long as preactivations do not grow. A product changes by the change of each
factor times the others. A normalisation divides values, their changes and, behind it, gradients by
√(⟨h²⟩ + ε), of the order of h, and of order one where h is smaller than ε > 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from largen.parameterizations.classification.orders import HALF, ONE, ZERO, Order, largest, product
from largen.parameterizations.classification.scaled_program import Entry, ScaledProgram
from largen.programs import Affine, Normalise, Operation, Product


@dataclass(frozen=True)
class Moved:
    """Orders of the increments of an affine map's effective weight and bias."""

    weight: Order = None
    bias: Order = None


State = tuple[Moved, ...]


@dataclass(frozen=True)
class MapOrders:
    """Orders at one affine map."""

    input: Order
    input_change: Order
    # initial, now, change: the orders of its output at initialisation, of its output now, and of
    # the difference.
    initial: Order
    now: Order
    change: Order
    direct: Order  # the order of the part of the difference that is due to its own increment
    # The order of the derivative of the network's output with respect to the map's output.
    backward: Order

    def through(self, fan_out: Fraction) -> Order:
        """Return the order of the change of the network's output by the map's own increment."""
        return product(self.backward, self.direct, fan_out)


Values = tuple[Order, Order, Order]  # of a value at initialisation, now, and of its change


def orders_of(net: ScaledProgram, state: State) -> tuple[MapOrders, ...]:
    """Return the orders at every affine map, for given increments."""
    found: list[MapOrders] = []
    values: list[Values] = [(ZERO, ZERO, None)]
    for operation in net.program.operations[1:]:
        read = [values[place] for place in operation.reads]
        initial, now, change = _joined(operation, read)
        if isinstance(operation, Affine):
            step, moved = net.maps[len(found)], state[len(found)]
            entered = now, change
            direct = largest(product(moved.weight, step.fan_in, now), moved.bias)
            # Only the read-out's weights are aligned with the change of their input.
            aligned = ONE if step.fan_out == 0 else HALF
            change = largest(direct, product(step.weight.initial, step.fan_in * aligned, change))
            start = None if step.bias is None else step.bias.initial
            initial = largest(product(step.weight.initial, step.fan_in * HALF, initial), start)
            now = largest(initial, change)
            found.append(MapOrders(*entered, initial, now, change, direct, backward=None))
        values.append((initial, now, change))
    back = _backward(net, state, [now for _, now, _ in values])
    return tuple(replace(each, backward=order) for each, order in zip(found, back, strict=True))


def _joined(operation: Operation, read: list[Values]) -> Values:
    """Return the orders behind what an operation does with the values that it reads."""
    initial, now, change = zip(*read, strict=True)
    if isinstance(operation, Product):
        moved = [product(each, _others(now, n)) for n, each in enumerate(change)]
        return product(*initial), product(*now), largest(*moved)
    if isinstance(operation, Normalise):
        sizes = [_size(operation, each) for each in (initial[0], now[0], now[0])]
        found = [product(v, -q) for v, q in zip(read[0], sizes, strict=True)]
        return found[0], found[1], found[2]
    return largest(*initial), largest(*now), largest(*change)


def _others(orders: Sequence[Order], n: int) -> Order:
    """Return the order of a product without one of its factors."""
    return product(*orders[:n], *orders[n + 1 :])


def _size(operation: Normalise, now: Order) -> Fraction:
    """Return the order of √(⟨h²⟩ + ε)."""
    return max(now or ZERO, ZERO) if operation.eps else now or ZERO


def advance(net: ScaledProgram, state: State, adaptive: bool) -> State:
    """Return the increments one step later."""
    return tuple(
        Moved(
            largest(moved.weight, _update(step.weight, orders.backward, orders.input, adaptive)),
            None
            if step.bias is None
            else largest(moved.bias, _update(step.bias, orders.backward, ZERO, adaptive)),
        )
        for step, moved, orders in zip(net.maps, state, orders_of(net, state), strict=True)
    )


def _update(entry: Entry, backward: Order, forward: Order, adaptive: bool) -> Order:
    return entry.rate if adaptive else product(entry.rate, backward, forward)


def _backward(net: ScaledProgram, state: State, forward: list[Order]) -> list[Order]:
    """Return the order of the output's derivative with respect to the output of each map.

    ``forward``: the orders of all values of the program.
    """
    operations, orders = net.program.operations, []
    values: list[Order] = [*(None for _ in operations[1:]), ZERO]
    maps = zip(reversed(net.maps), reversed(state), strict=True)
    for place in reversed(range(len(operations))):
        operation, now = operations[place], values[place]
        if isinstance(operation, Affine):
            step, moved = next(maps)
            orders.append(now)
            through = largest(
                product(step.weight.initial, step.fan_out * HALF),
                product(moved.weight, step.fan_out),
            )
            now = product(now, through)
        entered = [forward[read] for read in operation.reads]
        for n, read in enumerate(operation.reads):
            reached = now
            if isinstance(operation, Product):
                reached = product(now, _others(entered, n))
            elif isinstance(operation, Normalise):
                reached = product(now, -_size(operation, entered[n]))
            values[read] = largest(values[read], reached)
    return orders[::-1]
