"""What repeated blocks of a network do to signals and gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from largen.bibliography import cites
from largen.criticality import Propagation
from largen.errors import NoTheory
from largen.results import fields_over, in_notebooks, plot_result, save_result


@cites("poole2016exponential", "schoenholz2017deep")
class Depth(NamedTuple):
    """The factors of repeated blocks; made by ``net.depth()`` of a model that was read.

    Attributes
    ----------
    blocks
        The names of the modules or operations at the ends of the blocks.
    variance
        The factor by which the mean variance of the samples changes over each block, (block,).
    gradients
        The factor of the mean square of gradients, from the end to the beginning of each block,
        (block,).
    correlation
        The mean correlation of different samples behind each block, (block,); 1 for one sample.
    """

    blocks: tuple[str, ...]
    variance: np.ndarray
    gradients: np.ndarray
    correlation: np.ndarray

    @property
    def scale(self) -> float:
        """The number of blocks over which gradients' squares fall by e; negative if they grow."""
        rate = -float(np.log(_mean_factor(self.gradients)))
        return 1 / rate if abs(rate) > 1e-9 else np.inf

    def __repr__(self) -> str:
        signal, gradients = _mean_factor(self.variance), _mean_factor(self.gradients)
        return (
            f"Depth: {len(self.blocks)} blocks of equal operations, {self.blocks[0]} to "
            f"{self.blocks[-1]}; in each the variance × {signal:.4g}, mean square of gradients × "
            f"{gradients:.4g}: {_scale(self.scale)}"
        )

    _repr_html_ = in_notebooks
    to_xarray = fields_over(
        blocks=("block",), variance=("block",), gradients=("block",), correlation=("block",)
    )
    save = save_result
    plot = plot_result


def _mean_factor(factors: np.ndarray) -> float:
    """Return the geometric mean; factors that vanish count as the smallest normal number."""
    from scipy.stats import gmean  # slow to import

    return float(gmean(np.maximum(factors, np.finfo(float).tiny)))


def _scale(scale: float) -> str:
    if np.isinf(scale):
        return "kept at any depth"
    does = "fall" if scale > 0 else "grow"
    return f"they {does} by e in {abs(scale):.3g} blocks"


def depth_of(signals: Propagation) -> Depth:
    """Return the factors of the longest run of equal steps, or groups of steps.

    The last step, a read-out, is no block; nor is what leads to the first value.
    """
    kinds = signals.kinds[:-1]
    best = (0, 0, 0)  # steps covered, beginning, steps of a block
    for size in range(1, len(kinds) // 2 + 1):
        for start in range(1, len(kinds) - 2 * size + 1):
            end = start + size
            while end < len(kinds) and kinds[end] == kinds[end - size]:
                end += 1
            covered = (end - start) // size * size
            if covered >= 2 * size and covered > best[0]:
                best = covered, start, size
    covered, start, size = best
    if not covered:
        raise NoTheory("lg.read: no operations are repeated one after the other.")
    ends = np.arange(start + size - 1, start + covered, size)
    variance = signals.variance.mean(axis=1)
    gradients = signals.chi_perp.mean(axis=1)
    off = ~np.eye(signals.variance.shape[1], dtype=bool)
    pairs = signals.correlation[ends][:, off]
    return Depth(
        tuple(signals.layers[end] for end in ends),
        variance[ends] / variance[ends - size],
        np.stack([gradients[end - size + 1 : end + 1].prod() for end in ends]),
        pairs.mean(axis=1) if pairs.size else np.ones(len(ends)),
    )
