"""Finite networks: an architecture in a parameterization at a size."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer, weight_sites
from largen.arrays import (
    check_same_tree,
    finite_result,
    in_words,
    is_traced,
    leaf_name,
    like,
    precision,
    samples,
    shape_of,
)
from largen.errors import InvalidInput, instance_of
from largen.networks.modules import Direct, Module, Params, module_of
from largen.networks.sizes import Size
from largen.parameterizations import Parameterization, RuleTable, ntk
from largen.parameterizations.distributions import from_normal
from largen.scalars import integer, random_key, sample_shape
from largen.text import shown


@dataclass(frozen=True)
class FiniteNetwork:
    """A network of finite width; made by :func:`finite_network`.

    The parameters form a tree that mirrors the architecture. ``serial`` has a tuple of the
    parameters of its layers; ``Dense`` a dictionary of ``weight (fan_in, fan_out)`` and, if there
    is one, ``bias (fan_out,)``; ``Conv`` the same with ``weight (*window, fan_in, fan_out)``;
    ``Residual`` the parameters of its branch, or with a shortcut the pair (branch, shortcut);
    ``repeat`` those of its layer with a leading axis of copies; several branches have a tuple, and
    layers without weights ``()``.

    Attributes
    ----------
    net, param
        What is computed, and how it scales.
    width
        N.
    inputs
        D, or the shape (*space, channels) of a sample.
    outputs
        Number of outputs; None for a scalar output without an axis.
    table
        The rule table of gradient descent at this size.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> network = lg.networks.finite_network(lg.mlp(1, "relu"), lg.ntk(), width=64, inputs=3)
    >>> network.parameters, network.apply(network.init(0), np.eye(3)).shape
    (256, (3,))
    """

    net: Layer
    param: Parameterization
    width: int
    inputs: int | tuple[int, ...]
    outputs: int | None
    table: RuleTable[float] = field(repr=False, compare=False)

    @cached_property
    def module(self) -> Module:
        """The functions of this network's parameters."""
        readout = weight_sites(self.net)[-1].path
        sample = self.inputs if isinstance(self.inputs, tuple) else (self.inputs,)
        return module_of(self.net, Size(self.table, self.width, self.outputs or 1, readout), sample)

    @cached_property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.module.shapes))

    def init(self, key: Any = 0, dtype: Any = np.float32) -> Params:
        """Draw parameters, (initial standard deviation of the rule table) × standard Gaussian.

        Parameters
        ----------
        key
            ``jax.random.key(seed)`` or an integer.
        dtype
            The precision of the parameters, float32 or float64.

        Returns
        -------
        Params
            The tree described above, of NumPy arrays.

        Raises
        ------
        InvalidInput
            For a wrong key, or a dtype that is not float32 or float64.
        """
        key, dtype = random_key(key), _dtype(dtype)
        with precision(np.zeros((), dtype)):
            params = _init(self, key, dtype)
        return params if is_traced(key) else jax.tree.map(np.asarray, params)

    def apply(self, params: Params, x: ArrayLike) -> Any:
        """Return f(x).

        Parameters
        ----------
        params
            What :meth:`init` returned, or a tree of the same shapes.
        x
            Inputs, shape ``(sample, input)`` or ``(sample, *space, channel)``.

        Returns
        -------
        array
            Shape ``(sample,)``, or ``(sample, output)`` if ``outputs`` is a number; behind
            ``sample`` comes ``position`` in networks with an output at each position.

        Raises
        ------
        InvalidInput
            If ``x`` or the parameters do not fit the network.
        """
        self.check_params(params)
        x = self.check_inputs("x", x)
        with precision(params, x):
            return finite_result("apply", like(_apply(self, params, x), params, x))

    def draw(self, key: Any, dtype: Any) -> Params:
        """Draw parameters without any checks, for use in compiled functions.

        The entries are standard Gaussian numbers, or numbers of another distribution with unit
        variance if the parameterization specifies one, times their initial standard deviations.
        """
        leaves, tree = jax.tree.flatten(self.module.shapes)
        ends = np.cumsum([leaf.size for leaf in leaves])
        parts = jnp.split(jax.random.normal(key, (ends[-1],), dtype), ends[:-1])
        names = jax.tree.leaves(self.module.names)
        distributions = [self.table.distribution(name) for name in names]
        normals = [
            from_normal(distribution, part.reshape(leaf.shape))
            for distribution, part, leaf in zip(distributions, parts, leaves, strict=True)
        ]
        return self.module.init(tree.unflatten(normals))

    def direct_feedback(self, key: Any, dtype: Any) -> Direct:
        """Draw ∂f/∂a of the inputs of affine maps, of the size that they have at the read-out."""
        leaves, tree = jax.tree.flatten(self.module.shapes)
        readout = next(row.rule for row in reversed(self.table.rows) if row.kind == "weight")
        size, keys = readout.multiplier * readout.init_std, jax.random.split(key, len(leaves))
        drawn = (
            size * jax.random.normal(k, (leaf.shape[0], self.outputs or 1), dtype)
            for k, leaf in zip(keys, leaves, strict=True)
        )
        return Direct(tree.unflatten(drawn))

    def outputs_of(self, params: Params, x: Any, feedback: Params | None = None) -> Any:
        """Return f(x) without any checks, for use in compiled functions.

        ``feedback``: parameters in place of whose weights derivatives pass backward.
        """
        f, _ = self.module.forward(params, x, None, feedback)
        return f[..., 0] if self.outputs is None else f

    def per_leaf(self, table: RuleTable[float], field: str) -> Any:
        """Return one scale of a rule table as a tree shaped as the parameters."""
        return jax.tree.map(lambda name: getattr(table[name], field), self.module.names)

    def check_inputs(self, name: str, x: ArrayLike) -> Any:
        """Check that inputs are finite floats, and samples of the network's shape.

        Raises
        ------
        InvalidInput
            If they are not finite floats, or samples of another shape.
        """
        array = samples(name, x)
        if shape_of(array) != self.inputs:
            raise InvalidInput(
                f"{name}: has {in_words(shape_of(array))} a sample, the network expects "
                f"{in_words(self.inputs)}."
            )
        return array

    def check_params(self, params: Params) -> None:
        """Check that parameters fit the network: the tree, and each shape.

        Raises
        ------
        InvalidInput
            If the tree or a shape is another one.
        """
        check_same_tree("params", params, self.module.shapes)
        leaves = zip(
            jax.tree.leaves_with_path(self.module.shapes), jax.tree.leaves(params), strict=True
        )
        for (path, want), leaf in leaves:
            name = leaf_name("params", path)
            if not isinstance(leaf, (np.ndarray, jax.Array)):
                raise InvalidInput(f"{name}: wanted an array, got {shown(leaf)}.")
            if leaf.shape != want.shape:
                raise InvalidInput(f"{name}: wanted shape {want.shape}, got {leaf.shape}.")
            if leaf.dtype not in (np.float32, np.float64):
                raise InvalidInput(f"{name}: wanted float32 or float64, got dtype {leaf.dtype}.")


