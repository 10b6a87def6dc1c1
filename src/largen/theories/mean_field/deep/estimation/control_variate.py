"""What is known of the lazy limit, for replicates of the rich one.

Training linearised at initialisation needs a tangent kernel only. It runs beside every replicate
twice, with the exact kernel K and with that of the replicate's own neurons K_N, and the difference
is a control variate:

    f ← f + c (f_K − f_{K_N}),    c(t) = −Σ Cov(f, f_K − f_{K_N}) / Σ Var(f_K − f_{K_N}),

with covariances over replicates and sums over samples: the c that makes the variance least. As
γ₀ → 0, f becomes f_{K_N} and c one, so that the result is the kernel limit with any number of
neurons; as features move, training forgets how the kernel began, and c falls to 0. The tangent
kernel itself is corrected in the same way.

Made part of the network instead, as outputs whose features stand still, the difference would be
trained against: where features move far, it would be the largest error of all.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def corrected(
    values: Float[np.ndarray, "replicate time *entry"],
    exact: Float[np.ndarray, "replicate #time *entry"],
    own: Float[np.ndarray, "replicate #time *entry"],
) -> Float[np.ndarray, "replicate time *entry"]:
    """Return what replicates found, corrected by the linear models.

    A single replicate has no covariance. It is trusted to be lazy as far as it is nearer to its own
    linear model than that is to the exact one.

    Parameters
    ----------
    values
        The values of each replicate.
    exact, own
        In linear models with the exact kernel, and with the replicate's own.
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
