"""Networks beside their linear models, from the tangent kernel before training."""

from __future__ import annotations

import numpy as np
import xarray

import largen as lg

X = np.random.default_rng(1).normal(size=(10, 4))
TRAIN, STEPS, RATE = 6, 30, 1.0
DATA = lg.Dataset(X[:TRAIN], np.sin(3 * X[:TRAIN, 0]), X[TRAIN:], np.sin(3 * X[TRAIN:, 0]))


def training(net: lg.layers.Layer) -> lg.Run:
    """Return gradient descent of a network in the NTK parameterization, on ten inputs."""
    return lg.Run(net, lg.ntk(), DATA, optimizer=lg.gd(RATE), steps=STEPS)


def linear_model(start: np.ndarray, kernel: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Train linear models f ← f + (η/P) K (y − f) with each network's own kernel.

    Parameters
    ----------
    start
        Outputs before training, of training samples and then test samples, (seed, sample).
    kernel
        Tangent kernels between all samples and training samples, (seed, sample, train).
    y
        Targets, (train,).

    Returns
    -------
    numpy.ndarray
        Outputs, (seed, step, sample).
    """
    P, f = len(y), [start]
    for _ in range(STEPS):
        left = y - f[-1][:, :P]
        f.append(f[-1] + RATE / P * np.einsum("sij,sj->si", kernel, left))
    return np.stack(f, 1)


def beside_linear_models(net: lg.layers.Layer, width: int, seeds: int, key: int) -> xarray.Dataset:
    """Return, of each network, how far it gets from its linear model, and its kernel's change.

    The data set has ``distance (seed)``, the largest root mean square over samples during
    training, and ``change (seed)``, relative in Frobenius' norm.
    """
    nets = lg.train(training(net), width, seeds, key, record=["ntk"])
    f = np.concatenate([nets.f_train, nets.f_test], axis=2)
    data = nets.to_xarray()
    kernel = np.concatenate([nets.ntk, data["ntk_test"].values], axis=2)
    line = linear_model(f[:, 0], kernel[:, 0], DATA.y_train)
    distance = np.sqrt(np.mean((f - line) ** 2, axis=2)).max(axis=1)
    moved = np.linalg.norm(kernel[:, -1] - kernel[:, 0], axis=(1, 2))
    norm = np.linalg.norm(kernel[:, 0], axis=(1, 2))
    return xarray.Dataset({"distance": ("seed", distance), "change": ("seed", moved / norm)})
