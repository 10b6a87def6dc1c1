"""NNGP and NTK of infinitely wide networks: the public functions."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer, check_one_output
from largen.arrays import at_once, is_traced, like, shape_of
from largen.bibliography import cites
from largen.callables import other_options
from largen.errors import NoTheory
from largen.interrupts import interruptible
from largen.kernels.accuracy import (
    check_tangent,
    inaccuracy,
    overflow,
    report,
    with_suitable_methods,
)
from largen.kernels.checks import checked_inputs, checked_masks
from largen.kernels.lower import Lowered, features_of, lower, of_any_depth
from largen.kernels.padding import fill_up
from largen.kernels.spread import checked, kernels_on_devices
from largen.kernels.tiles import (
    check_size,
    fitting,
    kernels_at_once,
    kernels_by_tiles,
    most_positions,
    of_whole_batch,
    takes_whole_batches,
    tile_size,
)
from largen.memory import MEMORY_BUDGET
from largen.parameterizations import CanonicalForm, Parameterization, canonical_form, gd, ntk
from largen.results import brief, fields_over, in_notebooks, plot_result, save_result
from largen.scalars import flag, real

PAIR = ("sample", "sample_2")


@cites("jacot2018neural", "lee2018deep", "bahri2022les")
class Kernels(NamedTuple):
    """The two kernels of an infinitely wide network, each of shape (n1, n2).

    Attributes
    ----------
    nngp
        Covariance of an output over initialisations.
    ntk
        Rate-weighted tangent kernel, Σ_θ ρ_θ ∂f/∂θ ∂f'/∂θ.
    """

    nngp: Any
    ntk: Any

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over(nngp=PAIR, ntk=PAIR)
    save = save_result
    plot = plot_result


@other_options(
    get="lg.kernel returns both kernels; take lg.kernel(net, x1, x2).ntk and .nngp, or "
    "lg.ntk_kernel(net, x1, x2) and lg.nngp_kernel(net, x1, x2), which compute one.",
    diagonal_axes="lg.kernel returns kernels of all pairs of samples.",
)
def kernel(
    net: Layer,
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    *,
    mask1: ArrayLike | None = None,
    mask2: ArrayLike | None = None,
    param: Parameterization | None = None,
    rtol: float | None = None,
    memory_budget: float = MEMORY_BUDGET,
    devices: Any = None,
    throw: bool = True,
) -> Kernels:
    """Return NNGP and NTK of an infinitely wide network.

    Bahri and Hanin, Les Houches lectures, eqs. (13) and (83): K⁰ = σ_b² + σ_w² x·x'/D and

        Kˡ = σ_b² + σ_w² E[φ(u)φ(v)],
        Θˡ = ρ_b σ_b² + ρ_w σ_w² E[φ(u)φ(v)] + σ_w² E[φ'(u)φ'(v)] Θˡ⁻¹

    with (u, v) ~ N(0, Kˡ⁻¹) and the parameterization's relative rates ρ, all 1 in
    :func:`largen.ntk`. A residual connection x + β·branch(x) adds β² times the kernels of its
    branch. Infinitely many of them, ``lg.repeat(block, math.inf)`` in :func:`largen.depth_mup` or
    another parameterization with β = L^(−α), α ≥ ½, add up to an integral over depth: at α = ½
    ∂τK is the kernel of the branch, and for α > ½ K is constant over the depth at initialisation.

    Parameters
    ----------
    net
        The architecture. Its kernels are those of one output; several outputs are independent
        copies.
    x1, x2
        Samples, (n1, D) and (n2, D), or (n, *space, channels) for a network with spatial axes;
        without ``x2`` the symmetric kernel of ``x1``, exactly symmetric.
    mask1, mask2
        True at the present positions of each sample, (n, *space), for samples of variable length;
        by default all positions are present. Absent positions count as zero in convolutions and
        after ``Flatten``, and are excluded from averages over positions, normalisations over space
        and attention.
    param
        The parameterization; :func:`largen.ntk` by default.
    rtol
        Accepted relative error of the Gaussian expectations, 1e-8 by default. The error is
        bounded beforehand: it is far below 1e-8 for activations with closed forms and, at moderate
        variances, for those that are smooth but for up to eight kinks; for others it may not be.
        The bound holds for functions resolved by their samples: features narrower than √q/72 at a
        variance q and than 1/128, such as e^(−(u/w)²) with w = 1e-4, may be missed by both the
        kernel and the bound.
    memory_budget
        Memory for intermediate layers in bytes, 4 GiB by default, not counting inputs and results.
        The kernels are computed in tiles that fit into the processor's cache, or smaller ones if
        the budget requires it; their size need not divide the number of samples.
    devices
        Some of ``jax.local_devices()``, over which the tiles are distributed evenly; by default
        JAX's default device. Results are collected in the host's memory. Traced inputs, and
        networks with :class:`largen.layers.MultiHeadAttention`, are not distributed.
    throw
        Whether a larger error, or an overflow, raises an exception; otherwise the kernels are
        returned anyway.

    Returns
    -------
    Kernels
        ``nngp`` and ``ntk``, (n1, n2) each. ``nngp`` is the covariance of the output f at
        initialisation; where γ grows with the width (:func:`largen.mean_field`) f vanishes
        there, and it is the covariance of γf. ``ntk`` is the K in df/dt = (η₀/P) Σ K Δ, which
        does not depend on γ. Where K grows as a power of the width, as in :func:`largen.standard`
        (as N), ``ntk`` is the limit of K over that power; weights whose contribution grows more
        slowly, in this case the first layer's weights and all biases, do not contribute.

    Raises
    ------
    InvalidInput
        If the memory budget is too small for one pair of samples; the message gives the memory
        needed.
    NoTheory
        If the parameterization has no infinite-width limit, or for layers in an order that has
        no kernel, such as an activation behind a signal that is not Gaussian.
    NoRule
        For a layer without a rule for kernels.
    OutOfMemory
        If the kernels do not fit into memory; this is checked before computing.
    NumericalFailure
        If the expectations of an activation miss ``rtol``, or the kernels overflow; the exception
        carries the kernels as ``result``. Traced inputs are not checked.

    Warns
    -----
    LostDigits
        If untraced inputs differ so much in size that kernels of a small and a large one may miss
        ``rtol``: by default if the ratio of their largest entries exceeds 4.5e7. The error is
        proportional to this ratio, and all digits are lost at 1e16. Samples of zeros count with
        size one. Also if samples nearly coincide and terms of a sum depend on the same weights.

    Notes
    -----
    The cost of networks with spatial axes of P positions is n²·P operations a layer, and n²·P² in
    the layers before pooling and attention, which require the covariance of every pair of
    positions. If all layers before a global pool are convolutions of stride 1 (``"SAME"`` or
    ``"CIRCULAR"``, any window and dilation), activations with closed forms, dense layers,
    normalisations over channels, dropout, and residual or other branches of these, pairs of
    positions are computed plane by plane, one displacement after the other: the same n²·P²
    operations, and the memory of n²·P numbers. The memory use is estimated as 16 numbers for each
    of the covariances that a tile holds at a time, as measured on networks of up to seven layers.
    Traced inputs are not tiled, and all layers are kept in memory.

    float32 inputs give float32 kernels, computed in float64, since a deep relu kernel amplifies the
    rounding of parallel and of nearly coincident inputs. Only the products of inputs without
    spatial axes are computed in float32, and recomputed for such pairs. Within ``jit`` or ``grad``
    all computations have the precision of the trace.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> nngp, ntk = lg.kernel(lg.mlp(2, "relu", weight_std=2**0.5), np.eye(2))
    >>> nngp.round(4)
    array([[1.    , 0.4937],
           [0.4937, 1.    ]])
    >>> ntk.round(4)
    array([[3.    , 0.6857],
           [0.6857, 3.    ]])
    """
    return _kernels(
        net, (x1, x2), (mask1, mask2), param, rtol, (memory_budget, devices), throw, Kernels
    )


@cites("lee2018deep", "bahri2022les")
def nngp_kernel(
    net: Layer,
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    *,
    mask1: ArrayLike | None = None,
    mask2: ArrayLike | None = None,
    param: Parameterization | None = None,
    rtol: float | None = None,
    memory_budget: float = MEMORY_BUDGET,
    devices: Any = None,
    throw: bool = True,
) -> Any:
    """Return the NNGP kernel alone, the covariance of an output over initialisations.

    Bahri and Hanin, Les Houches lectures, eq. (20), by the recursion of :func:`kernel`.

    Parameters
    ----------
    net, x1, x2, mask1, mask2, param, rtol, memory_budget, devices, throw
        As in :func:`kernel`, and so is what is raised.

    Returns
    -------
    array
        (n1, n2), NumPy unless an input was a JAX array.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> lg.nngp_kernel(lg.mlp(1, "erf"), np.ones((1, 3))).round(4)
    array([[0.4646]])
    """
    return _kernels(
        net,
        (x1, x2),
        (mask1, mask2),
        param,
        rtol,
        (memory_budget, devices),
        throw,
        lambda nngp, _: nngp,
        with_ntk=False,
    )


@cites("jacot2018neural", "bahri2022les")
def ntk_kernel(
    net: Layer,
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    *,
    mask1: ArrayLike | None = None,
    mask2: ArrayLike | None = None,
    param: Parameterization | None = None,
    rtol: float | None = None,
    memory_budget: float = MEMORY_BUDGET,
    devices: Any = None,
    throw: bool = True,
) -> Any:
    """Return the NTK alone, Θ = Σ_θ ρ_θ ⟨∂f/∂θ ∂f'/∂θ⟩ with the rates ρ of the rule table.

    Bahri and Hanin, Les Houches lectures, Result 7, by the recursion of :func:`kernel`.

    Parameters
    ----------
    net, x1, x2, mask1, mask2, param, rtol, memory_budget, devices, throw
        As in :func:`kernel`, and so is what is raised.

    Returns
    -------
    array
        (n1, n2), NumPy unless an input was a JAX array.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> lg.ntk_kernel(lg.mlp(1, "relu"), np.ones((1, 3)))
    array([[1.]])
    """
    return _kernels(
        net,
        (x1, x2),
        (mask1, mask2),
        param,
        rtol,
        (memory_budget, devices),
        throw,
        lambda _, ntk: ntk,
    )


@interruptible()
def _kernels(net, inputs, masks, param, rtol, resources, throw, pick, with_ntk=True):
    x1, x2 = checked_inputs(net, inputs, param)
    rtol = None if rtol is None else real("rtol", rtol, above=0)
    throw = flag("throw", throw)
    budget, devices = real("memory_budget", resources[0], above=0), checked(resources[1])
    lowered, scale = prepare(net, param or ntk(), shape_of(x1))
    inputs, masks = (x1,) if x2 is None else (x1, x2), checked_masks(masks, x1, x2, lowered)
    dtype = np.result_type(*(x.dtype for x in inputs), np.float32)
    if is_traced(inputs):
        if with_ntk:
            check_tangent(lowered.program, lowered.constants)
        features = features_of(lowered, x1, x2, dtype)
        covariance, tangent = kernels_at_once(
            lowered.program, with_ntk, lowered.constants, *features, masks
        )
        return pick(covariance * scale, tangent)
    check_size("x1", len(x1), len(x1 if x2 is None else x2), 1 + with_ntk, dtype)
    with at_once():
        lowered = with_suitable_methods(lowered, inputs, with_ntk, rtol)
        tile = fitting(lowered.program, most_positions(net, shape_of(x1)), budget)
        both = concrete_kernels(lowered, scale, x1, x2, dtype, with_ntk, masks, tile, devices)
        result = like(pick(*both), *inputs)
        words = inaccuracy(lowered, inputs, rtol, with_ntk) or overflow(result, x1, x2, rtol)
    return report(words, result, throw)


def prepare(
    net: Layer, param: Parameterization, inputs: int | tuple[int, ...]
) -> tuple[Lowered, float]:
    """Return the lowered network and the factor of its NNGP, 1/γ₀² if γ is constant in N."""
    form = form_for_kernels(net, param, inputs)
    return lower(net, form, inputs, constant=True), nngp_scale(form)


def form_for_kernels(
    net: Layer, param: Parameterization, inputs: int | tuple[int, ...]
) -> CanonicalForm:
    """Return the infinite-width limit of a parameterization, for kernels at initialisation."""
    check_one_output(net, inputs)
    form = canonical_form(param, net, gd(1.0), inputs, leading_rates=True, infinite_depth=True)
    if form.d < 0:
        raise NoTheory(f"{param}: outputs grow with the width as N^{-form.d} at initialisation.")
    return form


def nngp_scale(form: CanonicalForm) -> float:
    """Return the factor from the NNGP of the read-out γf to that of f, where f does not vanish."""
    return 1 / form.gamma**2 if form.d == 0 else 1.0


def concrete_kernels(
    lowered: Lowered,
    scale: float,
    x1,
    x2,
    dtype,
    with_ntk: bool = True,
    masks=(None, None),
    largest_tile: int | None = None,
    devices: tuple[Any, ...] = (),
) -> tuple[Any, Any]:
    """Return NNGP and NTK of untraced inputs, in float64 by tiles, padded to standard rows."""
    rows, columns = len(x1), len(x1 if x2 is None else x2)
    of_jax = isinstance(x1, jax.Array) or isinstance(x2, jax.Array)
    as_given = jnp.asarray if of_jax else np.asarray
    if x1.ndim == 2 and masks == (None, None):
        x1, x2 = fill_up(x1), None if x2 is None else fill_up(x2)
    with jax.enable_x64(True):
        kept = np.float64 if lowered.features else None  # tiles are cast one by one
        x1, x2 = features_of(lowered, x1, x2, kept)
        if takes_whole_batches(lowered.program):
            return of_whole_batch(lowered, scale, x1, x2, dtype, with_ntk, masks, largest_tile)
        longest = max(len(x1), 0 if x2 is None else len(x2))
        tile = tile_size(lowered.program, longest, x1.shape[1:-1], largest_tile)
        of_tiles = partial(kernels_on_devices, devices) if devices else kernels_by_tiles
        lowered = of_any_depth(lowered)
        covariance, tangent = of_tiles(
            lowered.program, with_ntk, np.dtype(dtype), tile, lowered.constants, x1, x2, masks
        )
        covariance = covariance if scale == 1 else covariance * scale
        if covariance.shape == (rows, columns):
            return covariance, tangent
        # Slices are taken in NumPy, which requires no compilation.
        own = (slice(rows), slice(columns))
        return jax.tree.map(lambda k: as_given(np.asarray(k)[own]), (covariance, tangent))
