"""Tune small, train large, in JAX: for any function that returns a pytree of parameters.

::

    plan = scale(init, base=dict(width=64, depth=4), target=dict(width=1024, depth=32),
                 layout="in_out", hints=Hints(branches=["blocks.*.fc2", "blocks.*.out"]),
                 verify=(apply, x))         # with which the plan is verified
    parameters = plan.init(key)
    optimizer = plan.optax(lr=3e-3, weight_decay=0.1, schedule=warmup_cosine(10_000))

All factors are folded into weights and rates, so that the forward pass stays the user's own; for
a tied read-out it has to multiply the logits by :meth:`JaxPlan.factor`. Clip gradients with
:meth:`JaxPlan.clip_by_global_norm`, chained in front of the optimizer.
"""

from largen.transfer.jax.check import coordinate_check
from largen.transfer.jax.plan import JaxPlan
from largen.transfer.jax.scaling import scale
from largen.transfer.schedules import constant, warmup_cosine

__all__ = ["JaxPlan", "constant", "coordinate_check", "scale", "warmup_cosine"]
