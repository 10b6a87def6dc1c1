"""Probabilities of classes from outputs, and their scale by leave-one-out predictions.

Outputs of regression on ±1 say which class is likely, and not how likely. With one scale τ for all
samples, class c has the probability that m_c + τz_c is the largest of all classes,

    P(c) = E[∏_{k≠c} Φ(z + (m_c − m_k)/τ)],   z ~ N(0, 1);   P = Φ(m/τ) for two classes,

and τ has the least log-loss at predictions of each training sample by the others. These are known
without another fit: with A = K + σ²/w, a = A⁻¹y and s = (σ²/w) (A⁻¹)_ii, one copy of a sample of
weight w has the error (see ``noise.py``)

    y_i − m_i = a_i/(A⁻¹)_ii  for w ≤ 1,   σ² a_i/(w − 1 + s)  for w > 1.

Where all are predicted right, the log-loss falls as τ → 0. Labels count therefore as right with the
probability 1 − 1/(W + 2) for a total weight W (Platt, Probabilistic outputs for support vector
machines, 1999).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr

from largen.regression.conditioning import Inference

# Scales are tried in factors of 2, then of 2^(1/8): a finer one changes the loss by 1e-3 of itself,
# and its minimum would differ by rounding between equal fits.
COARSE, FINE = np.arange(-10, 7.0), np.arange(-7, 8) / 8
NODES, NODES_OF_FIT = 101, 24


def probabilities(mean: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return the probability that a class's output is the largest, (sample, class).

    ``mean``: (sample, class), or (sample,) of two classes; ``s``: standard deviations, (sample,).
    """
    if mean.ndim == 1:
        positive = ndtr(mean / s)
        return np.stack([1 - positive, positive], axis=1)
    found = [_of_class(mean, np.full(len(mean), c), s, NODES) for c in range(mean.shape[1])]
    found = np.stack(found, axis=1)
    return found / found.sum(axis=1, keepdims=True)


def scale_of(given: Inference, y: np.ndarray, weights: np.ndarray | None) -> float:
    """Return τ of a posterior with targets y of ±1, (sample,) or (sample, class)."""
    w = np.ones(len(y)) if weights is None else weights
    mean = _left_out(given, y.reshape(len(y), -1), w).reshape(y.shape)
    right = 1 - 1 / (w.sum() + 2)
    tiny = np.finfo(np.float64).tiny

    def loss(log2: float) -> float:
        s = np.full(len(y), 2.0**log2)
        if y.ndim == 1:
            p, other = ndtr(y * mean / s), ndtr(-y * mean / s)
        else:
            p = _of_class(mean, y.argmax(axis=1), s, NODES_OF_FIT)
            other = 1 - p
        logs = right * np.log(np.maximum(p, tiny)) + (1 - right) * np.log(np.maximum(other, tiny))
        return -float(w @ logs)

    best = min(COARSE, key=loss)
    return float(2.0 ** (best + min(FINE, key=lambda step: loss(best + step))))


def _of_class(mean: np.ndarray, chosen: np.ndarray, s: np.ndarray, count: int) -> np.ndarray:
    """Return the probability that the output of the chosen class of each sample is the largest."""
    nodes, masses = np.polynomial.hermite_e.hermegauss(count)
    own = np.take_along_axis(mean, chosen[:, None], axis=1)
    above = (own - mean) / s[:, None]
    largest = np.ones((len(mean), len(nodes)))
    for k in range(mean.shape[1]):
        largest *= np.where((chosen == k)[:, None], 1.0, ndtr(nodes + above[:, k, None]))
    return largest @ (masses / masses.sum())


def _left_out(given: Inference, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return predictions of samples, (sample, output), by all but one copy of each."""
    root = given.factor.root
    if not given.factor.singular:
        root = solve_triangular(root, np.eye(len(root)), lower=True, check_finite=False).T
    own = np.sum(np.square(root), axis=1)[:, None]  # (A⁻¹)_ii
    a: Any = given.weights
    noise = np.broadcast_to(given.noise, w.shape)[:, None]
    copies = np.maximum(w, 1)[:, None] - 1
    error = np.where(copies > 0, noise * (copies + 1) * a / (copies + noise * own), a / own)
    return y - error
