"""A PyTorch module as a function in JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from largen.arrays import as_array, floating, precision
from largen.errors import InvalidInput
from largen.interrupts import interruptible
from largen.reading.law_draws import drawn
from largen.reading.refusals import refused
from largen.scalars import flag, integer, random_key
from largen.text import shown

if TYPE_CHECKING:
    from largen.reading.torch.traced import Traced


def as_jax(make: Any, *, train: bool = False) -> InJax:
    """Return a PyTorch module as a function in JAX, f(θ, x), with the laws of its own weights.

    The forward pass is traced as core operations, into which PyTorch itself decomposes all others,
    and each of them has a form in JAX. The function is therefore what JAX makes of functions: it is
    compiled by ``jax.jit``, differentiated by ``jax.grad``, and stacked parameters make it an
    ensemble by ``jax.vmap``.

    A trace is of one shape of inputs; for every other shape the forward pass is traced once more.
    What it reads of the values of its tensors, as in ``if h.sum() > 0``, is refused, and so is an
    operation without a form in JAX whose result is needed; the message names the operation and the
    part of the module.

    Parameters
    ----------
    make
        A function from a width to a ``torch.nn.Module``, or a module.
    train
        Whether modules are in training mode: batch norm takes the statistics of the batch, and
        dropout draws. Otherwise they are in evaluation mode.

    Returns
    -------
    InJax
        ``init(key, width)`` draws parameters, ``apply(params, x)`` is the forward pass, and
        ``of(module)`` returns the parameters and buffers of a module as it is.

    Raises
    ------
    InvalidInput
        If ``make`` is neither.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, largen as lg
    >>> from torch import nn
    >>> def make(n):
    ...     return nn.Sequential(nn.Linear(3, n), nn.GELU(), nn.LayerNorm(n), nn.Linear(n, 1))
    >>> model = lg.reading.as_jax(make)
    >>> params = model.init(0, width=64)
    >>> {name: p.shape for name, p in params.items()}["0.weight"]
    (64, 3)
    >>> model.apply(params, jnp.ones((5, 3))).shape
    (5, 1)

    An ensemble of ten, with the gradients of a loss:

    >>> keys = jax.random.split(jax.random.key(0), 10)
    >>> ensemble = jax.vmap(lambda key: model.init(key, 64))(keys)
    >>> loss = lambda p: jnp.mean(model.apply(p, jnp.ones((5, 3))) ** 2)
    >>> jax.vmap(jax.grad(loss))(ensemble)["3.bias"].shape
    (10, 1)
    """
    from largen.reading.torch.traced import Traced

    if not callable(make):
        raise InvalidInput(
            "make: wanted a function from a width to a torch.nn.Module, or a module, got "
            f"{shown(make)}."
        )
    return InJax(Traced(make, flag("train", train)))


class InJax:
    """A PyTorch module in JAX: made by :func:`largen.reading.as_jax`."""

    def __init__(self, traced: Traced):
        self._traced = traced

    @property
    def train(self) -> bool:
        """Whether modules are in training mode."""
        return self._traced.train

    @interruptible()
    def init(self, key: Any = 0, width: int | None = None) -> dict[str, Any]:
        """Draw the parameters of a width from the laws of the module's own construction.

        The laws are those that :func:`largen.read` reads: of the random functions that the
        construction calls. The entries are drawn by JAX, so that ``init`` runs under ``jax.vmap``
        and ``jax.jit``.

        Parameters
        ----------
        key
            A random key of JAX, or an integer.
        width
            The width; None if a module was given instead of a function.

        Returns
        -------
        dict of str to array
            Parameters by their names in the module, each in its shape there and in JAX's default
            precision. Those that require no gradient are among them.

        Raises
        ------
        InvalidInput
            If the width is missing, or ``make`` fails.
        NoRule
            For a parameter whose law cannot be read; ``of(make(width))`` has its entries.

        Examples
        --------
        >>> import largen as lg
        >>> from torch import nn
        >>> model = lg.reading.as_jax(lambda n: nn.Linear(3, n))
        >>> float(abs(model.init(0, 1000)["weight"]).max()).__round__(3)  # uniform to 1/√3
        0.577
        """
        key = random_key(key)
        laws = self._traced.laws(self._width(width))
        found = {}
        for number, (name, parameter) in enumerate(laws.items()):
            entries = drawn(parameter, jax.random.fold_in(key, number), jnp.result_type(float))
            if entries is None:
                raise refused(
                    name,
                    f"its law cannot be drawn ({parameter.why or 'it was estimated'}); "
                    "of(make(width)) returns the parameters of a module as it is",
                )
            found[name] = entries
        return found

    def _width(self, width: Any) -> int | None:
        if self._traced.alone:
            if width is not None:
                raise InvalidInput(f"width: wanted None for a single module, got {shown(width)}.")
            return None
        if width is None:
            raise InvalidInput("width: wanted the width that make takes, got None.")
        return integer("width", width, at_least=1)

    def of(self, module: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters and the buffers of a module, as they are, in JAX.

        Parameters
        ----------
        module
            A ``torch.nn.Module``, such as one that was trained.

        Returns
        -------
        params, state : dict of str to array
            Parameters and buffers by their names, for ``apply(params, x, state=state)``.

        Raises
        ------
        InvalidInput
            If it is no module.

        Examples
        --------
        >>> import largen as lg, torch
        >>> module = torch.nn.Linear(2, 1)
        >>> model = lg.reading.as_jax(module)
        >>> params, state = model.of(module)
        >>> x = torch.ones(4, 2)
        >>> bool(abs(model.apply(params, x.numpy()) - module(x).detach().numpy()).max() < 1e-6)
        True
        """
        from largen.reading.torch.traced import arrays_of, is_module

        if not is_module(module):
            raise InvalidInput(f"module: wanted a torch.nn.Module, got {shown(module)}.")
        self._traced.keep(module)
        return arrays_of(module)

    @interruptible()
    def apply(self, params: Any, x: Any, *, state: Any = None, key: Any = None) -> Any:
        """Return the module's outputs, f(θ, x), for any number of samples.

        Parameters
        ----------
        params
            Parameters by name, of ``init`` or ``of``; they may be traced by JAX, and their
            precision is that of the outputs.
        x
            The inputs in the module's own layout: an array, a tuple of the arguments of
            ``forward``, or a dict of them by name. Whole numbers stay whole for a module that
            holds an embedding.
        state
            Buffers by name, such as running statistics. By default those of the module as it is
            constructed; needed if ``of`` has returned others for parameters of these shapes.
        key
            A random key, if the forward pass draws, as dropout in training mode does.

        Returns
        -------
        outputs
            What ``forward`` returns, with arrays for tensors. In training mode, a pair of this and
            of the new state: buffers that the forward pass has changed are, and others are as
            before.

        Raises
        ------
        InvalidInput
            For parameters of other names or shapes, inputs on which the module fails, or without
            a key for a forward pass that draws.
        NoRule
            For a forward pass that reads values of its tensors, or an operation without a form in
            JAX.

        Examples
        --------
        >>> import jax.numpy as jnp, largen as lg
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        >>> model = lg.reading.as_jax(net, train=True)
        >>> params, state = model.of(net)
        >>> out, state = model.apply(params, jnp.eye(2), state=state)
        >>> out.shape, int(state["1.num_batches_tracked"])
        ((2, 1), 1)
        """
        from largen.reading.torch.traced import arrays_of, called_with, looks_up

        if not isinstance(params, Mapping):
            raise InvalidInput(f"params: wanted a dict of arrays by name, got {shown(params)}.")
        params = {name: floating("params", p) for name, p in params.items()}
        with precision(params):
            module = self._traced.module(params)
            given = {name: jnp.asarray(p) for name, p in params.items()}
            dtype = jnp.result_type(float, *given.values())
            inputs = _inputs(x, dtype, looks_up(module))
            trace = self._traced.trace(module, inputs, double=dtype == jnp.float64)
            if state is None:
                self._traced.check_state(params)
            buffers = arrays_of(module)[1]
            buffers = _like(buffers, buffers if state is None else state, dtype)
            args, kwargs = called_with(inputs)
            found = trace.run(
                given | buffers,
                jax.tree.leaves((args, kwargs)),
                None if key is None else random_key(key),
                written=self.train,
            )
            if not self.train:
                return _plain(found)
            outputs, written = found
            return _plain(outputs), buffers | written


