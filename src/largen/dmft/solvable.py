"""Mean-field limits in closed form."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from largen.arrays import floating, integer, like, real
from largen.errors import InvalidInput


class WhitenedLinear(NamedTuple):
    """The solution of :func:`whitened_linear_flow`.

    Attributes
    ----------
    f
        Output along the direction of the targets, shape of the times.
    feature_kernel
        H_y = yᵀHy/|y|², the feature kernel along that direction, same shape.
    """

    f: Any
    feature_kernel: Any


def whitened_linear_flow(
    times: ArrayLike, y: float, *, gamma: float = 1.0, lr: float = 1.0, samples: int = 1
) -> WhitenedLinear:
    r"""One hidden layer, linear activation, whitened data: gradient flow in the mean-field limit.

    With K⁰ = 1 only the direction of the targets moves,

        dH_y/dt = (2η₀γ₀²/P)(y − f)f,   df/dt = (2η₀/P)H_y(y − f),   H_y² − γ₀²f² = 1,

    Pehlevan and Bordelon's lecture notes, eqs. (72)-(80), so that H_y(∞) = √(1 + γ₀²y²), where
    their (78) and (79) print something else under the root. With γ₀f = sinh s and H_y = cosh s
    both are ds/dt = (2η₀/P)(γ₀y − sinh s), which integrates: v = eˢ goes from 1 to
    v₊ = γ₀y + √(1 + γ₀²y²) as

        v − 1 = (v₊ − 1)(1 − e^(−τ)) / (1 + c e^(−τ)),
        τ = (2η₀t/P)√(1 + γ₀²y²),   c = v₊(v₊ − 1)/(v₊ + 1)

    Parameters
    ----------
    times
        Times t ≥ 0, shape ``(step,)``.
    y
        Length |y| of the vector of targets.
    gamma, lr, samples
        γ₀, η₀ and P.

    Returns
    -------
    WhitenedLinear
        f along y, and H_y.

    Raises
    ------
    InvalidInput
        For negative times, and numbers out of their range.

    Examples
    --------
    >>> import numpy as np
    >>> late = whitened_linear_flow(np.array([0.0, 100.0]), y=0.75)
    >>> late.f.tolist(), late.feature_kernel.tolist()
    ([0.0, 0.75], [1.0, 1.25])
    """
    t = floating("times", times, ndim=1)
    if (np.asarray(t) < 0).any():
        raise InvalidInput(f"times: wanted t ≥ 0, got {float(np.min(t)):g}.")
    y, gamma = real("y", y, at_least=0), real("gamma", gamma, above=0)
    lr, samples = real("lr", lr, above=0), integer("samples", samples, at_least=1)
    target = gamma * y
    root = float(np.sqrt(1 + target**2))
    rise = target + target**2 / (root + 1)  # v₊ − 1 without cancellation
    decay = np.exp(-2 * lr * root / samples * np.asarray(t))
    c = (1 + rise) * rise / (2 + rise)
    above = rise * (1 - decay) / (1 + c * decay)  # v − 1
    v = 1 + above
    return WhitenedLinear(*like((above * (1 + v) / (2 * gamma * v), (v + 1 / v) / 2), times))
