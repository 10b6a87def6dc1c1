"""Outputs and kernels of sets of neurons at infinite depth, and means over the sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from largen.theories.mean_field.engine.statistics import mean_and_error


class DepthKernels(NamedTuple):
    """Kernels of all samples at a recorded time, at the depths 0, the nodes, and 1."""

    features: Any  # Φ(τ) = ⟨φ(h)φ(h)⟩, with φ of the branches, (depth, sample, sample)
    gradients: Any  # G(τ), (depth, sample, sample, output, output)
    ntk: Any  # K, (sample, sample, output, output)
    h: Any  # h of the sample neurons, (depth, sample, neuron)
    g: Any  # g of the sample neurons, (depth, sample, output, neuron)


class Found(NamedTuple):
    """Results of one set of neurons: f, NaN after it has diverged, kernels, and ranks of bases."""

    outputs: Float[np.ndarray, "time sample output"]
    kernels: list[DepthKernels]
    ranks: np.ndarray


class DepthEstimate(NamedTuple):
    """Means over sets of neurons."""

    # outputs, error: f and its standard error, including the error of depth.
    outputs: Float[np.ndarray, "time sample output"]
    error: Float[np.ndarray, "time sample output"]
    # Change of f on a grid of fewer nodes of depth, beyond that by sampling.
    depth_error: Float[np.ndarray, "time sample output"]
    # kernels, kernels_error: kernels, with a leading axis of recorded times, and their standard
    # errors.
    kernels: DepthKernels
    kernels_error: DepthKernels
    tau: Float[np.ndarray, " depth"]  # depths of the kernels
    ranks: np.ndarray  # ranks of the bases of features and gradients at each node


def source_of(key: int, index: int) -> np.random.Generator:
    """Return the random numbers of a set of neurons, the same at every call.

    A sequence of seeds that is used twice gives other numbers the second time where it is split.
    """
    return np.random.default_rng(np.random.SeedSequence(key, spawn_key=(index,)))


def mean_kernels(found: Sequence[Found]) -> tuple[DepthKernels, DepthKernels]:
    """Return means of kernels over sets of neurons, with a leading axis of records, and errors.

    Sample neurons are those of the first set.
    """
    if not found[0].kernels:
        empty = DepthKernels(*(np.zeros(0) for _ in DepthKernels._fields))
        return empty, empty
    trees = [DepthKernels(*map(np.stack, zip(*one.kernels, strict=True))) for one in found]
    both = [mean_and_error(np.stack(parts)) for parts in zip(*trees, strict=True)]
    means, errors = (DepthKernels(*parts) for parts in zip(*both, strict=True))
    return means._replace(h=trees[0].h, g=trees[0].g), errors


def beyond_chance(apart: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return |x| of a whole array, with the part that its standard errors explain subtracted.

    Squares of the errors are subtracted from the squared sum over the array.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        whole, by_chance = np.sum(apart**2), np.sum(error**2)
    if not (whole > 0 and np.isfinite(by_chance)):  # one set of neurons gives no error
        return np.abs(apart)
    return np.abs(apart) * np.sqrt(max(1 - by_chance / whole, 0.0))
