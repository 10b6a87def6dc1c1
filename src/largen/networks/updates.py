"""Optimizers as optax transformations, scaled weight by weight by the rule table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from largen.errors import InvalidInput
from largen.networks.plan import Plan
from largen.parameterizations import Scales
from largen.text import shown

if TYPE_CHECKING:
    import optax


def transformation(plan: Plan, lr: Any) -> optax.GradientTransformation:
    """Return the update rule of an optimizer, which says it itself.

    With raw rates η = η₀·(rule's lr) and decays λ = λ₀·(rule's weight_decay),

    * gradient descent, rules of pseudo-gradients, Langevin: v ← βv − η(∇ + λθ), θ ← θ + v;
    * Adam: θ ← θ − η(m̂/(√v̂ + ε) + λθ), with ε = ε₀·(rule's eps);
    * RMSProp: θ ← θ − η(∇/(√v + ε) + λθ), without bias correction of v.

    Adam and RMSProp receive the gradient in units of the rule's eps, ∇/eps. These units leave
    m̂/(√v̂ + ε) unchanged and keep v̂, of order N⁻³ in wide networks, above the smallest float32.
    """
    import optax

    decay, rate, unit = (plan.per_leaf(scale) for scale in ("weight_decay", "lr", "eps"))

    def subtract_decay(updates, params):
        factor = plan.optimizer.weight_decay
        return jax.tree.map(lambda u, p, d: u + factor * d * p, updates, params, decay)

    decays = optax.stateless(subtract_decay) if plan.optimizer.weight_decay else optax.identity()
    in_units = optax.stateless(lambda u, _: jax.tree.map(lambda u, e: u / e, u, unit))
    scaled = optax.stateless(lambda u, _: jax.tree.map(lambda u, r: -lr * r * u, u, rate))
    update = plan.optimizer.transformation(Scales(in_units, decays, scaled))
    if not callable(getattr(update, "init", None)) or not callable(getattr(update, "update", None)):
        raise InvalidInput(
            f"optimizer: the transformation of {type(plan.optimizer).__name__} has to return an "
            f"optax.GradientTransformation, got {shown(update)}."
        )
    return update


def add_langevin_noise(plan: Plan, updates: Any, lr: Any, key: Any) -> Any:
    """Add √(2ηT) ξ to the updates, η = η₀·(rule's lr), T = T₀/γ²; no change at T = 0."""
    temperature = plan.optimizer.temperature
    if not temperature:
        return updates
    std = (2 * temperature) ** 0.5 / plan.table.gamma
    leaves, tree = jax.tree.flatten(updates)
    rates = jax.tree.leaves(plan.per_leaf("lr"))
    keys = jax.random.split(key, len(leaves))
    noisy = [
        leaf + std * jnp.sqrt(lr * rate) * jax.random.normal(k, leaf.shape, leaf.dtype)
        for leaf, rate, k in zip(leaves, rates, keys, strict=True)
    ]
    return tree.unflatten(noisy)
