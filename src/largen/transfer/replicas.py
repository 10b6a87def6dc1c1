"""Replicas: copies of one model that differ in seed and hyperparameters, trained side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Replica:
    """One copy.

    Attributes
    ----------
    lr
        η₀, the rate at the base shape.
    seed
        Of the initial weights.
    weight_decay
        λ₀, the decay at the base shape.
    momentum
        Of optimizers that have one.
    """

    lr: float
    seed: int = 0
    weight_decay: float = 0.0
    momentum: float = 0.9


@dataclass(frozen=True)
class TrainedReplicas:
    """What became of replicas.

    Attributes
    ----------
    losses
        The loss on each batch before its step, shape ``(replica, step)``; ∞ from the step on at
        which a replica diverged.
    final
        The loss after training on what it was evaluated on, shape ``(replica,)``; ∞ if diverged.
    """

    losses: np.ndarray
    final: np.ndarray

    @property
    def diverged(self) -> np.ndarray:
        """Which replicas diverged, shape ``(replica,)``."""
        return ~np.isfinite(self.final)
