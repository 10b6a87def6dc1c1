"""Averages at two widths, and what they say of the infinite one.

A network of width N differs from the limit by a shift a/N + b/N² + … and by fluctuations. With
means f_N and f_{N/2} over independent networks, whose squared errors (summed over all entries)
are v and v', the shift of f_N is estimated by B = f_N − f_{N/2}, and

    f = f_N + w B,   |error|² = (1 + w)² v + w² v' + (1 − w)² |B|² + (w |B|/4)²

goes as far on the way to Richardson's extrapolation w = 1 as pays: what it removes of the shift it
adds in fluctuations. The last term is for b: at widths where the shift halves as the width
doubles, b/N² is a fraction of a/N. |B|² is freed of what v and v' contribute to it; what is left
is taken to be half of that at least, for a shift may hide in fluctuations.
"""

from __future__ import annotations

import numpy as np

CURVED = 0.25  # of the shift, for its next order
HIDDEN = 0.5  # of the variance of the shift that is seen, for one that is not


def at_infinite_width(
    fine: tuple[np.ndarray, np.ndarray], coarse: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return f and its error, entry by entry, and the weight w.

    Parameters
    ----------
    fine, coarse
        Means at the widths N and N/2, and their standard errors.
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