def finite_network(
    net: Layer,
    param: Parameterization,
    *,
    width: int,
    inputs: int | tuple[int, ...],
    outputs: int | None = None,
) -> FiniteNetwork:
    """Return a network of given sizes, with all constants of its rule table as numbers.

    Parameters
    ----------
    net, param
        What is computed, and how it scales.
    width
        N, the number of neurons of hidden layers; a layer with a ratio of widths r has r·N.
    inputs
        D, or the shape (*space, channels) of a sample.
    outputs
        Number of outputs; with None the output is a scalar, f of shape ``(sample,)``.

    Raises
    ------
    InvalidInput
        If a layer does not fit its input, or has a number of neurons that is not an integer.
    NoRule
        If a layer does not say which operations it is, or one of them has no rule for finite
        networks.

    Examples
    --------
    >>> import largen as lg
    >>> network = lg.networks.finite_network(lg.mlp(2, "tanh"), lg.ntk(), width=64, inputs=3)
    >>> network.parameters
    4352
    """
    instance_of("net", net, Layer, "a network such as lg.mlp(2)")
    instance_of("param", param, Parameterization, "a parameterization such as lg.ntk()")
    width = integer("width", width, at_least=1)
    inputs = sample_shape("inputs", inputs)
    if outputs is not None:
        outputs = integer("outputs", outputs, at_least=1)
    table = param.table(net, width=width, inputs=inputs)
    network = FiniteNetwork(net, param, width, inputs, outputs, table)
    _ = network.module  # what does not fit or has no rule is reported here
    return network


