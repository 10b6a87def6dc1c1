"""Sums of exponentials of time, and linear responses to them."""

from __future__ import annotations

from typing import Any

import numpy as np


def risen(rate: Any, t: Any) -> Any:
    """Return E_s(t) = ∫₀ᵗ e^(−su) du = (1 − e^(−st))/s; t at s = 0."""
    product = np.asarray(rate * t)
    safe = np.where(np.abs(product) < 1e-12, 1.0, product)
    return t * np.where(np.abs(product) < 1e-12, 1 - product / 2, -np.expm1(-safe) / safe)


def convolve(exponent: Any, rate: Any, t: Any) -> Any:
    """Return ∫₀ᵗ e^(−exponent (t−u)) e^(−rate u) du; t e^(−exponent t) where both are equal."""
    least, gap = np.minimum(exponent, rate), np.abs(exponent - rate)
    return np.exp(-least * t) * risen(gap, t)
