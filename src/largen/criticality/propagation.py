"""Variances, correlations and gradients, layer by layer, of any network that has kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import known, shape_of
from largen.bibliography import cites
from largen.errors import NumericalFailure
from largen.expectations import ActivationFunction
from largen.kernels.accuracy import with_suitable_methods
from largen.kernels.checks import checked_inputs
from largen.kernels.inputs import samples_of, state_of
from largen.kernels.lower import Lowered, features_of, lower
from largen.kernels.nngp_ntk import form_for_kernels
from largen.kernels.rules import requirements, run
from largen.kernels.state import AffineConstants, KernelState, Wanted, equal_positions
from largen.parameterizations import Parameterization, ntk
from largen.programs import Function, Program, Source
from largen.programs.folding import relabelled
from largen.results import Result, with_labels
from largen.scalars import flag

if TYPE_CHECKING:
    import xarray


@cites("poole2016exponential", "schoenholz2017deep")
@dataclass(frozen=True, repr=False)
class Propagation(Result):
    """A signal's statistics after every layer except activations; made by :func:`propagate`.

    ``largen.plots.propagation_figure`` draws it. With spatial axes all quantities are means over
    positions.

    Attributes
    ----------
    layers
        Names of the layers after which the statistics are recorded, in order; those of nodes in a
        graph.
    variance
        K(x, x), (layer, sample).
    correlation
        K(x, x')/√(K(x, x) K(x', x')), (layer, sample, sample).
    gap
        Half the mean squared distance of two samples' signals, (layer, sample, sample), without
        cancellation where they nearly coincide.
    chi_parallel
        d log K^{ℓ+1}/d log K^ℓ, the factor by which a small relative change of the variance grows
        from layer to layer, (layer, sample). It equals χ_∥ K^ℓ/K^{ℓ+1}; the first entry is relative
        to the input.
    chi_perp
        The factor for the mean square of gradients between the preceding recorded layer and this
        one, (layer, sample); NaN in the first entry, which has no predecessor.
    kinds
        A number for each layer; equal ones if the same operations lead to it from its predecessor.
    """

    layers: tuple[str, ...]
    variance: np.ndarray
    correlation: np.ndarray
    gap: np.ndarray
    chi_parallel: np.ndarray
    chi_perp: np.ndarray
    kinds: tuple[int, ...] = ()

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return all numbers over ``layer``, ``sample`` and ``sample_2``."""
        import xarray

        axes = ("layer", "sample", "sample_2")
        names = ("variance", "correlation", "gap", "chi_parallel", "chi_perp")
        variables = {name: getattr(self, name) for name in names}
        return xarray.Dataset(
            {name: (axes[: value.ndim], value) for name, value in variables.items()},
            {"name": ("layer", list(self.layers))},
        )

    def __repr__(self) -> str:
        layers, samples = self.variance.shape
        growth = np.exp(np.nansum(np.log(np.maximum(self.chi_perp, 1e-300)), axis=0))
        return (
            f"Propagation: {layers} layers, {samples} samples; variance "
            f"{self.variance[0].mean():.4g} → {self.variance[-1].mean():.4g}, mean square of "
            f"gradients × {growth.mean():.4g}"
        )


def propagate(
    net: Layer, x: ArrayLike, *, param: Parameterization | None = None, throw: bool = True
) -> Propagation:
    """Return how variances, correlations and gradients pass through a network of infinite width.

    The rules are those of :func:`largen.kernel` and cover the same networks, such as residual
    connections, normalisations and convolutions. Signals are recorded after every affine map,
    residual connection and other layer of the outermost sequence, but not after activations.

    Parameters
    ----------
    net
        The architecture.
    x
        Samples, (sample, input) or (sample, *space, channel).
    param
        The parameterization; :func:`largen.ntk` by default. It determines the factor of residual
        branches.
    throw
        Whether to raise if variances overflow.

    Raises
    ------
    InvalidInput
        If the inputs are not samples for the network.
    NoRule, NoTheory
        For networks without kernels, as :func:`largen.kernel` does.
    NumericalFailure
        If variances overflow.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> result = lg.criticality.propagate(lg.mlp(10, "tanh", weight_std=1.5), np.eye(4))
    >>> result
    Propagation: 11 layers, 4 samples; variance 0.5625 → 0.793, mean square of gradients × 4.757
    >>> result.to_xarray().sizes["layer"]
    11
    """
    throw = flag("throw", throw)
    result = propagated(net, x, param, {}, {})
    if throw and not np.isfinite(result.variance).all():
        layer = result.layers[int(np.argmax(~np.isfinite(result.variance).all(axis=1)))]
        raise NumericalFailure(
            f"lg.criticality.propagate: the variance overflows behind {layer}. Take a smaller "
            "weight_std: lg.criticality.critical_initialization.",
            result,
        )
    return result


def propagated(
    net: Layer,
    x: ArrayLike,
    param: Parameterization | None,
    compiled: dict[Any, Any],
    methods: dict[ActivationFunction, ActivationFunction],
) -> Propagation:
    """Return a network's propagation.

    ``compiled`` keeps functions of blocks between calls, ``methods`` those of activations.
    """
    known("x", x)
    x, _ = checked_inputs(net, (x, None), param, "x")
    form = form_for_kernels(net, param or ntk(), shape_of(x))
    lowered = lower(net, form, shape_of(x), fold=False)
    lowered = with_suitable_methods(lowered, (x,), earlier=methods)
    with jax.enable_x64(True):
        inputs, _ = features_of(lowered, jnp.asarray(x, jnp.float64), None, np.float64)
        names, kernels, kinds = _walk(lowered, inputs, compiled)
    arrays = (np.stack(parts) for parts in zip(*kernels, strict=True))
    return Propagation(tuple(names), *arrays, kinds=kinds)


def _walk(lowered: Lowered, inputs: Any, compiled: dict[Any, Any]):
    """Return names, (variance, correlation, gap, χ_∥, χ_⊥) and kinds of all recorded values."""
    program, required = lowered.program, requirements(lowered.program, Wanted())
    rows = jnp.arange(inputs.shape[0])
    side = samples_of(inputs, None, required[0])
    state = state_of(side, side, rows[:, None] == rows, required[0], True)
    names, kernels, kinds, start = [], [], [], 0
    for end in recorded(program):
        part, constants = program.between(start, end), lowered.constants[start + 1 : end + 1]
        # One compiled function for all blocks with the same operations.
        kind = relabelled(part), required[end]
        kinds.append(list(compiled).index(kind) if kind in compiled else len(compiled))
        block = compiled.setdefault(kind, jax.jit(_block(*kind)))
        state, numbers = block(((), *map(_freeze, constants)), state)
        variance, correlation, gap, parallel, perp = (np.asarray(f) for f in numbers)
        if not kernels:
            perp = np.full_like(perp, np.nan)
        kernels.append((variance, correlation, gap, parallel, perp))
        source = program.sources[end]
        names.append(source.node or f"{len(names)} {_name(source)}")
        start = end
    return names, kernels, tuple(kinds)


def recorded(program: Program) -> list[int]:
    """Return the values after which signals are recorded."""
    ends = program.cuts[1:]
    last = program.output
    return [e for e in ends if e == last or not isinstance(program.operations[e], Function)]


def _freeze(constants: Any) -> Any:
    """Return constants with frozen weights, so that Θ propagates by the chain rule alone."""

    def of(each: Any) -> Any:
        if isinstance(each, AffineConstants):
            zero = np.zeros_like(each.weight_rate)
            return each._replace(weight_rate=zero, bias_rate=np.zeros_like(each.bias_rate))
        return each

    return jax.tree.map(of, constants, is_leaf=lambda each: isinstance(each, AffineConstants))


def _block(program: Program, behind: Wanted):
    def through(constants: Any, state: KernelState):
        # Θ = 1 before the block becomes E[J Jᵀ] after it: the factor for gradients.
        one = jnp.ones_like(state.gap)
        if state.pairs:
            one = jnp.where(equal_positions(state.space, 2), one, 0)
        state = state._replace(ntk=one)
        new = run(program, constants, state, behind)

        def size(t: Any) -> Any:
            def scaled(side: Any) -> Any:
                within = None if side.within is None else t * side.within
                mean = None if side.mean is None else jnp.sqrt(t) * side.mean
                return side._replace(q=t * side.q, within=within, mean=mean)

            larger = state.with_sides(scaled)._replace(gap=t * state.gap)
            return _mean(run(program, constants, larger, behind).first.q, 1)

        unit = jnp.ones((), state.gap.dtype)
        variance, change = jax.jvp(size, (unit,), (unit,))
        seen = new.reduced(Wanted())
        covariance, gap, tangent = (_mean(f, 2) for f in (seen.covariance, seen.gap, seen.ntk))
        root = jnp.sqrt(variance)
        correlation = covariance / jnp.where(root > 0, root, 1)[:, None]
        correlation = correlation / jnp.where(root > 0, root, 1)
        parallel = change / jnp.where(variance > 0, variance, 1)
        return new, (variance, correlation, gap, parallel, jnp.diagonal(tangent))

    return through


def _mean(f: Any, last: int) -> Any:
    return jnp.mean(f, axis=tuple(range(f.ndim - last)))


def _name(source: Source) -> str:
    """Return the kind of layer, such as ``"dense"``."""
    return source.text.split("(")[0].lower()
