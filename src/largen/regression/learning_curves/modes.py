"""Eigenmodes of a kernel: over a pool of samples, or over a population."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Modes(ABC):
    """Eigenvalues, and what of a mode is not learned at an effective ridge."""

    values: np.ndarray  # ≥ 0, decreasing, (mode,)

    @cached_property
    def rank(self) -> int:
        """The number of modes with a positive eigenvalue."""
        return int((self.values > 0).sum())

    def unlearned(self, mu: Any) -> np.ndarray:
        """Return μ/(w + μ), (..., mode); 1 for modes with w = 0, also at μ = 0."""
        mu = np.asarray(mu)[..., None]
        return np.where(self.values > 0, mu / np.where(self.values > 0, self.values + mu, 1), 1)

    def shares(self, mu: np.ndarray) -> np.ndarray:
        """Return √w/(w + μ), (ridge, mode); 0 for modes with w = 0."""
        below = np.where(self.values > 0, self.values + mu[:, None], 1)
        return np.where(self.values > 0, np.sqrt(self.values), 0) / below

    @abstractmethod
    def spare(self, total: Any) -> Any:
        """Return M − df from the sum of the unlearned parts; 1 in units where M → ∞."""

    @abstractmethod
    def spare_slope(self, slope: Any) -> Any:
        """Return the derivative of the same by log μ, from that of the sum."""
