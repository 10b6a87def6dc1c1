"""Optimizers of the rule table in optax, with PyTorch's conventions.

Coupled decay is added to the gradient before anything else; RMSProp's ε is outside of the root.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optax

from largen.transfer.schedules import Schedule
from largen.transfer.updates import Update


def transformation(
    optimizer: Update,
    settings: Mapping[str, Any],
    schedule: Schedule | None,
    options: Mapping[str, Any],
) -> optax.GradientTransformation:
    """Return the transformation of one group.

    Parameters
    ----------
    optimizer
        The plan's optimizer.
    settings
        ``lr``, ``weight_decay``, ``eps`` and ``moved_by``, as from :meth:`Plan.settings`.
    schedule
        s(t), or None.
    options
        Of the optimizer; for Muon, of the matrices' one.
    """
    rate, decay = settings["lr"], settings["weight_decay"]
    lr = rate if schedule is None else lambda t: rate * schedule(t)
    name = settings["moved_by"]
    eps = {"eps": settings["eps"]} if "eps" in settings else {}
    own = dict(options) if name == optimizer.name else {}
    first = [optax.add_decayed_weights(decay)] if decay else []
    match name:
        case "sgd":
            moved = optax.sgd(lr, **own)
        case "momentum":
            moved = optax.sgd(lr, **{"momentum": 0.9, **own})
        case "rmsprop":
            moved = optax.rmsprop(lr, **{"decay": 0.99, "eps_in_sqrt": False, **eps, **own})
        case "adam" if optimizer.decay == "coupled":
            moved = optax.adam(lr, **eps, **own)
        case "adam" | "adamw":
            return optax.adamw(lr, weight_decay=decay, **eps, **own)
        case "lion":
            return optax.lion(lr, **{"weight_decay": decay, **own})
        case "signsgd":
            return optax.chain(optax.scale_by_sign(), *first, optax.scale_by_learning_rate(lr))
        case "muon":
            return optax.contrib.muon(lr, **{"weight_decay": decay, **own})
        case _:
            raise AssertionError(name)
    return optax.chain(*first, moved)
