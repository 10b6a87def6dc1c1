"""The lazy limit as a control variate for replicates of the rich limit.

Training linearised at initialisation needs a tangent kernel only. With every replicate two
linearised models are trained, one with the exact kernel K and one with the kernel K_N of the
replicate's own neurons, and their difference is a control variate:

    f ← f + c (f_K − f_{K_N}),    c(t) = −Σ Cov(f, f_K − f_{K_N}) / Σ Var(f_K − f_{K_N}),

with covariances over replicates and sums over samples: the c that minimises the variance. As
γ₀ → 0, f becomes f_{K_N} and c becomes 1, so that the result is the kernel limit with any number of
neurons. As features move, f decorrelates from the initial kernel, and c falls to 0. The tangent
kernel itself is corrected in the same way.

The difference is not added to the network as outputs of fixed features: training would compensate
it, and where features move far, it would be the largest error.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def correct(
    values: Float[np.ndarray, "replicate time *entry"],
    # exact, own: the values in linear models with the exact kernel, and with the replicate's own
    # kernel.
    exact: Float[np.ndarray, "replicate #time *entry"],
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