def init(
    net: Layer,
    param: Parameterization,
    *,
    width: int,
    inputs: int | tuple[int, ...],
    outputs: int | None = None,
    key: Any = 0,
    dtype: Any = np.float32,
) -> Params:
    """Draw the parameters of a network; :func:`finite_network` and its ``init`` in one.

    Parameters
    ----------
    net, param, width, inputs, outputs
        As in :func:`finite_network`.
    key
        ``jax.random.key(seed)`` or an integer.
    dtype
        float32 or float64.

    Raises
    ------
    InvalidInput
        If a size, the key or the dtype is not valid.

    Examples
    --------
    >>> import largen as lg
    >>> params = lg.networks.init(lg.mlp(1, "relu"), lg.ntk(), width=8, inputs=3, key=0)
    >>> [layer["weight"].shape for layer in params if layer]
    [(3, 8), (8, 1)]
    """
    network = finite_network(net, param, width=width, inputs=inputs, outputs=outputs)
    return network.init(key, dtype)


def apply(
    net: Layer,
    params: Params,
    x: Any,
    *,
    param: Parameterization | None = None,
    outputs: int | None = None,
) -> Any:
    """Return f(x); the sizes are inferred from the shapes of the parameters.

    Parameters
    ----------
    net
        What is computed.
    params
        Parameters from :func:`init`.
    x
        Inputs, shape ``(sample, input)`` or ``(sample, *space, channel)``.
    param
        The parameterization that the parameters were drawn in; :func:`largen.ntk` by default.
    outputs
        Pass 1 to keep the axis of a single output, which is otherwise dropped.

    Returns
    -------
    array
        Shape ``(sample,)`` or ``(sample, output)``.

    Raises
    ------
    InvalidInput
        If the parameters or the inputs do not fit the network.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net = lg.mlp(1, "relu")
    >>> params = lg.networks.init(net, lg.mup(), width=8, inputs=3, key=0)
    >>> lg.networks.apply(net, params, np.eye(3), param=lg.mup()).shape
    (3,)
    """
    x = samples("x", x)
    return network_of(net, params, param, outputs, shape_of(x)).apply(params, x)


def network_of(
    net: Layer,
    params: Params,
    param: Parameterization | None,
    outputs: int | None,
    inputs: int | tuple[int, ...],
) -> FiniteNetwork:
    """Return the network that parameters belong to, given the shape of a sample."""
    instance_of("net", net, Layer, "a network such as lg.mlp(2)")
    weights = [
        leaf.shape
        for path, leaf in jax.tree.leaves_with_path(params)
        if path and getattr(path[-1], "key", None) == "weight" and hasattr(leaf, "shape")
    ]
    if len(weights) < 2 or min(map(len, weights)) < 2:
        raise InvalidInput(
            "params: wanted what lg.networks.init returns, with a read-in and a read-out."
        )
    features, ratio = weights[-1][-1], weight_sites(net)[0].width_ratio
    width = weights[0][-1] / ratio
    if width.denominator != 1:
        raise InvalidInput(
            f"params: {weights[0][-1]} neurons in the first layer are not {ratio} times a width."
        )
    return finite_network(
        net,
        ntk() if param is None else param,
        width=int(width),
        inputs=inputs,
        outputs=outputs if features == 1 else features,
    )


def _dtype(dtype: Any) -> np.dtype:
    for known in (np.dtype(np.float32), np.dtype(np.float64)):
        if any(dtype is each for each in (known, known.type)) or str(dtype) == known.name:
            return known
    raise InvalidInput(f"dtype: wanted float32 or float64, got {shown(dtype)}.")


@partial(jax.jit, static_argnums=(0, 2))
def _init(network: FiniteNetwork, key, dtype) -> Params:
    return network.draw(key, dtype)


@partial(jax.jit, static_argnums=0)
def _apply(network: FiniteNetwork, params, x):
    return network.outputs_of(params, x)
