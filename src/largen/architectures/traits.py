"""The traits of layers, on which all theories and computations rely.

A layer is a small frozen record: its constants of order one, its effect on the shape of a signal,
and its traits. A trait that a layer does not declare does not hold, so that a theory which needs it
refuses the layer by name instead of guessing. Base classes are traits with fields or parts of their
own: :class:`Affine`, :class:`Elementwise`, :class:`Sequence`, :class:`Parallel`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from fractions import Fraction
from functools import cache, lru_cache
from inspect import Signature, signature
from numbers import Integral, Rational
from typing import Any, ClassVar

from largen.arrays import is_traced
from largen.errors import InvalidInput, NoRule, instance_of
from largen.expectations import ActivationFunction, as_activation
from largen.programs.builder import Builder
from largen.programs.operations import Affine as AffineMap
from largen.programs.operations import Function
from largen.programs.signals import Signal
from largen.scalars import real
from largen.text import shown

LARGEST_TERM = 1000  # largest numerator and denominator of ratios of widths


class _Named(type):
    """The metaclass of layers: raises a named error for arguments that a layer does not have."""

    def __call__(cls, *values, **options):
        parameters = _signature(cls)
        try:
            parameters.bind(*values, **options)
        except TypeError as mistake:
            name, hint = cls.__name__, cls._misuse(values, options)  # pyright: ignore
            raise InvalidInput(
                f"{name}: {mistake}; wanted {name}{parameters}. {hint}".strip()
            ) from None
        return super().__call__(*values, **options)

    @property
    def __signature__(cls) -> Signature:
        """The arguments of the layer, as editors and ``help`` show them."""
        return Signature([*signature(cls.__init__).parameters.values()][1:])  # without the instance


@cache
def _signature(cls: type) -> Signature:
    """Return the signature of a class, without annotations."""
    parameters = signature(cls.__init__).parameters.values()
    return Signature([p.replace(annotation=p.empty) for p in parameters][1:])


# Layers that are records are equal if their fields are; others, if they are the same object.
@dataclass(frozen=True, repr=False, eq=False)
class Layer(metaclass=_Named):
    """Base of all layers; its repr shows the fields that differ from their default.

    Attributes
    ----------
    linear
        Whether the layer maps each channel separately, y_pc = Σ_q A_pq x_qc, with fixed
        coefficients.
    homogeneous
        Whether y(ax) = a·y(x) for a > 0, as for every linear layer: such a layer changes neither
        powers of the width nor degrees in the weights.
    random
        Whether the layer draws random numbers for every sample.
    couples_samples
        Whether the output for a sample depends on the other samples of the batch.
    elementwise
        Whether the layer is one function of each number, as which it can be called.
    keeps_shape
        Whether the layer keeps the spatial axes and the number of features per unit of width.
    gaussian
        Whether weights behind the data have the fourth moments of the parameterization's, on which
        order 1/width depends.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Dense(bias_std=0.1), lg.Flatten().homogeneous, lg.layers.BatchNorm().couples_samples
    (Dense(bias_std=0.1), True, True)
    """

    linear: ClassVar[bool] = False
    homogeneous: ClassVar[bool] = False
    random: ClassVar[bool] = False
    couples_samples: ClassVar[bool] = False

    # Fields that the repr shows without their names.
    _bare: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        cls.homogeneous = cls.homogeneous or cls.linear

    @classmethod
    def _misuse(cls, values: tuple[Any, ...], options: dict[str, Any]) -> str:
        """Return a hint about arguments that the layer does not have, or an empty text."""
        return ""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Raise: a network is a description, without sizes and weights.

        Raises
        ------
        InvalidInput
            Always, except for layers that are functions of numbers, such as activations.
        """
        raise InvalidInput(
            "net(x): a network is a description without a width and weights. lg.kernel(net, x) "
            "has its kernels; params = lg.networks.init(net, param, width=…, inputs=…, key=0) and "
            "lg.networks.apply(net, params, x) have outputs at a width; "
            "lg.solve(lg.Run(net, …)) and lg.train(lg.Run(net, …), width=…) its training."
        )

    @property
    def elementwise(self) -> bool:
        """Whether the layer is one function of each number, as which it can be called."""
        return type(self).__call__ is not Layer.__call__

    @property
    def keeps_shape(self) -> bool:
        """Whether the layer keeps the spatial axes and the features per unit of width."""
        return type(self).signal_behind is Layer.signal_behind

    @property
    def gaussian(self) -> bool:
        """Whether weights behind the data have the fourth moments of the parameterization's."""
        return True

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal behind the layer, given the one before it: the same, unless overridden.

        Raises
        ------
        InvalidInput
            If the layer does not fit its input, such as a window that is larger than a sample.
        """
        return signal

    def lower(self, program: Builder, value: int) -> int:
        """Append the operations of the layer to a program, and return their value.

        Parameters
        ----------
        program
            The operations so far: ``program.add(operation, signal)`` appends one of
            :mod:`largen.programs.operations`, ``program.part(position, layer, value)`` those of a
            part of the layer, and ``program.signal(value)`` is the shape of a value.
        value
            The value that enters the layer.

        Raises
        ------
        NoRule
            If the layer does not define its operations.
        """
        raise NoRule("a program", self)

    def residual_depth(self) -> float:
        """Return the number of residual branches in sequence, with all copies."""
        return 0

    def _default(self, one: Field) -> Any:
        """Return the default of a field, which may depend on the other fields."""
        return one.default

    def __repr__(self) -> str:
        shown = []
        for each in fields(self):
            value = getattr(self, each.name)
            if value != self._default(each):
                name = "" if each.name in self._bare else f"{each.name}="
                shown.append(f"{name}{value if isinstance(value, Fraction) else repr(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class Affine(Layer):
    """A layer with Gaussian weights: an affine map of all features of its input.

    It has rows in the rule tables of all parameterizations, "weight" and, with σ_b > 0, "bias",
    and its kernels have the constants of these rows. Its channels are sums over random weights that
    are independent of its input.

    Attributes
    ----------
    weight_std, bias_std
        σ_w and σ_b, of order one.
    width_ratio
        The number of output features per unit of width.
    """

    weight_std: float = field(default=1.0, kw_only=True)
    bias_std: float = field(default=0.0, kw_only=True)
    width_ratio: Any = field(default=1, kw_only=True)

    def __post_init__(self):
        for name, bound in (("weight_std", {"above": 0}), ("bias_std", {"at_least": 0})):
            value = getattr(self, name)
            if is_traced(value):
                raise InvalidInput(
                    f"{name}: wanted a number, got a traced value. Networks are data, known "
                    "before anything is compiled; kernels as differentiable functions of their "
                    "constants are lg.kernels.kernel_of_stds(net, x), and likelihoods "
                    "lg.regression.log_likelihood."
                )
            object.__setattr__(self, name, real(name, value, **bound))
        object.__setattr__(self, "width_ratio", _ratio(self.width_ratio))

    @classmethod
    def _misuse(cls, values: tuple[Any, ...], options: dict[str, Any]) -> str:
        counts = [v for v in (*values, *options.values()) if isinstance(v, Integral)]
        width = f"width={counts[0]}" if counts else "width=…"
        return f"{cls.__name__} has no width: lg.train(run, {width})."

    @property
    def patch(self) -> Fraction:
        """The number of positions that each output sums over, times its part of the channels."""
        return Fraction(1)

    def space_behind(self, space: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return the spatial axes behind the map: the same, unless overridden; None for None."""
        return space

    @property
    def keeps_shape(self) -> bool:
        """Whether the map keeps the spatial axes; width ratios are not considered."""
        return type(self).space_behind is Affine.space_behind

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal of the map's output features."""
        return Signal(self.space_behind(signal.space), self.width_ratio, from_data=False)

    def lower(self, program: Builder, value: int) -> int:
        """Append the affine map of all features at each position, with a weight of its own."""
        return self.lower_map(program, value)

    def lower_map(self, program: Builder, value: int, **geometry: Any) -> int:
        """Append an affine map with the layer's weight and a geometry: window, tied, groups."""
        weight = program.weight(
            value,
            weight_std=self.weight_std,
            bias_std=self.bias_std,
            width_ratio=self.width_ratio,
            patch=self.patch,
        )
        behind = self.signal_behind(program.signal(value))
        return program.add(AffineMap((value,), weight, **geometry), behind)


