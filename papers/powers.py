"""Joint fits of powers of several sizes to numbers with errors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

# Relative size of higher orders beside the leading power law, as in `largen.experiments.power_law`.
HIGHER_ORDERS = 0.05


def fitted_powers(
    sizes: Mapping[str, np.ndarray], values: np.ndarray, errors: np.ndarray
) -> dict[str, tuple[float, float]]:
    """Fit log value = constant + Σ p_i log size_i by weighted least squares.

    Parameters
    ----------
    sizes
        Sizes by name, each of the shape of ``values``.
    values, errors
        Numbers and their standard errors; numbers of at most twice their error are excluded.

    Returns
    -------
    dict
        Powers by name with their standard errors, each the larger of the estimates from the errors
        and from the scatter about the fit; NaN if fewer numbers than parameters remain.

    Examples
    --------
    >>> n, l = np.array([[8.0, 8, 16, 16], [2.0, 4, 2, 4]])
    >>> found = fitted_powers({"n": n, "l": l}, l / n, 0.01 * l / n)
    >>> {name: round(value, 2) for name, (value, _) in found.items()}
    {'n': -1.0, 'l': 1.0}
    """
    kept = values > 2 * errors
    y, noise = np.log(values[kept]), np.hypot(errors[kept] / values[kept], HIGHER_ORDERS)
    columns = np.stack([np.ones_like(y), *(np.log(size[kept]) for size in sizes.values())], 1)
    if len(y) < columns.shape[1] or np.linalg.matrix_rank(columns) < columns.shape[1]:
        return dict.fromkeys(sizes, (np.nan, np.nan))
    weighted = columns / noise[:, None]
    found, *_ = np.linalg.lstsq(weighted, y / noise, rcond=None)
    left = y / noise - weighted @ found
    worst = max(1.0, float(left @ left) / max(len(y) - columns.shape[1], 1))
    error = np.sqrt(worst * np.diag(np.linalg.inv(weighted.T @ weighted)))
    pairs = zip(sizes, found[1:], error[1:], strict=True)
    return {name: (float(value), float(own)) for name, value, own in pairs}
