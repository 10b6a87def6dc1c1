"""The lazy limit as a control variate for replicates of the rich limit.

Training linearised at initialisation needs a tangent kernel only. With every replicate two
linearised models are trained, one with the exact kernel K and one with the kernel K_N of the
replicate's own neurons, and their difference is a control variate:

    f ← f + c (f_K − f_{K_N}),    c(t) = −Σ Cov(f, f_K − f_{K_N}) / Σ Var(f_K − f_{K_N}),

with covariances over replicates and sums over samples: the c that minimises the variance. As
γ₀ → 0, f becomes f_{K_N} and c becomes 1, so that the result is the kernel limit with any number of
neurons. As features move, f decorrelates from the initial kernel, and c falls to 0. The tangent
kernel itself is corrected in the same way.

c is fitted to the same replicates, whose spread about the fit is therefore too small, and is not
exact itself. For n replicates of a difference x that varies in k independent ways between samples,
(Σλ)²/Σλ² of the eigenvalues of its covariance, the squared error of the mean of f + cx is that of a
regression, with sums over samples in the first bracket,

    (1/n + Σx̄²/(kΣ(x − x̄)²)) Σ(f + cx − mean)²/(n − 1 − 1/k).

The difference is not added to the network as outputs of fixed features: training would compensate
it, and where features move far, it would be the largest error.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from largen.theories.mean_field.engine.statistics import mean_and_error


def correct(
    values: Float[np.ndarray, "replicate time *entry"],
    # exact, own: the values in linear models with the exact kernel, and with the replicate's own
    # kernel.
    exact: Float[np.ndarray, "#replicate #time *entry"],
    own: Float[np.ndarray, "replicate #time *entry"],
) -> Float[np.ndarray, "replicate time *entry"]:
    """Return the values of replicates, corrected by the linear models.

    A single replicate has no covariance. Its c is estimated from its distance to its own linear
    model, relative to the distance between the two linear models.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        known = np.broadcast_to(exact - own, values.shape)
        # Linear models may diverge where the network does not.
        known = np.where(np.isfinite(known), known, 0)
        all_but_time = (0, *range(2, values.ndim))
        if len(values) > 1:
            varying, apart = known - known.mean(0), values - values.mean(0)
            together = -np.sum(varying * apart, all_but_time, keepdims=True)
            size = np.sum(varying**2, all_but_time, keepdims=True)
        else:
            together = np.sum(known**2, all_but_time, keepdims=True)
            size = together + np.sum((values - own) ** 2, all_but_time, keepdims=True)
        c = np.divide(together, size, out=np.zeros_like(size), where=size > 0)
        return values + np.where(np.isfinite(c), c, 0) * known


def fit_error(
    values: Float[np.ndarray, "replicate time *entry"],
    corrected: Float[np.ndarray, "replicate time *entry"],
    # exact, own: as in :func:`correct`.
    exact: Float[np.ndarray, "#replicate #time *entry"],
    own: Float[np.ndarray, "replicate #time *entry"],
) -> Float[np.ndarray, "time *entry"]:
    """Return the standard error of the mean of corrected values; NaN for a single replicate.

    For two replicates, which any fit passes through, it is that of the values themselves.
    """
    count = len(values)
    if count < 3:
        return mean_and_error(values)[1]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        known = exact - own
        known = np.where(np.isfinite(known), known, 0).swapaxes(0, 1)
        known = known.reshape(*known.shape[:2], -1)  # (time, replicate, entry)
        mean = known.mean(1, keepdims=True)
        between = (known - mean) @ (known - mean).swapaxes(1, 2)
        size = np.trace(between, axis1=1, axis2=2)
        ways = size**2 / np.sum(between**2, (1, 2))
        further = np.sum(mean**2, (1, 2)) / size
        lost = (count - 1) / (count - 1 - 1 / ways) * (1 + count * further / ways)
        lost = np.where(size > 0, lost, 1)
    return mean_and_error(corrected)[1] * lost.reshape(-1, *(1,) * (values.ndim - 2)) ** 0.5