@dataclass(frozen=True, repr=False)
class Elementwise(Layer):
    """A layer that applies one function to each number: ``__call__``, written with ``jax.numpy``.

    Every theory that has a rule for activations applies to it, without a further rule.

    Examples
    --------
    >>> import jax, largen as lg, numpy as np
    >>> from dataclasses import dataclass
    >>> from largen.architectures import Elementwise
    >>> @dataclass(frozen=True, repr=False)
    ... class Swish(Elementwise):
    ...     beta: float
    ...     def __call__(self, x):
    ...         return x * jax.nn.sigmoid(self.beta * x)
    >>> net = lg.serial(lg.Dense(), Swish(1.0), lg.Dense())
    >>> bool(
    ...     np.allclose(
    ...         lg.nngp_kernel(net, np.eye(2)), lg.nngp_kernel(lg.mlp(1, "silu"), np.eye(2))
    ...     )
    ... )
    True
    """

    def __call__(self, x: Any) -> Any:
        """Return φ(x)."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes.")

    @property
    def activation(self) -> ActivationFunction:
        """The activation φ with its derivative and, where known, its Gaussian integrals."""
        return _activation(self)

    def lower(self, program: Builder, value: int) -> int:
        """Append the function."""
        return program.add(Function((value,), self.activation))


@lru_cache(maxsize=1024)
def _activation(layer: Elementwise) -> ActivationFunction:
    return as_activation(layer)


def kinds_of_layers(base: type[Layer] = Layer) -> Iterator[type[Layer]]:
    """Yield all layer types that derive from a base, including those that users define."""
    for kind in base.__subclasses__():
        yield kind
        yield from kinds_of_layers(kind)


def _ratio(value: Any) -> Fraction:
    number = real("width_ratio", value, above=0)
    exact = Fraction(number)
    if isinstance(value, Rational):
        exact = Fraction(int(value.numerator), int(value.denominator))
    ratio = exact.limit_denominator(LARGEST_TERM)
    if not 0 < ratio <= LARGEST_TERM or abs(ratio - exact) > 1e-12 * exact:
        raise InvalidInput(
            f"width_ratio: wanted a ratio of integers up to {LARGEST_TERM}, such as 1/2, "
            f"got {shown(value)}."
        )
    return ratio


def check_layer(name: str, layer: object) -> None:
    """Check that an argument is a layer."""
    instance_of(name, layer, Layer, "a layer such as Dense()")
