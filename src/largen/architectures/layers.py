"""Layers as records: what a network computes, and nothing about how.

A layer is a small frozen record without behaviour. Every theory gives it its meaning there, by a
rule registered for its type. No widths are in it (they are an argument of whoever needs them),
and no powers of width or depth (they belong to the parameterization): only the constants of order
one, the weight's standard deviation σ_w and the bias's σ_b.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from fractions import Fraction
from numbers import Rational
from typing import Any, ClassVar

from largen.arrays import integer, is_traced, real
from largen.errors import InvalidInput
from largen.expectations import ActivationFunction, activation

LARGEST_DENOMINATOR = 1000  # of ratios of widths


@dataclass(frozen=True, repr=False)
class Layer:
    """Base of all layers; prints itself by the fields that are not at their default."""

    # Fields that print without their names.
    _bare: ClassVar[tuple[str, ...]] = ()

    def _default(self, field: Field) -> Any:
        """The value of a field that was not given."""
        return field.default

    def __repr__(self) -> str:
        shown = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != self._default(field):
                name = "" if field.name in self._bare else f"{field.name}="
                shown.append(f"{name}{value if isinstance(value, Fraction) else repr(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class Dense(Layer):
    """Affine map with Gaussian weights, ``y = σ_w W x · (multiplier) + σ_b b``.

    Parameters
    ----------
    weight_std
        σ_w, of order one; the factor 1/√fan_in is the parameterization's.
    bias_std
        σ_b, of order one. With 0 there is no bias at all, neither drawn nor trained.
    width_ratio
        How many neurons it makes per unit of width, a ratio of integers: at the width N there are
        ``width_ratio``·N. As many outputs as the data want leave the read-out, which has none.

    Raises
    ------
    InvalidInput
        If ``weight_std`` or ``width_ratio`` is not positive, ``bias_std`` is negative, or
        ``width_ratio`` is no ratio of integers up to 1000.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Dense(weight_std=1.5)
    Dense(weight_std=1.5)
    >>> net = lg.serial(lg.Dense(width_ratio=1 / 2), lg.Activation("tanh"), lg.Dense())
    >>> lg.finite_network(net, lg.ntk(), width=64, inputs=3).init(0)[0]["weight"].shape
    (3, 32)
    """

    weight_std: float = 1.0
    bias_std: float = 0.0
    width_ratio: Any = 1

    def __post_init__(self):
        check_constants(self)


@dataclass(frozen=True, repr=False)
class Activation(Layer):
    """Elementwise nonlinearity φ.

    Parameters
    ----------
    function
        A name (``"relu"``, ``"tanh"``, …) or any elementwise function that JAX can differentiate.

    Raises
    ------
    InvalidInput
        For an unknown name.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Activation("tanh") == lg.Activation("tanh")
    True
    """

    function: ActivationFunction

    def __init__(self, function: str | Callable[[Any], Any] | ActivationFunction):
        object.__setattr__(self, "function", activation(function))

    def __repr__(self) -> str:
        return f"Activation({self.function.name!r})"


@dataclass(frozen=True, repr=False)
class Serial(Layer):
    """Layers applied one after the other; made by :func:`serial`."""

    layers: tuple[Layer, ...]

    def __repr__(self) -> str:
        return f"serial({', '.join(map(repr, self.layers))})"


@dataclass(frozen=True, repr=False)
class Residual(Layer):
    """Skip connection, ``y = shortcut(x) + (branch factor) · branch(x)``.

    The branch factor is the parameterization's power of the depth, L^(−α): 1 unless it is one
    made for depth, such as :func:`largen.depth_mup`.

    Parameters
    ----------
    branch
        Any layer; it keeps the shape of its input, or changes it as the shortcut does.
    shortcut
        What the skip does to its input, such as a convolution that takes the branch's strides;
        nothing by default.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Residual(lg.serial(lg.Activation("relu"), lg.Dense()))
    Residual(serial(Activation('relu'), Dense()))
    """

    branch: Layer
    shortcut: Layer | None = None

    _bare = ("branch",)

    def __post_init__(self):
        check_layer("branch", self.branch)
        if self.shortcut is not None:
            check_layer("shortcut", self.shortcut)


@dataclass(frozen=True, repr=False)
class Repeat(Layer):
    """The same layer ``times`` over, each copy with weights of its own; made by :func:`repeat`.

    Readings of the network loop over the copies instead of unrolling them, so that a network of
    a thousand blocks compiles as fast as one of two.
    """

    layer: Layer
    times: int

    def __repr__(self) -> str:
        return f"repeat({self.layer!r}, {self.times})"


def serial(*layers: Layer) -> Layer:
    """Compose layers, the first one applied first; nested compositions are flattened.

    Parameters
    ----------
    layers
        One or more layers.

    Raises
    ------
    InvalidInput
        If there is none, or one of them is not a layer.

    Examples
    --------
    >>> import largen as lg
    >>> lg.serial(lg.Dense(), lg.serial(lg.Activation("relu"), lg.Dense()))
    serial(Dense(), Activation('relu'), Dense())
    """
    if not layers:
        raise InvalidInput("serial: wanted at least one layer, got none.")
    flat: list[Layer] = []
    for position, layer in enumerate(layers):
        check_layer(f"layer {position} of serial", layer)
        flat.extend(layer.layers if isinstance(layer, Serial) else (layer,))
    return flat[0] if len(flat) == 1 else Serial(tuple(flat))


def repeat(layer: Layer, times: int) -> Layer:
    """Stack ``times`` copies of a layer that keeps the shape of its input.

    Parameters
    ----------
    layer
        The layer to repeat.
    times
        How often, at least 1; once is the layer itself.

    Examples
    --------
    >>> import largen as lg
    >>> lg.repeat(lg.serial(lg.Activation("relu"), lg.Dense()), 20)
    repeat(serial(Activation('relu'), Dense()), 20)
    """
    check_layer("layer", layer)
    return layer if integer("times", times, at_least=1) == 1 else Repeat(layer, int(times))


def check_constants(layer: Any) -> None:
    """Check the constants of an affine map at the door, and keep its ratio exactly."""
    for name, bound in (("weight_std", {"above": 0}), ("bias_std", {"at_least": 0})):
        value = getattr(layer, name)
        if is_traced(value):
            raise InvalidInput(
                f"{name}: wanted a number, got a traced value. Networks are data, known before "
                "anything is compiled; kernels as differentiable functions of their constants are "
                "lg.kernel_function(net, x), and likelihoods lg.log_likelihood."
            )
        object.__setattr__(layer, name, real(name, value, **bound))
    object.__setattr__(layer, "width_ratio", _ratio(layer.width_ratio))


def _ratio(value: Any) -> Fraction:
    number = real("width_ratio", value, above=0)
    exact = Fraction(value) if isinstance(value, Rational) else Fraction(number)
    found = exact.limit_denominator(LARGEST_DENOMINATOR)
    if not found or abs(found - exact) > 1e-12 * exact:
        raise InvalidInput(
            f"width_ratio: wanted a ratio of integers up to {LARGEST_DENOMINATOR}, such as 1/2, "
            f"got {value!r}."
        )
    return found


def check_layer(name: str, layer: object) -> None:
    """Check at the door that something is a layer, and not its class."""
    if not isinstance(layer, Layer):
        hint = " Did you forget the parentheses?" if isinstance(layer, type) else ""
        raise InvalidInput(f"{name}: wanted a layer such as Dense(), got {layer!r}.{hint}")
