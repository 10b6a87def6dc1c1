"""Tune small, train large, in JAX: for any function that returns a pytree of parameters."""

from largen.transfer.jax.plan import JaxPlan
from largen.transfer.jax.scaling import scale
from largen.transfer.schedules import constant, warmup_cosine

__all__ = ["JaxPlan", "constant", "scale", "warmup_cosine"]
