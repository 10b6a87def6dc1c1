"""Observables: statistics over a batch of networks at every recorded time.

An observable is a function of the outputs of all networks on training and test samples, (seed,
sample, output) each, and is a static argument of the compiled dynamics.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Statistics(NamedTuple):
    """Mean and standard deviation over networks, and the standard error of the mean."""

    mean: Float[Array, "*axes"]
    std: Float[Array, "*axes"]
    error: Float[Array, "*axes"]


def everything(train, test):
    """Return all outputs."""
    return train, test


def statistics(train, test):
    """Return mean, standard deviation and standard error over networks in opposite pairs."""
    return _statistics(train), _statistics(test)


def variances(train, test):
    """Return sums of squares over the output axis of seed 0, the columns of a covariance's root."""
    return jnp.sum(train[0] ** 2, axis=1), jnp.sum(test[0] ** 2, axis=1)


def covariances(train, test):
    """Return sums of products over the output axis of seed 0, as :func:`variances`."""
    return train[0] @ train[0].T, test[0] @ test[0].T


def _statistics(f: Float[Array, "seed sample output"]) -> Statistics:
    pairs = f.shape[0] // 2
    twins = (f[:pairs] + f[pairs:]) / 2
    error = jnp.std(twins, axis=0, ddof=1) / jnp.sqrt(pairs)
    return Statistics(jnp.mean(twins, axis=0), jnp.std(f, axis=0), error)
