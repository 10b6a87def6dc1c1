"""Training in steps: one compiled loop for gradient descent and adaptive optimizers."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from largen.networks.plan import Numbers, Plan, objective, outputs, outputs_given
from largen.networks.records import arrays_for, record, write_record
from largen.networks.updates import add_langevin_noise, transformation


class Descended(NamedTuple):
    """The state of the training of one network."""

    # params, memory: the weights, and the state of the optimizer.
    params: Any
    memory: Any
    # The weights by which derivatives pass backward; None for those of the network.
    feedback: Any
    outputs: Float[Array, "time sample *output"]  # f at all times reached so far
    records: dict[str, Any]  # kernels at those times that are to be recorded


class Descent:
    """The training of one network in steps, which can be paused and resumed.

    A step has the index of the time at which it starts; none starts at the last. ``key`` is that of
    the Langevin noise, or of the feedback.
    """

    def __init__(self, plan: Plan, numbers: Numbers, key: PRNGKeyArray):
        self._plan, self._numbers, self._key = plan, numbers, key
        self._rates = jnp.asarray(numbers.rates)

    def begin(self, params: Any) -> Descended:
        """Return the state at initialisation, with arrays for outputs and records."""
        plan, x, y = self._plan, self._numbers.x, self._numbers.y
        shape = jax.eval_shape(plan.network.outputs_of, params, x)
        outputs = jnp.zeros((plan.time_points, *shape.shape), shape.dtype)
        back = self._feedback(params)
        now = lambda p: record(plan, p, x, y, back)  # noqa: E731
        records = jax.eval_shape(now, params) if plan.records else {}
        room = arrays_for(plan, records)
        memory = transformation(plan, self._rates[0]).init(params)
        return Descended(params, memory, back, outputs, room)

    def _feedback(self, start: Any) -> Any:
        """Return the weights by which derivatives pass backward; None for those of the network."""
        optimizer: Any = self._plan.optimizer
        if optimizer.backward == "direct feedback":
            return self._plan.network.direct_feedback(self._key, self._numbers.x.dtype)
        if optimizer.backward != "feedback":
            return None
        other = self._plan.network.draw(self._key, self._numbers.x.dtype)
        rho = optimizer.correlation
        rest = (1 - rho**2) ** 0.5
        return jax.tree.map(lambda w, v: rho * w + rest * v, start, other)

    def advance(self, state: Descended, start: Any, stop: Any) -> Descended:
        """Observe the network at the given range of times, and make the steps that start there."""
        return lax.fori_loop(start, stop, self._step, state)

    def ended(self, state: Descended, stop: Any) -> Bool[Array, ""]:
        """Whether this number of times is all of them."""
        # A Python integer has a weak type, and with it the flag: the next segment would be
        # compiled for that type again.
        return jnp.asarray(stop, int) >= self._plan.time_points

    def results(self, state: Descended) -> tuple[Any, dict[str, Any], Any]:
        """Return outputs, records and weights at the recorded times."""
        return state.outputs, state.records, state.params

    def _step(self, index: Any, state: Descended) -> Descended:
        import optax

        plan, numbers, x, params = self._plan, self._numbers, self._numbers.x, state.params
        back = state.feedback
        gradient = jax.grad(lambda p, x, y: objective(plan, p, x, y, back), has_aux=True)
        if numbers.batches is None:
            slope, f_train = gradient(params, x[: plan.samples], numbers.y)
            f = outputs_given(plan, params, x, f_train)
        else:
            f = outputs(plan, params, x)
            batch = jnp.asarray(numbers.batches)[index]
            slope, _ = gradient(params, x[batch], numbers.y[batch])
        rate = self._rates[index]
        updates, memory = transformation(plan, rate).update(slope, state.memory, params)
        updates = add_langevin_noise(plan, updates, rate, jax.random.fold_in(self._key, index))
        last = index == plan.time_points - 1
        updates = jax.tree.map(lambda u: jnp.where(last, 0, u).astype(u.dtype), updates)
        return Descended(
            optax.apply_updates(params, updates),
            memory,
            back,
            state.outputs.at[index].set(f),
            self._recorded(index, state),
        )

    def _recorded(self, index: Any, state: Descended) -> dict[str, Any]:
        """Return the records, with the kernels at this time added if it is to be recorded."""
        if not self._plan.records:
            return state.records
        given = state.params, self._numbers.x, self._numbers.y, state.feedback
        now = lambda: record(self._plan, *given)  # noqa: E731
        return write_record(self._plan, state.records, index, now)