def _inputs(x: Any, dtype: Any, looks_up: bool) -> Any:
    """Return inputs as arrays, real numbers in a precision."""

    match x:
        case tuple():
            return tuple(_inputs(each, dtype, looks_up) for each in x)
        case Mapping():
            return {name: _inputs(each, dtype, looks_up) for name, each in x.items()}
    array = as_array("x", x)
    whole = jnp.issubdtype(array.dtype, jnp.integer)
    if array.dtype == bool or (whole and looks_up):
        return jnp.asarray(array)
    cast = jnp.asarray(floating("x", array)).astype(dtype)
    return jnp.asarray(floating("x", cast))  # what overflows is refused as well


def _like(buffers: Mapping[str, Any], state: Any, dtype: Any) -> dict[str, Any]:
    """Return a state after its names and shapes have been compared with those of buffers."""
    if not isinstance(state, Mapping) or state.keys() != buffers.keys():
        raise InvalidInput(f"state: wanted the buffers {[*buffers]}, got {shown(state)}.")
    found = {}
    for name, before in buffers.items():
        array = jnp.asarray(as_array("state", state[name]))
        if array.shape != before.shape:
            raise InvalidInput(
                f"state: {name} has shape {array.shape}, and the module's has {before.shape}."
            )
        floats = jnp.issubdtype(array.dtype, jnp.floating)
        found[name] = array.astype(dtype) if floats else array
    return found


def _plain(outputs: Any) -> Any:
    """Return outputs in containers that JAX knows."""
    if isinstance(outputs, Mapping):
        return {name: _plain(each) for name, each in outputs.items()}
    return outputs
