"""Kernels as a differentiable function of a network's σ_w and σ_b."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import is_traced, like, precision, shape_of
from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.kernels.accuracy import (
    check_tangent,
    sizes_of,
    warn_of_lost_digits,
    with_suitable_methods,
)
from largen.kernels.checks import checked_inputs, checked_masks
from largen.kernels.hyperparameters import hyperparameters, with_variances
from largen.kernels.lower import Lowered, features_of
from largen.kernels.nngp_ntk import Kernels
from largen.kernels.tiles import check_at_once, kernels_at_once, most_positions
from largen.parameterizations import Parameterization
from largen.text import shown


@cites("jacot2018neural", "lee2018deep", "bahri2022les")
class KernelFunction:
    """NNGP and NTK of fixed samples as a function of σ_w and σ_b; see :func:`kernel_of_stds`.

    Attributes
    ----------
    stds
        σ_w and σ_b of the network by name, such as ``"0.weight_std"`` for the layer at position 0.
    """

    def __init__(
        self,
        net: Layer,
        inputs: tuple[Any, Any],
        masks: tuple[Any, Any],
        param: Parameterization | None,
    ):
        x1, x2 = checked_inputs(net, inputs, param)
        given = hyperparameters(net, param, shape_of(x1))
        lowered = Lowered(given.features, given.program, given.constants)
        check_tangent(lowered.program, lowered.constants)
        self._masks = checked_masks(masks, x1, x2, lowered)
        self._inputs = x1, x2
        if not is_traced(x1, x2):
            given_inputs = (x1,) if x2 is None else (x1, x2)
            warn_of_lost_digits(sizes_of(np.asarray(x)) for x in given_inputs)
            positions, layers = most_positions(net, shape_of(x1)), len(given.names)
            columns = len(given_inputs[-1])
            check_at_once("x1", lowered.program, positions, len(x1), columns, layers)
            lowered = with_suitable_methods(lowered, given_inputs)
        self._given, self._lowered = given, lowered
        self.stds = dict(zip(given.names, given.stds.tolist(), strict=True))

    def __call__(self, stds: Mapping[str, ArrayLike] | None = None) -> Kernels:
        """Return the kernels for other values of some σ_w and σ_b, given by name; JAX may trace."""
        if stds is None:
            stds = {}
        elif not isinstance(stds, Mapping):
            raise InvalidInput(
                f"stds: wanted numbers by name, such as {{'0.weight_std': 1.0}}, got {shown(stds)}."
            )
        chosen = dict(stds)
        unknown = set(chosen) - set(self.stds)
        if unknown:
            raise InvalidInput(
                f"stds: the network has no {sorted(unknown)[0]!r}, only "
                f"{', '.join(self.stds)}; a bias is there if its bias_std is not 0."
            )
        given, lowered, inputs = self._given, self._lowered, self._inputs
        values = {**self.stds, **chosen}.values()
        with precision(*inputs, *values):
            x1, x2 = features_of(lowered, *inputs, jnp.result_type(float))
            sizes = jnp.stack([jnp.asarray(s, x1.dtype) for s in values])
            variances = jnp.asarray(given.factors, x1.dtype) * sizes**2
            constants = with_variances(given.constants, given.labels, variances)
            nngp, ntk = kernels_at_once(lowered.program, True, constants, x1, x2, self._masks)
            return like(Kernels(nngp * given.scale, ntk), *inputs, *values)


def kernel_of_stds(
    net: Layer,
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    *,
    mask1: ArrayLike | None = None,
    mask2: ArrayLike | None = None,
    param: Parameterization | None = None,
) -> KernelFunction:
    """Return NNGP and NTK of given samples as a function of σ_w and σ_b, for ``jax.grad``.

    In :func:`largen.kernel` the constants of a network are fixed numbers. The function returned
    here takes them as arguments: it maps ``{"0.weight_std": σ, …}`` to :class:`Kernels`, with the
    network's own values for names that are not given. Rates ρ are adapted if they depend on σ in
    the parameterization, and the kernels are those of :func:`largen.kernel` for the network with
    these constants.

    Parameters
    ----------
    net, x1, x2, mask1, mask2, param
        As in :func:`largen.kernel`.

    Returns
    -------
    KernelFunction
        A function of a mapping from names to numbers, which may be traced; its ``stds`` are
        the network's own values. Under ``jax.grad`` all computations have the precision of the
        trace: call it within ``jax.enable_x64(True)`` for float64.

    Raises
    ------
    InvalidInput, NoTheory, NoRule
        As in :func:`largen.kernel`.
    OutOfMemory
        If the kernels of all pairs do not fit into memory at once.

    Notes
    -----
    All pairs are computed at once, without tiles or a memory budget. For activations without closed
    form the method is chosen for the network's own constants, and the accuracy at other constants
    is not checked. A bias with ``bias_std=0`` is absent and has no name.

    Examples
    --------
    >>> import jax, largen as lg, numpy as np
    >>> kernels = lg.kernels.kernel_of_stds(lg.mlp(1, "relu", bias_std=0.1), np.eye(2))
    >>> kernels.stds
    {'0.weight_std': 1.0, '0.bias_std': 0.1, '2.weight_std': 1.0, '2.bias_std': 0.1}
    >>> total = lambda s: kernels({"2.weight_std": s}).nngp.sum()
    >>> with jax.enable_x64(True):  # Σ (σ_b² + σ_w² E[φφ']) is quadratic in σ_w
    ...     round(float(jax.grad(total)(1.5) / (total(1.5) - 4 * 0.01)), 6)
    1.333333
    """
    return KernelFunction(net, (x1, x2), (mask1, mask2), param)
