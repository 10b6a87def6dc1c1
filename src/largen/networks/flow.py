"""Training by gradient flow: an ordinary differential equation with controlled error."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.networks.plan import Numbers, Plan, objective
from largen.networks.records import record

# Allowed error of one step, in the norm explained below.
TOLERANCE = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-7}
# With relu a neuron can be held at its kink, where the slope jumps: the step size would go to
# zero with the tolerance. No step is made shorter than this fraction of the whole time.
SHORTEST = 1 / 20_000


def flow(plan: Plan, params: Any, numbers: Numbers) -> tuple[Any, dict[str, Any], Any]:
    """Return outputs at the recorded times, ``(entry, sample[, output])``, records, last weights.

    dθ/dt = −η₀ρ(∇ + λθ) with the rule's rate ρ becomes, in the variables θ/√ρ, a plain gradient
    flow (weights of rate 0 stay where they are), the same for every parameterization that the
    abc-symmetry relates. The Euclidean norm of an error δ in these variables bounds the error of
    the outputs, |δf| ≤ √K ‖δ‖ with the NTK K of order one at every width: it is what the step size
    controls, by the fifth-order pair of Tsitouras. The tolerance is 1e-7 in float64 and 1e-5 in
    float32.
    """
    import diffrax

    x, samples = numbers.x, plan.samples
    root = jax.tree.map(lambda rate: rate**0.5 or 1.0, plan.per_leaf("lr"))
    moves = jax.tree.leaves(jax.tree.map(lambda rate: float(rate > 0), plan.per_leaf("lr")))
    shrink = jax.tree.map(
        lambda decay, rate: plan.optimizer.weight_decay * decay * rate,
        plan.per_leaf("weight_decay"),
        plan.per_leaf("lr"),
    )

    start, tree = jax.tree.flatten(jax.tree.map(lambda p, r: p / r, params, root))
    root, shrink = jax.tree.leaves(root), jax.tree.leaves(shrink)

    def weights(scaled):
        return tree.unflatten([s * r for s, r in zip(scaled, root, strict=True)])

    def loss(scaled):
        return objective(plan, weights(scaled), x[:samples], numbers.y)[0]

    def velocity(t, scaled, args):
        slope = jax.grad(loss)(scaled)
        leaves = zip(moves, slope, shrink, scaled, strict=True)
        return [-numbers.rates * m * (g + d * s) for m, g, d, s in leaves]

    def norm(error):
        return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in error))

    def outputs(t, scaled, args):
        return plan.network.outputs_of(weights(scaled), x)

    def records(t, scaled, args):
        return record(plan, weights(scaled), x)

    saved = [
        diffrax.SubSaveAt(ts=numbers.times, fn=outputs),
        diffrax.SubSaveAt(t1=True),
    ]
    if plan.records:
        at = numbers.times[np.asarray(plan.record_at)]
        saved.append(diffrax.SubSaveAt(ts=at, fn=records))
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        diffrax.Tsit5(),
        t0=numbers.times[0],
        t1=numbers.times[-1],
        dt0=None,
        y0=start,
        saveat=diffrax.SaveAt(subs=saved),
        stepsize_controller=diffrax.PIDController(
            rtol=0.0,
            atol=TOLERANCE[np.dtype(x.dtype)],
            norm=norm,
            dtmin=SHORTEST * (numbers.times[-1] - numbers.times[0]),
            force_dtmin=True,
        ),
        max_steps=int(10 / SHORTEST),
        throw=False,
    )
    assert solution.ys is not None
    # Where the solver stopped early, what it did not reach is infinite: seen as divergence.
    outputs_at, last, *recorded = solution.ys
    return outputs_at, recorded[0] if recorded else {}, weights([w[-1] for w in last])
