"""Fluctuations of networks of finite width around a limit, measured on an ensemble of networks.

To leading order √N times the standard deviation of an output does not depend on the width N, nor
for residual branches L^(−1/2) on the depth (Bordelon et al., Depthwise hyperparameter transfer in
residual networks, Appendix H), so that narrow networks, which train quickly, say what wide ones
do. No cheaper way is known: linear response around the limit takes matrices over all pairs of the
kernels' entries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from largen.progress import Report
from largen.runs import Run
from largen.scalars import random_key

NARROWEST, FOR_EACH_SAMPLE = 128, 4  # neurons of a layer, at least
TOGETHER, FEWEST = 2**17, 64  # neurons of a layer in all networks, and networks, at least


class Fluctuations(NamedTuple):
    """√N times the standard deviation of the outputs of networks, and its standard error."""

    std: Float[np.ndarray, "step sample output"]
    error: Float[np.ndarray, "step sample output"]


def narrow_width(samples: int) -> int:
    """Return the width of networks whose fluctuations are those of wide ones but for a few %."""
    return max(NARROWEST, FOR_EACH_SAMPLE * samples)


def measure_fluctuations(
    run: Run, width: int, key: Any, progress: bool | Report | None
) -> Fluctuations:
    """Return the fluctuations of networks of a width, as of others."""
    from largen.networks import train  # a third of what the deep theory would otherwise import

    networks = max(FEWEST, TOGETHER // width)
    key = jax.random.fold_in(random_key(key), 1)
    nets = train(run, width, networks, key, progress=progress)
    f = np.concatenate([nets.f_train, nets.f_test], 2).astype(np.float64)
    f = f.reshape(*f.shape[:3], -1)
    squares = width * networks / (networks - 1) * (f - f.mean(0)) ** 2
    std = np.sqrt(squares.mean(0))
    error = squares.std(0, ddof=1) / networks**0.5
    return Fluctuations(std, error / (2 * np.where(std > 0, std, 1)))
