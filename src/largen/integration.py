"""Integration of ordinary differential equations: with adaptive steps, in segments; single steps.

Diffrax provides the methods and the step-size control; its own loop cannot be interrupted and
resumed with the same steps. The loop here can, since its state holds all that the next step
depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

if TYPE_CHECKING:
    import diffrax

# A step is extended to the final time if it would leave less than this fraction of the interval.
REST = {jnp.dtype(jnp.float32): 1e-6, jnp.dtype(jnp.float64): 1e-10}

Function = Callable[[Any, Any], Any]


class Integrated(NamedTuple):
    """The state of an integration."""

    # t, y: the current time, and the solution at it.
    t: Float[Array, ""]
    y: Any
    t_next: Float[Array, ""]  # end of the next step
    # solver, controller, jumped: diffrax's state between two steps.
    solver: Any
    controller: Any
    jumped: Bool[Array, ""]
    # saved, counts: the observables at the requested times that have been passed, infinite at later
    # ones, and the number of times passed.
    saved: tuple[Any, ...]
    counts: tuple[Int[Array, ""], ...]
    steps: Int[Array, ""]  # number of steps, including rejected ones
    sound: Bool[Array, ""]  # True unless a step has failed


class Integration:
    """The initial value problem dy/dt = velocity(t, y) between two times, with observables."""

    def __init__(
        self,
        velocity: Function,  # function of time and solution
        between: tuple[Any, Any],  # the first and the last time
        # Pairs of increasing times and a function of time and solution, whose values at these times
        # are saved; the solution is interpolated between steps.
        observed: Sequence[tuple[Float[Array, " time"], Function]],
        # solver, controller: a method and a step-size controller of Diffrax.
        solver: diffrax.AbstractERK,
        controller: diffrax.PIDController,
    ):
        import diffrax

        self._term = diffrax.ODETerm(lambda t, y, args: velocity(t, y))
        self._begin, self._end = between
        self._observed, self._solver, self._controller = observed, solver, controller

    def begin(self, y: Any) -> Integrated:
        """Return the state at the first time."""
        term, t = self._term, jnp.asarray(self._begin)
        order = self._solver.error_order(term)
        t_next, controller = self._controller.init(
            term, t, self._end, y, None, None, self._solver.func, order
        )
        t_next = jnp.minimum(t_next, self._end)
        saved = tuple(_room(times, function, t, y) for times, function in self._observed)
        return Integrated(
            t=t,
            y=y,
            t_next=t_next,
            solver=self._solver.init(term, t, t_next, y, None),
            controller=controller,
            jumped=jnp.asarray(False),
            saved=saved,
            counts=tuple(jnp.sum(times <= t, dtype=jnp.int32) for times, _ in self._observed),
            steps=jnp.int32(0),
            sound=jnp.asarray(True),
        )

    def ended(self, state: Integrated) -> Bool[Array, ""]:
        """Whether the last time is reached, or a step has failed."""
        return (state.t >= self._end) | ~state.sound

    def advance(self, state: Integrated, stop: Any) -> Integrated:
        """Continue until ``stop`` steps have been made since the first time."""

        def goes_on(state):
            return (state.steps < stop) & ~self.ended(state)

        return lax.while_loop(goes_on, self._step, state)

    def _step(self, state: Integrated) -> Integrated:
        import diffrax

        term, t, t_next = self._term, state.t, state.t_next
        order = self._solver.error_order(term)
        assert order is not None  # the order for ordinary differential equations
        y, error, dense, solver, result = self._solver.step(
            term, t, t_next, state.y, None, state.solver, state.jumped
        )
        error = jax.tree.map(lambda e: jnp.where(jnp.isnan(e), jnp.inf, e), error)
        keep, next_t, next_end, jumped, controller, verdict = self._controller.adapt_step_size(
            t, t_next, state.y, y, None, error, order, state.controller
        )
        next_t = jnp.minimum(next_t, self._end)
        rest = self._end - next_t
        near = next_end > self._end - REST[t.dtype] * (self._end - self._begin)
        next_end = jnp.where(near, jnp.where(keep, self._end, next_t + rest / 2), next_end)
        between = self._solver.interpolation_cls(t0=t, t1=t_next, **dense)
        observed = [
            _save(times, function, between, keep, saved, count)
            for (times, function), saved, count in zip(
                self._observed, state.saved, state.counts, strict=True
            )
        ]

        def chosen(new, old):
            return jnp.where(keep, new, old)

        good = diffrax.RESULTS.successful
        return Integrated(
            t=next_t,
            y=jax.tree.map(chosen, y, state.y),
            t_next=next_end,
            solver=jax.tree.map(chosen, solver, state.solver),
            controller=controller,
            jumped=chosen(jumped, state.jumped),
            saved=tuple(saved for saved, _ in observed),
            counts=tuple(count for _, count in observed),
            steps=state.steps + 1,
            sound=state.sound & (~keep | (result == good)) & (verdict == good),
        )


def _room(times: Any, function: Function, t: Any, y: Any) -> Any:
    """Return arrays for the observables, with the values at the first time filled in."""
    first = function(t, y)

    def room(value):
        at = times.reshape(-1, *[1] * value.ndim) <= t
        return jnp.where(at, value, jnp.full((len(times), *value.shape), jnp.inf, value.dtype))

    return jax.tree.map(room, first)


def _save(times: Any, function: Function, between: Any, keep: Any, saved: Any, count: Any):
    """Return the observables with the times passed by a step filled in, and the number passed."""

    def goes_on(carry):
        count, _ = carry
        here = times[jnp.minimum(count, len(times) - 1)]
        return keep & (count < len(times)) & (here <= between.t1)

    def save(carry):
        count, saved = carry
        value = function(times[count], between.evaluate(times[count]))
        return count + 1, jax.tree.map(lambda all, v: all.at[count].set(v), saved, value)

    count, saved = lax.while_loop(goes_on, save, (count, saved))
    return saved, count


def runge_kutta_step(slope: Callable[[Any], Any], y: Any, length: Any) -> Any:
    """Return a tree of arrays after a step of y' = slope(y), by the classical method of order 4.

    The four slopes are computed by a scan, so that the slope is compiled only once.

    Examples
    --------
    >>> grown = runge_kutta_step(lambda y: y, jnp.ones(()), jnp.asarray(0.5))
    >>> f"{float(grown):.5f}"  # e^0.5 = 1.64872
    '1.64844'
    """

    def along(fraction: Any, move: Any) -> Any:
        return jax.tree.map(lambda x, dx: x + fraction * length * dx, y, move)

    def stage(carry: Any, now: Any) -> tuple[Any, None]:
        move, total = carry
        fraction, weight = now
        move = slope(along(fraction, move))
        return (move, jax.tree.map(lambda a, m: a + weight * m, total, move)), None

    zero = jax.tree.map(jnp.zeros_like, y)
    dtype = jax.tree.leaves(y)[0].dtype
    fractions = jnp.asarray([0, 0.5, 0.5, 1], dtype)
    weights = jnp.asarray([1 / 6, 1 / 3, 1 / 3, 1 / 6], dtype)
    (_, total), _ = lax.scan(stage, (zero, zero), (fractions, weights))
    return along(1, total)
