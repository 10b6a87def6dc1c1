r"""A network's training as a power series in the change of its parameters.

With θ = θ₀ + εδ and f → f₀ + [f(θ) − f₀]/ε the network is linear at ε = 0 and the original at
ε = 1. With δ = δ₀ + εδ₁ + ε²δ₂, descent or flow of δ becomes three coupled trajectories, each
driven by those of lower order: with f along the curve θ₀ + εδ₀ + ε²δ₁ + ε³δ₂,

    F₀ + εF₁ + ε²F₂ = f₀ + [f(curve) − f₀]/ε,
    G₀ + εG₁ + ε²G₂ = (1/P) Σ_μ ℓ'(F₀ + εF₁ + ε²F₂) ∇f_μ(curve),

and δ_k moves along −ηρG_k. The coefficients are derivatives in the single number ε. F₀ is the
training at constant kernel; F₁ and F₂ are of order 1/n, the truncation error is of order n⁻².
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from largen.integration import Integrated
from largen.networks.flow import MOST_STEPS, integration
from largen.networks.plan import Numbers, Plan
from largen.networks.records import arrays_for, record, write_record
from largen.networks.updates import transformation

ORDERS = 3  # ε⁰, ε¹, ε²


def coefficients(curve: Callable[[Any], Any], order: int, dtype: Any) -> list[Any]:
    """Return the coefficients of ε⁰ … ε^order of a tree of arrays."""

    def more(function):
        def derived(epsilon):
            values, slopes = jax.jvp(function, (epsilon,), (jnp.ones_like(epsilon),))
            return (*values, slopes[-1])

        return derived

    function = lambda epsilon: (curve(epsilon),)  # noqa: E731
    for _ in range(order):
        function = more(function)
    values = function(jnp.zeros((), dtype))
    return [jax.tree.map(lambda v, k=k: v / factorial(k), tree) for k, tree in enumerate(values)]


class Expanded:
    """The expansion of a network about its initial parameters θ₀."""

    def __init__(self, plan: Plan, numbers: Numbers, start: Any):
        self.plan, self.numbers, self.start = plan, numbers, start
        self.dtype = numbers.x.dtype

    def _curve(self, moves: Any, epsilon: Any, orders: int = ORDERS) -> Any:
        """Return θ₀ + εδ₀ + …"""
        powers = [epsilon ** (k + 1) for k in range(orders)]

        def at(start, *parts):
            return start + sum(p * part for p, part in zip(powers, parts, strict=False))

        return jax.tree.map(at, self.start, *moves[:orders])

    def outputs(self, moves: Any, x: Any) -> Float[Array, "order sample *output"]:
        """Return F₀, F₁ and F₂ at samples."""
        network = self.plan.network

        def f(epsilon):
            return network.outputs_of(self._curve(moves, epsilon), x)

        first, *parts = coefficients(f, ORDERS, self.dtype)
        return jnp.stack([first + parts[0], *parts[1:]])

    def slopes(self, moves: Any, outputs: Any, x: Any, y: Any) -> list[Any]:
        """Return G₀, G₁ and G₂ of samples, given their outputs."""
        network, loss = self.plan.network, self.plan.loss

        def gradient(epsilon):
            f = sum(epsilon**k * outputs[k] for k in range(ORDERS))
            slope = jax.grad(loss.mean)(f, y)
            theta = self._curve(moves, epsilon, ORDERS - 1)
            return jax.vjp(lambda p: network.outputs_of(p, x), theta)[1](slope)[0]

        return coefficients(gradient, ORDERS - 1, self.dtype)

    def kernels(self, moves: Any) -> dict[str, Any]:
        """Return the coefficients of the tangent kernel along the curve, (order, …) each."""

        def kernel(epsilon):
            theta = self._curve(moves, epsilon, ORDERS - 1)
            return record(self.plan, theta, self.numbers.x, self.numbers.y)

        parts = coefficients(kernel, ORDERS - 1, self.dtype)
        return jax.tree.map(lambda *each: jnp.stack(each), *parts)

    def still(self) -> tuple[Any, ...]:
        """Return δ = 0 to all orders."""
        return tuple(jax.tree.map(jnp.zeros_like, self.start) for _ in range(ORDERS))


class Moved(NamedTuple):
    """The state of the three trajectories."""

    # moves, memories: δ_k, and the state of the optimizer of each.
    moves: Any
    memories: Any
    outputs: Any  # F_k at all times reached so far, (time, order, sample, …)
    records: Any  # kernels at those times that are to be recorded


class ExpandedDescent:
    """The three trajectories in steps, with the methods of ``networks.descent.Descent``."""

    def __init__(self, plan: Plan, numbers: Numbers, start: Any):
        self._network = Expanded(plan, numbers, start)
        self._plan, self._numbers = plan, numbers
        self._rates = jnp.asarray(numbers.rates)

    def begin(self, params: Any) -> Moved:
        """Return the state at initialisation, with room for what is observed."""
        network, plan = self._network, self._plan
        moves = network.still()
        shape = jax.eval_shape(lambda m: network.outputs(m, self._numbers.x), moves)
        outputs = jnp.zeros((plan.time_points, *shape.shape), shape.dtype)
        kernels = jax.eval_shape(network.kernels, moves)
        room = arrays_for(plan, kernels)
        memory = transformation(plan, self._rates[0]).init(params)
        return Moved(moves, (memory,) * ORDERS, outputs, room)

    def advance(self, state: Moved, start: Any, stop: Any) -> Moved:
        """Observe the network at the given range of times, and make the steps that start there."""
        return lax.fori_loop(start, stop, self._step, state)

    def ended(self, state: Moved, stop: Any) -> Bool[Array, ""]:
        """Whether this number of times is all of them."""
        return jnp.asarray(stop) >= self._plan.time_points

    def results(self, state: Moved) -> tuple[Any, Any]:
        """Return outputs and kernels."""
        return state.outputs, state.records

    def _step(self, index: Any, state: Moved) -> Moved:
        network, numbers, plan = self._network, self._numbers, self._plan
        f = network.outputs(state.moves, numbers.x)
        batch = slice(plan.samples)
        if numbers.batches is not None:
            batch = jnp.asarray(numbers.batches)[index]
        slopes = network.slopes(state.moves, f[:, batch], numbers.x[batch], numbers.y[batch])
        rule, last = transformation(plan, self._rates[index]), index == plan.time_points - 1
        moves, memories = [], []
        for slope, move, memory in zip(slopes, state.moves, state.memories, strict=True):
            updates, memory = rule.update(slope, memory, move)
            added = jax.tree.map(lambda m, u: m + jnp.where(last, 0, u), move, updates)
            moves.append(added)
            memories.append(memory)
        records = write_record(plan, state.records, index, lambda: network.kernels(state.moves))
        outputs = state.outputs.at[index].set(f)
        return Moved(tuple(moves), tuple(memories), outputs, records)


class ExpandedFlow:
    """The three trajectories of gradient flow, with the methods of :class:`ExpandedDescent`.

    The variables are δ/√ρ, and the tolerance is that of ``networks.flow.Flow``.
    """

    def __init__(self, plan: Plan, numbers: Numbers, start: Any):
        self._network = Expanded(plan, numbers, start)
        self._plan, self._numbers = plan, numbers
        self._tree = jax.tree.structure(start)
        self._root = [rate**0.5 for rate in jax.tree.leaves(plan.per_leaf("lr"))]
        times, x = numbers.times, numbers.x
        at = times[jnp.asarray(plan.record_at)]
        observed = [
            (times, lambda t, scaled: self._network.outputs(self._moves(scaled), x)),
            (at, lambda t, scaled: self._network.kernels(self._moves(scaled))),
        ]
        self._course = integration(self._velocity, times, observed, x.dtype)

    def begin(self, params: Any) -> Integrated:
        """Return the state at initialisation, with room for what is observed."""
        return self._course.begin([jax.tree.leaves(move) for move in self._network.still()])

    def advance(self, state: Integrated, start: Any, stop: Any) -> Integrated:
        """Integrate until this number of steps has been made since initialisation."""
        return self._course.advance(state, stop)

    def ended(self, state: Integrated, stop: Any) -> Bool[Array, ""]:
        """Whether the last time is reached, or the solver has failed."""
        return self._course.ended(state) | (state.steps >= MOST_STEPS)

    def results(self, state: Integrated) -> tuple[Any, Any]:
        """Return outputs and kernels."""
        return state.saved[0], state.saved[1]

    def _moves(self, scaled: list[list[Any]]) -> tuple[Any, ...]:
        return tuple(
            self._tree.unflatten([r * s for r, s in zip(self._root, part, strict=True)])
            for part in scaled
        )

    def _velocity(self, t: Any, scaled: list[list[Any]]) -> list[list[Any]]:
        numbers, samples, moves = self._numbers, self._plan.samples, self._moves(scaled)
        x = numbers.x[:samples]
        slopes = self._network.slopes(moves, self._network.outputs(moves, x), x, numbers.y)
        return [
            [
                -numbers.rates * r * g
                for r, g in zip(self._root, jax.tree.leaves(slope), strict=True)
            ]
            for slope in slopes
        ]
