"""Reading of models: from a module to a network with the laws of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from largen.arrays import is_traced
from largen.bibliography import cites
from largen.errors import InvalidInput, NoRule
from largen.reading.family import Family
from largen.reading.laws import Constant, Parameter, constant_of
from largen.reading.model import Model
from largen.reading.nodes import Map, Nodes, law_of
from largen.reading.refusals import refused
from largen.reading.weight import Weight
from largen.scalars import integer, sequence
from largen.text import shown


@cites("jacot2018neural", "lee2018deep", "yang2019wide")
def read(make: Any, x: Any, widths: Any = (32, 64), *, apply: Any = None) -> Model:
    """Read a model as it is: which infinitely wide network it is, with which constants.

    The forward pass of a PyTorch module, or of a function in JAX, is recorded at two widths: axes
    that differ are wide, and each function is an operation of a network. The laws of all parameters
    are read from the random functions that the model's construction calls, and compared with the
    entries. An affine map of weights with
    the variance Var[W] is

        y = W x + b,   K ← σ_b² + σ_w² ⟨K⟩,   σ_w² = Var[W] · fan_in,   σ_b² = Var[b],

    as for every network here (Yang 2019, *Wide feedforward or recurrent neural networks of any
    architecture are Gaussian processes*). Two widths give the power of the width in each constant.

    Where an operation has no exact rule, such as max pooling or softmax attention, the
    forward pass itself is run at representative neurons instead
    (:class:`largen.reading.Population`): kernels then have standard errors, ``net.unread`` says
    why, and other functions refuse the model.

    Parameters
    ----------
    make
        A function from a width to a ``torch.nn.Module``: all hidden layers grow in proportion.
        Or a module, whose constants are then those of its width, without powers. With ``apply``,
        ``make(key, width=n)`` → parameters in JAX: nested dicts and lists, an equinox module.
    x
        Samples in the layout of the module, a tensor or an array, such as (n, features),
        (n, channels, height, width) or integers (n, token). Kernels take samples of the same shape.
    widths
        The two widths.
    apply
        ``apply(parameters, x)`` → outputs, the forward pass of all samples in JAX, which is traced
        in double precision; ``apply(parameters, x, width=n)`` for modules that hold their sizes, as
        those of flax do. None for PyTorch.

    Returns
    -------
    Model
        ``net.kernel(x)``, ``net.kernel(x, width=n)`` and ``net.check()``; other functions take it
        as a network.

    Raises
    ------
    InvalidInput
        If the model fails on the input, ``make`` does not use the width, or an argument is none of
        the above.
    NoRule
        For a function that neither reading has a rule for, or that has no limit, a parameter whose
        law cannot be read, or weights that are used in ways that have no
        rule; the message names the module, the function and what to do.

    Examples
    --------
    >>> import largen as lg, numpy as np, torch
    >>> from torch import nn
    >>> def make(n):
    ...     hidden = nn.Linear(3, n), nn.Tanh(), nn.Linear(n, n), nn.Tanh()
    ...     return nn.Sequential(*hidden, nn.Linear(n, 1))
    >>> net = lg.read(make, np.ones((1, 3)))
    >>> net.layer.parts[2]  # σ_w² = 1/3, and a bias that vanishes as 1/width
    Dense(weight_std=0.5773502691896257)

    A function in JAX:

    >>> import jax
    >>> def init(key, width):
    ...     a, b = jax.random.split(key)
    ...     return {"a": jax.random.normal(a, (3, width)), "b": jax.random.normal(b, (width, 1))}
    >>> def apply(p, x):
    ...     return jax.numpy.sin(x @ p["a"]) @ p["b"] / p["b"].size**0.5
    >>> net = lg.read(init, np.ones((1, 3)), apply=apply)
    >>> net.layer.parts[1], round(net.layer.parts[0].weight_std ** 2, 9)
    (Activation('sin'), 3.0)
    """
    family = _family(make, x, apply)
    if family.alone:
        nodes = family.nodes(None)
        return _model(family, nodes, _weights(nodes, family.at(None)), ())
    pair = _widths(widths)
    try:
        small, large = family.nodes_at_two(pair)
        return _model(family, small, _weights_of(small, large, family, pair), pair)
    except NoRule as error:
        return _population(family, pair, error)


def _family(make: Any, x: Any, apply: Any) -> Family:
    if not callable(make):
        raise InvalidInput(
            "make: wanted a function from a width to a torch.nn.Module, a module, or with apply= a "
            f"function init(key, width) in JAX, got {shown(make)}."
        )
    if is_traced(x):
        raise InvalidInput("x: wanted numbers, got a traced array; call it outside jit.")
    if apply is not None:
        from largen.reading.jax.family import Functions

        return Functions(make, apply, x)
    from largen.reading.torch.family import Modules

    return Modules(make, x)


def _population(family: Family, widths: tuple[int, int], error: NoRule) -> Model:
    """Return a model of which no network was read, and that runs at populations of neurons."""
    sampler = family.sampler(widths)
    try:
        maps = sampler.maps()
    except NoRule as other:
        raise other from error
    parameters = family.at(widths[0])
    weights = tuple(
        _weight(node, each, parameters, *constants) for node, (each, *constants) in maps.items()
    )
    why = "; ".join(filter(None, map(_no_limit, weights))) or sampler.no_limit()
    return Model((), family.name, weights, why, Nodes(), widths, family.sample, family, str(error))


def _widths(widths: Any) -> tuple[int, int]:
    given = [integer("widths", n, at_least=1) for n in sequence("widths", widths, "two integers")]
    if len(given) != 2 or given[0] >= given[1]:
        raise InvalidInput(f"widths: wanted two increasing integers, got {shown(widths)}.")
    return given[0], given[1]


def _weights(nodes: Nodes, parameters: Mapping[str, Parameter]) -> tuple[Weight, ...]:
    """Return the maps of a single module, whose constants have no known powers."""
    return tuple(
        _weight(node, each, parameters, *(Constant(v, None) for v in each.variances(parameters)))
        for node, each in nodes.maps.items()
    )


def _weights_of(
    small: Nodes, large: Nodes, family: Family, widths: tuple[int, int]
) -> tuple[Weight, ...]:
    """Return the maps of a family, with the powers of the width in their constants."""
    parameters, wider, found = *(family.at(width) for width in widths), []
    for node, each in small.maps.items():
        other = large.maps[node]
        pairs = zip(each.variances(parameters), other.variances(wider), strict=True)
        flat = (each.weight_factor, each.bias_factor) == (other.weight_factor, other.bias_factor)
        constants = []
        for place, pair in enumerate(pairs):

            def at_large(each: Map = each, place: int = place) -> tuple[float, float]:
                far = family.at_large(widths[0])
                one, two = (each.variances(parameters)[place] for parameters in far)
                return one, two

            constant = constant_of(pair, widths[1] / widths[0], at_large if flat else None)
            if constant is None:
                raise refused(
                    each.weight if place == 0 else str(each.bias),
                    "its variance is not a power of the width: times the fan-in it is "
                    f"{pair[0]:.4g} at width {widths[0]} and {pair[1]:.4g} at {widths[1]}",
                )
            constants.append(constant)
        found.append(_weight(node, each, parameters, *constants))
    return tuple(found)


def _weight(
    node: str, each: Map, parameters: Mapping[str, Parameter], weight: Constant, bias: Constant
) -> Weight:
    law = law_of(each.weight, parameters)
    other = None if each.bias is None else law_of(each.bias, parameters)
    fan_in = prod(parameters[each.weight].shape[axis] for axis in each.fan_in)
    return Weight(node, each, law, other, fan_in, weight, bias)


def _model(family: Family, nodes: Nodes, weights: tuple[Weight, ...], widths: Any) -> Model:
    why = "; ".join(filter(None, map(_no_limit, weights)))
    limits = {w.node: (w.weight_variance.limit, w.bias_variance.limit) for w in weights}
    layers = () if why else (nodes.graph(limits),)

    return Model(layers, family.name, weights, why, nodes, widths, family.sample, family)


def _no_limit(weight: Weight) -> str:
    """Return why a map has no limit, or an empty text."""
    names = ((weight.map.weight, weight.weight_variance), (weight.map.bias, weight.bias_variance))
    for name, (value, power) in names:
        if not power or not value or (power < 0 and name == weight.map.bias):
            continue
        does = "grows" if power > 0 else "vanishes"
        end = " the limit has no input" if weight.map.reads_data else " the limit is trivial"
        end = "," + end if power < 0 else ""
        return (
            f"{name}: its variance times the fan-in {does} as width^({power}){end}; "
            "net.kernel(x, width=n) has the constants of a width"
        )
    return ""
