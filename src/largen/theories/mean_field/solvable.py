"""Mean-field limits in closed form."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import mlp
from largen.arrays import finite_result, floating, known, like
from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.memory import check_fits
from largen.parameterizations import gd, mean_field
from largen.results import brief, fields_over, in_notebooks, plot_result, save_result
from largen.runs import Dataset, Run, Trajectory
from largen.scalars import LARGEST, integer, real

MOST_POINTS = 10**6
MOST_BLOCKS = 20_000  # the cost grows as the square


@cites("bordelon2022self", "pehlevan2023lecture")
class WhitenedLinear(NamedTuple):
    """The solution of :func:`whitened_linear_flow`.

    Attributes
    ----------
    f
        The output along the direction of the targets, of the shape of the times.
    feature_kernel
        H_y = yᵀHy/|y|², the feature kernel along that direction, of the same shape.
    conserved
        H_y² − γ₀²f², computed from the other two; its exact value is 1.
    """

    f: Any
    feature_kernel: Any
    conserved: Any

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over(f=("step",), feature_kernel=("step",), conserved=("step",))
    save = save_result
    plot = plot_result


@cites("bordelon2023depthwise")
class OneStep(NamedTuple):
    """The result of :func:`kernel_after_one_step`: depth τ = l/L, and H before and after a step."""

    tau: np.ndarray
    before: np.ndarray
    after: np.ndarray

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over(tau=("tau",), before=("tau",), after=("tau",))
    save = save_result
    plot = plot_result


def whitened_linear_flow(
    times: ArrayLike, y: float, *, gamma: float = 1.0, lr: float = 1.0, samples: int = 1
) -> WhitenedLinear:
    r"""One hidden layer, linear activation, whitened data: gradient flow in the mean-field limit.

    With K⁰ = 1 only the component along the targets evolves,

        dH_y/dt = (2η₀γ₀²/P)(y − f)f,   df/dt = (2η₀/P)H_y(y − f),   H_y² − γ₀²f² = 1,

    Pehlevan and Bordelon's lecture notes, eqs. (72)-(80). Hence H_y(∞) = √(1 + γ₀²y²); the
    expressions under the root in their (78) and (79) are misprints. With γ₀f = sinh s and
    H_y = cosh s both equations become ds/dt = (2η₀/P)(γ₀y − sinh s), whose solution v = eˢ goes
    from 1 to v₊ = γ₀y + √(1 + γ₀²y²) as

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
        f along y, H_y, and the conserved quantity.

    Raises
    ------
    InvalidInput
        For negative times, or a parameter outside its range.

    Examples
    --------
    >>> import numpy as np
    >>> late = whitened_linear_flow(np.array([0.0, 100.0]), y=0.75)
    >>> late.f.tolist(), late.feature_kernel.tolist()
    ([0.0, 0.75], [1.0, 1.25])
    """
    known("times", times)
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
    f, feature = above * (1 + v) / (2 * gamma * v), (v + 1 / v) / 2
    found = like((f, feature, feature**2 - (gamma * f) ** 2), times)
    return WhitenedLinear(*finite_result("whitened_linear_flow", found))


@cites("bordelon2022self", "pehlevan2023lecture")
def solve_deep_linear(
    kernel: ArrayLike,
    y: ArrayLike,
    *,
    hidden_layers: int,
    gamma: float = 1.0,
    lr: float = 1.0,
    steps: int = 100,
    record_at: Any = None,
) -> Trajectory:
    r"""Deep linear networks: gradient descent in the mean-field limit, by closed equations.

    With C = A^(l−1) + κ tril(H^(l−1), −1)Δ and D = Bˡ + κ tril(G^(l+1), −1)Δ over all times and
    samples,

        Hˡ = (1−CD)⁻¹ (H^(l−1) + C G^(l+1) Cᵀ) (1−CD)⁻ᵀ,   Aˡ = (1−CD)⁻¹C,

    and similarly for Gˡ and B^(l−1) (Pehlevan and Bordelon's lecture notes, (65), for linear φ and
    with A⁰ = 0 in place of their A¹ = 0). By causality the equations are solved by forward
    substitution, one time step after another, and none of these matrices is formed.

    Parameters
    ----------
    kernel
        Φ⁰ = x·x′/D, shape ``(sample, sample)``.
    y
        Targets, shape ``(sample,)``.
    hidden_layers
        L.
    gamma, lr, steps
        γ₀, η₀ and the number of steps.
    record_at
        Time indices at which kernels are recorded; the first and the last by default.

    Returns
    -------
    Trajectory
        The same as from :func:`largen.solve`, which solves linear networks by the same method.

    Raises
    ------
    InvalidInput
        If the kernel is not symmetric and positive, or if its shape does not fit the targets.
    NumericalFailure
        If training diverges.

    Examples
    --------
    >>> import numpy as np
    >>> limit = solve_deep_linear(np.eye(2), np.array([1.0, -1.0]), hidden_layers=2, lr=0.4)
    >>> limit.f_train[-1].round(4).tolist()
    [1.0, -1.0]
    """
    from largen.theories.mean_field.deep.solution import DeepMeanField

    known("kernel", kernel)
    known("y", y)
    k = np.asarray(floating("kernel", kernel, ndim=2), np.float64)
    if k.shape[0] != k.shape[1] or not np.allclose(k, k.T, rtol=1e-6):
        raise InvalidInput(f"kernel: wanted a symmetric matrix, got shape {k.shape}.")
    check_fits(40.0 * k.size, f"kernel: modes of {len(k)} samples", "Take fewer samples.")
    values, vectors = np.linalg.eigh(k)
    if values[0] < -1e-6 * abs(values).max():
        raise InvalidInput(f"kernel: wanted a positive one, its least eigenvalue is {values[0]:g}.")
    x = np.sqrt(len(k) * np.maximum(values, 0)) * vectors
    run = Run(
        mlp(hidden_layers, "linear"),
        mean_field(gamma),
        Dataset(x, np.asarray(floating("y", y, ndim=1), np.float64)),
        optimizer=gd(lr),
        steps=steps,
    )
    limit = DeepMeanField(record_at=record_at)
    return limit.solve(limit.posed(run))


def kernel_after_one_step(
    y: float, *, gamma: float = 1.0, lr: float = 1.0, blocks: int | None = None, points: int = 101
) -> OneStep:
    r"""Feature kernel of a linear residual network on one sample, before and after one step.

    The network is hˡ⁺¹ = hˡ + Wˡhˡ/√(LN) with H⁰ = 1 and a read-in that is not trained. In the
    limit of infinite depth, a step of gradient descent gives at τ = l/L

        H₀ = e^τ,   H₁ = e^τ [1 + 2ek(τ³/3 + τ²/2)],   k = η₀²γ₀²y²

    (Bordelon et al., *Depthwise hyperparameter transfer in residual networks*, (9) and (101), where
    G₀ = e^(1−τ) is misprinted, so that their H₁ is a quarter off, and y² is missing). At finite L,
    with b the change of h, v = 1/L and q = 1 + v, ⟨b²⟩ is a sum of traces of products of the free
    matrices 1 + Wˡ/√(LN):

        H₁ˡ = qˡ + (k/L²) Σ_{m,m'<l} q^(m + m' + |m − m'|) q^(L−l) t_{l−1−max(m,m')},
        t_{n+1} = q² t_n + (1 + 4v + 2v² − q²) q^(2n),   t₀ = 1

    Parameters
    ----------
    y
        The target.
    gamma, lr
        γ₀ and η₀.
    blocks
        L; infinite by default.
    points
        The number of points of the grid of τ in the limit of infinite depth.

    Returns
    -------
    OneStep
        τ, and H before and after the step, shape ``(L + 1,)`` or ``(points,)``.

    Raises
    ------
    InvalidInput
        For a parameter outside its range.

    Examples
    --------
    >>> deep, shallow = kernel_after_one_step(0.5), kernel_after_one_step(0.5, blocks=4)
    >>> float(deep.after[-1].round(3)), float(shallow.after[-1].round(3))
    (5.797, 3.695)
    """
    root = real("lr", lr, above=0) * real("gamma", gamma, above=0) * real("y", y)
    if abs(root) > LARGEST:
        raise InvalidInput(f"lr: lr · gamma · y = {root:g} is too large: its square overflows.")
    k = root**2
    if blocks is None:
        tau = np.linspace(0, 1, integer("points", points, at_least=2, at_most=MOST_POINTS))
        before = np.exp(tau)
        return OneStep(tau, before, before * (1 + 2 * np.e * k * (tau**3 / 3 + tau**2 / 2)))
    depth = integer("blocks", blocks, at_least=1, at_most=MOST_BLOCKS)
    v = 1 / depth
    q, layer = 1 + v, np.arange(depth + 1)
    squares = np.ones(depth + 1)
    for n in range(depth):
        squares[n + 1] = q**2 * squares[n] + (1 + 4 * v + 2 * v**2 - q**2) * q ** (2 * n)
    before, after = q**layer, q**layer
    # Pairs with the larger index m: q^(m + m' + m − m') = q^(2m), 2m + 1 of them.
    weights = (2 * layer[:-1] + 1) * q ** (2 * layer[:-1])
    for l in layer[1:]:
        traces = squares[l - 1 - np.arange(l)]
        after[l] += k * v**2 * q ** (depth - l) * (weights[:l] @ traces)
    return OneStep(layer / depth, before, after)
