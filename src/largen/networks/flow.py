"""Training by gradient flow: an ordinary differential equation with controlled error."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from largen.integration import Integrated, Integration
from largen.networks.plan import Numbers, Plan, objective, outputs
from largen.networks.records import record

# Tolerated error of one step, in the norm of :class:`Flow`.
TOLERANCE = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-7}
# With relu the flow can hold a neuron at its kink, where the slope jumps, and the step size would
# go to zero. No step is made shorter than this fraction of the whole time.
SHORTEST = 1 / 20_000
MOST_STEPS = int(10 / SHORTEST)


class Flow:
    """The training of one network by gradient flow, which can be paused and resumed.

    dθ/dt = −η₀ρ(∇ + λθ) with the rule's rate ρ becomes, in the variables θ/√ρ, a plain gradient
    flow (weights of rate 0 stay where they are), the same for every parameterization that the
    abc-symmetry relates. The Euclidean norm of an error δ in these variables bounds the error of
    the outputs, |δf| ≤ √K ‖δ‖ with the NTK K of order one at every width. The adaptive step size of
    the fifth-order pair of Tsitouras controls this norm, with tolerance 1e-7 in float64 and 1e-5 in
    float32. If the solver stops early, outputs at later times are infinite and count as divergence.
    """

    def __init__(self, plan: Plan, numbers: Numbers):
        self._plan, self._numbers = plan, numbers
        rates, decays = plan.per_leaf("lr"), plan.per_leaf("weight_decay")
        self._tree = jax.tree.structure(rates)
        leaves = list(zip(jax.tree.leaves(rates), jax.tree.leaves(decays), strict=True))
        self._root = [rate**0.5 or 1.0 for rate, _ in leaves]
        self._moves = [float(rate > 0) for rate, _ in leaves]
        self._shrink = [plan.optimizer.weight_decay * decay * rate for rate, decay in leaves]
        times, x, y = numbers.times, numbers.x, numbers.y
        observed = [(times, lambda t, scaled: outputs(plan, self._weights(scaled), x))]
        if plan.records:
            at = times[np.asarray(plan.record_at)]
            observed.append((at, lambda t, scaled: record(plan, self._weights(scaled), x, y)))
        self._course = integration(self._velocity, times, observed, x.dtype)

    def begin(self, params: Any) -> Integrated:
        """Return the state at initialisation, with arrays for outputs and records."""
        leaves = jax.tree.leaves(params)
        return self._course.begin([p / r for p, r in zip(leaves, self._root, strict=True)])

    def advance(self, state: Integrated, start: Any, stop: Any) -> Integrated:
        """Integrate until this number of steps has been made since initialisation."""
        return self._course.advance(state, stop)

    def ended(self, state: Integrated, stop: Any) -> Bool[Array, ""]:
        """Whether the last time is reached, or the solver has failed."""
        return self._course.ended(state) | (state.steps >= MOST_STEPS)

    def results(self, state: Integrated) -> tuple[Any, dict[str, Any], Any]:
        """Return outputs, records and weights."""
        outputs, *records = state.saved
        return outputs, records[0] if records else {}, self._weights(state.y)

    def _weights(self, scaled: list[Any]) -> Any:
        return self._tree.unflatten([s * r for s, r in zip(scaled, self._root, strict=True)])

    def _velocity(self, t: Any, scaled: list[Any]) -> list[Any]:
        numbers, samples = self._numbers, self._plan.samples

        def loss(scaled):
            return objective(self._plan, self._weights(scaled), numbers.x[:samples], numbers.y)[0]

        leaves = zip(self._moves, jax.grad(loss)(scaled), self._shrink, scaled, strict=True)
        return [-numbers.rates * m * (g + d * s) for m, g, d, s in leaves]


def integration(velocity: Any, times: Any, observed: list[Any], dtype: Any) -> Integration:
    """Return the integration of gradient flow in the variables θ/√ρ, or coefficients of them.

    ``observed``: pairs of times and functions of time and variables; ``dtype`` sets the tolerance.
    """
    import diffrax

    controller = diffrax.PIDController(
        rtol=0.0,
        atol=TOLERANCE[np.dtype(dtype)],
        norm=_norm,
        dtmin=SHORTEST * (times[-1] - times[0]),
        force_dtmin=True,
    )
    ends = times[0], times[-1]
    return Integration(velocity, ends, observed, diffrax.Tsit5(), controller)


def _norm(error: Any) -> Any:
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(error)))
