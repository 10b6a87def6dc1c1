"""Extrapolation of averages at two widths to infinite width.

A network of width N differs from the limit by a shift a/N + b/N² + … and by fluctuations. With
means f_N and f_{N/2} over independent networks, whose squared errors (summed over all entries)
are v and v', the shift of f_N is estimated by B = f_N − f_{N/2}, and

    f = f_N + w B,   |error|² = (1 + w)² v + w² v' + (1 − w)² |B|² + (w |B|/4)²

is a partial Richardson extrapolation (w = 1 is the full one), with the weight w that minimises the
error: a larger w removes more of the shift, but adds fluctuations. The last term is for b: at
widths where the shift halves as the width doubles, b/N² is a fraction of a/N. The expected
contribution of v and v' is subtracted from |B|²; the remainder is taken to be at least half of that
contribution, since fluctuations may hide a shift.
"""

from __future__ import annotations

import numpy as np

CURVED = 0.25  # fraction of the shift that is assumed for its next order
HIDDEN = 0.5  # fraction of the variance of B that is assumed as a hidden squared shift


def at_infinite_width(
    fine: tuple[np.ndarray, np.ndarray], coarse: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return f and its error, elementwise, and the weight w.

    ``fine``, ``coarse``: means at the widths N and N/2, and their standard errors.
    """
    (f, error), (rough, rough_error) = fine, coarse
    shift = f - rough
    v, rougher = np.sum(error**2), np.sum(rough_error**2)
    seen = np.sum(shift**2)
    squared = max(seen - v - rougher, HIDDEN * (v + rougher))
    curved = CURVED**2 * squared
    total = v + rougher + squared + curved
    weight = float(np.clip((squared - v) / total, 0, 1)) if total > 0 else 0.0
    left = ((1 - weight) ** 2 + (CURVED * weight) ** 2) * squared
    share = shift**2 / seen if seen > 0 else 0 * shift
    variance = ((1 + weight) * error) ** 2 + (weight * rough_error) ** 2 + left * share
    return f + weight * shift, np.sqrt(variance), weight
