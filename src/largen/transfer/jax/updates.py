"""Optimizers of the rule table in optax, with PyTorch's conventions.

Coupled decay is added to the gradient first, decoupled and independent decay to the step; ε of
RMSProp and AdaGrad is outside the root. Each optimizer is a direction times the rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from largen.errors import one_of
from largen.parameterizations import Scales
from largen.transfer.jax.trees import map_named
from largen.transfer.schedules import Schedule
from largen.transfer.updates import UPDATES, Update


def transformation(
    optimizer: Update,  # the plan's optimizer
    settings: Mapping[str, Any],  # lr, weight_decay, eps and moved_by, as from Plan.settings
    schedule: Schedule | None,  # s(t), or None
    # Options of the optimizer; for Muon, of the optimizer of the matrices.
    options: Mapping[str, Any],
    fan_in: Callable[[str], int],  # name of a matrix → the axis that is summed over
) -> optax.GradientTransformation:
    """Return the transformation of one group of weights."""
    rate, weight_decay = settings["lr"], settings["weight_decay"]
    lr = rate if schedule is None else lambda t: rate * schedule(t)
    eps = {"eps": settings["eps"]} if "eps" in settings else {}
    own = options if settings["moved_by"] == optimizer.name else {}
    step = [_direction(settings["moved_by"], {**eps, **own}, fan_in)]
    decay = [optax.add_decayed_weights(weight_decay)] if weight_decay else []
    first_to_last = [*decay, *step] if optimizer.decay == "coupled" else [*step, *decay]
    return optax.chain(*first_to_last, optax.scale_by_learning_rate(lr))


def _direction(
    name: str, options: Mapping[str, Any], fan_in: Callable[[str], int]
) -> optax.GradientTransformation:
    """Return an optimizer's direction, without its rate and its decay."""
    up = -1.0  # optax multiplies by −rate
    match name:
        case "sgd":
            return optax.sgd(up, **options)
        case "momentum":
            return optax.sgd(up, **{"momentum": 0.9, **options})
        case "adam" | "adamw":
            return optax.adam(up, **options)
        case "adamax":
            return optax.adamax(up, **options)
        case "nadam":
            return _nadam(**options)
        case "adagrad":
            return _adagrad(**options)
        case "rmsprop":
            return optax.rmsprop(up, **{"decay": 0.99, "eps_in_sqrt": False, **options})
        case "lion":
            return optax.lion(up, **{"weight_decay": 0.0, **options})
        case "signsgd":
            return optax.scale_by_sign()
        case "muon":
            return _muon(fan_in, **options)
    return _own(name, options)


def _own(name: str, options: Mapping[str, Any]) -> optax.GradientTransformation:
    """Return the direction of an optimizer of the user's own, with other options than defaults."""
    record = UPDATES[name].record
    assert record is not None
    for option in options:
        one_of("options", option, [field.name for field in fields(record)])
    same = optax.identity()
    return replace(record, **options).transformation(Scales(same, same, same))


def _zeros(params: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, params)


def _adagrad(eps: Any) -> optax.GradientTransformation:
    """g/(√Σg² + ε); in optax ε is inside the root, and the sum does not start at zero."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        squares = jax.tree.map(lambda s, g: s + g * g, state, updates)
        moved = jax.tree.map(lambda s, g: g / (jnp.sqrt(s) + eps), squares, updates)
        return moved, squares

    return optax.GradientTransformation(_zeros, update)


def _nadam(
    eps: Any, b1: Any = 0.9, b2: Any = 0.999, momentum_decay: Any = 4e-3
) -> optax.GradientTransformation:
    """Dozat's algorithm, whose momentum increases with the step; in optax it is constant."""

    def momentum(t: Any) -> Any:
        return b1 * (1 - 0.5 * 0.96 ** (t * momentum_decay))

    def init(params: Any) -> Any:
        zeros = _zeros(params)
        return jnp.zeros([], jnp.int32), jnp.ones([]), zeros, zeros

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        t, product, first, second = state
        t = t + 1
        now, later = momentum(t), momentum(t + 1)
        product = product * now
        first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, first, updates)
        second = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, second, updates)

        def moved(g: Any, m: Any, v: Any) -> Any:
            ahead = (1 - now) / (1 - product) * g + later / (1 - product * later) * m
            return ahead / (jnp.sqrt(v / (1 - b2**t)) + eps)

        return jax.tree.map(moved, updates, first, second), (t, product, first, second)

    return optax.GradientTransformation(init, update)


def _muon(
    fan_in: Callable[[str], int],
    beta: Any = 0.95,
    nesterov: bool = True,
    consistent_rms: Any = None,
    **options: Any,
) -> optax.GradientTransformation:
    """Orthogonalised momentum, times √max(1, fan-out/fan-in).

    Without optax's bias correction, which changes the direction of Nesterov's step. PyTorch
    iterates in bfloat16, this function in the precision of the gradients.
    """

    def mixed(average: Any, updates: Any) -> Any:
        return jax.tree.map(lambda m, g: beta * m + (1 - beta) * g, average, updates)

    def averaged(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        average = mixed(state, updates)
        return (mixed(average, updates) if nesterov else average), average

    def sides(tree: Any) -> Any:
        return map_named(
            lambda name, _: contrib.MuonDimensionNumbers(fan_in(name), 1 - fan_in(name)), tree
        )

    def shaped(updates: Any, params: Any = None) -> Any:
        def factor(name: str, shape: tuple[int, ...]) -> float:
            into, out = shape[fan_in(name)], shape[1 - fan_in(name)]
            if consistent_rms is None:
                return max(1.0, out / into) ** 0.5
            return consistent_rms * max(into, out) ** 0.5

        return map_named(lambda name, u: factor(name, u.shape) * u, updates)

    return optax.chain(
        optax.GradientTransformation(_zeros, averaged),
        contrib.scale_by_muon(beta=0.0, nesterov=False, weight_dimension_numbers=sides, **options),
        optax.stateless(shaped),
    )
