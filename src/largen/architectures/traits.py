"""What a layer says of itself: the traits that every reading of a network relies on.

A layer is a small frozen record: its constants of order one, what it does to the shape of a
signal, and its traits. A trait that a layer does not claim does not hold, so that a reading which
needs it refuses the layer by name instead of guessing. Base classes are traits with fields or
parts of their own: :class:`Affine`, :class:`Elementwise`, :class:`Sequence`, :class:`Parallel`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import Field, dataclass, field, fields
from fractions import Fraction
from functools import cache, lru_cache
from inspect import Signature, signature
from numbers import Integral, Rational
from typing import Any, ClassVar

from largen.architectures.signals import Signal, difference
from largen.arrays import is_traced, real
from largen.errors import InvalidInput, instance_of
from largen.expectations import ActivationFunction, activation
from largen.text import shown

LARGEST_TERM = 1000  # of ratios of widths


class _Named(type):
    """The class of layers' classes: arguments that a layer does not have are a named error."""

    def __call__(cls, *values, **options):
        found = _signature(cls)
        try:
            found.bind(*values, **options)
        except TypeError as mistake:
            name, hint = cls.__name__, cls._misuse(values, options)  # pyright: ignore
            raise InvalidInput(f"{name}: {mistake}; wanted {name}{found}. {hint}".strip()) from None
        return super().__call__(*values, **options)


@cache
def _signature(cls: type) -> Signature:
    """Return what a class is made from, without annotations."""
    found = signature(cls.__init__).parameters.values()
    return Signature([p.replace(annotation=p.empty) for p in found][1:])


@dataclass(frozen=True, repr=False)
class Layer(metaclass=_Named):
    """Base of all layers; prints itself by the fields that are not at their default.

    Attributes
    ----------
    linear
        Whether it maps each channel by itself, y_pc = Σ_q A_pq x_qc, with fixed coefficients.
    homogeneous
        Whether y(ax) = a·y(x) for a > 0, which every linear layer is: powers of the width, and
        degrees in the weights, pass through it.
    random
        Whether it draws random numbers for every sample.
    couples_samples
        Whether what it makes of a sample depends on the other samples of the batch.
    keeps_shape
        Whether spatial axes and features per unit of width are the same behind it.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Dense(bias_std=0.1), lg.Dense().homogeneous, lg.BatchNorm().couples_samples
    (Dense(bias_std=0.1), True, True)
    """

    linear: ClassVar[bool] = False
    homogeneous: ClassVar[bool] = False
    random: ClassVar[bool] = False
    couples_samples: ClassVar[bool] = False

    # Fields that print without their names.
    _bare: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        cls.homogeneous = cls.homogeneous or cls.linear

    @classmethod
    def _misuse(cls, values: tuple[Any, ...], options: dict[str, Any]) -> str:
        """Return a hint for who gave arguments that the layer does not have, or nothing."""
        return ""

    @property
    def keeps_shape(self) -> bool:
        """See above."""
        return type(self).signal_behind is Layer.signal_behind

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal behind the layer for the one before it: the same, unless overridden.

        Raises
        ------
        InvalidInput
            If the layer does not fit its input, such as a window that is larger than a sample.
        """
        return signal

    def _default(self, one: Field) -> Any:
        """The value of a field that was not given."""
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
    """A layer with Gaussian weights, an affine map of all features that it reads.

    It has rows in the rule tables of all parameterizations, "weight" and, with σ_b > 0, "bias",
    and its kernels have the constants of these rows. Its channels are sums over fresh random
    weights, independent of what came in.

    Attributes
    ----------
    weight_std, bias_std
        σ_w and σ_b, of order one.
    width_ratio
        How many features it makes per unit of width.
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
                    "constants are lg.kernel_function(net, x), and likelihoods lg.log_likelihood."
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
        """How many positions each output sums over; over part of the channels, a fraction."""
        return Fraction(1)

    def space_behind(self, space: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return the spatial axes behind the map, None for None: the same, unless overridden."""
        return space

    @property
    def keeps_shape(self) -> bool:
        """Whether spatial axes are the same behind it; constants, ratios of width too, aside."""
        return type(self).space_behind is Affine.space_behind

    def signal_behind(self, signal: Signal) -> Signal:
        """Return a signal of its own features."""
        return Signal(self.space_behind(signal.space), self.width_ratio, from_data=False)


@dataclass(frozen=True, repr=False)
class Elementwise(Layer):
    """A layer that applies one function to each number: ``__call__`` with ``jax.numpy``.

    Every reading that knows activations knows it, without a rule of its own.

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
    >>> bool(np.allclose(lg.nngp(net, np.eye(2)), lg.nngp(lg.mlp(1, "silu"), np.eye(2))))
    True
    """

    def __call__(self, x: Any) -> Any:
        """Return φ(x)."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes.")

    @property
    def activation(self) -> ActivationFunction:
        """φ with its derivative and, where they are known, its Gaussian integrals."""
        return _activation(self)


@lru_cache(maxsize=1024)
def _activation(layer: Elementwise) -> ActivationFunction:
    return activation(layer)


@dataclass(frozen=True, repr=False)
class Container(Layer):
    """Base of layers that are made of layers; not for use by itself.

    Its parts are the fields that hold a layer or a tuple of layers, in their order. Positions
    among them make up paths, such as those of :class:`largen.architectures.WeightSite`.
    """

    @property
    def parts(self) -> tuple[Layer, ...]:
        """The layers that it is made of."""
        return tuple(part for group in self._groups().values() for part in group)

    def with_parts(self, parts: Iterable[Layer]) -> Container:
        """Return the same container of other layers, as many."""
        found, new = iter(parts), copy(self)
        for name, group in self._groups().items():
            alone = isinstance(getattr(self, name), Layer)
            layers = tuple(next(found) for _ in group)
            object.__setattr__(new, name, layers[0] if alone else layers)  # records are frozen
        return new

    def _groups(self) -> dict[str, tuple[Layer, ...]]:
        """Return the fields that hold layers, one or a tuple of them."""
        groups: dict[str, tuple[Layer, ...]] = {}
        for each in fields(self):
            value: Any = getattr(self, each.name)
            if isinstance(value, Layer):
                groups[each.name] = (value,)
            elif isinstance(value, tuple) and value and all(isinstance(v, Layer) for v in value):
                groups[each.name] = value
        return groups


@dataclass(frozen=True, repr=False)
class Sequence(Container):
    """Its parts one after the other, and that ``times`` over with weights of their own.

    Every reading follows it part by part: a container of this kind needs no rule anywhere.
    """

    times = 1

    @property
    def keeps_shape(self) -> bool:
        """Whether all parts keep the shape."""
        return all(part.keeps_shape for part in self.parts)

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal behind the last part; copies have to keep it."""
        behind = signal
        for part in self.parts:
            behind = part.signal_behind(behind)
        if self.times > 1 and behind != signal:
            once = self.parts[0] if len(self.parts) == 1 else self
            raise InvalidInput(
                f"net: {once!r} is repeated but does not keep the shape of its input; "
                f"{difference(signal, behind)}."
            )
        return behind


@dataclass(frozen=True, repr=False)
class Parallel(Container):
    """Its parts read the same input, and it makes one signal of what leaves them.

    How it does is a rule of its own in every reading, and one without such a rule refuses it.
    It says the shape of what it makes by overriding ``signal_behind``.
    """

    @property
    def keeps_shape(self) -> bool:
        """Not known unless it is said."""
        return False

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal behind it; for a new container to say."""
        raise InvalidInput(f"net: {type(self).__name__} does not say what shape it leaves.")


def parts_of(layer: Layer) -> tuple[Layer, ...]:
    """Return the layers that a layer is made of, none if it is no container.

    A skip that does nothing is an empty ``serial``.

    Examples
    --------
    >>> import largen as lg
    >>> parts_of(lg.Residual(lg.serial(lg.Activation("relu"), lg.Dense())))
    (serial(Activation('relu'), Dense()), serial())
    """
    return layer.parts if isinstance(layer, Container) else ()


def kinds_of_layers(base: type[Layer] = Layer) -> Iterator[type[Layer]]:
    """Yield all types of layers, those of the user's own included, that derive from a base."""
    for kind in base.__subclasses__():
        yield kind
        yield from kinds_of_layers(kind)


def _ratio(value: Any) -> Fraction:
    number = real("width_ratio", value, above=0)
    exact = Fraction(number)
    if isinstance(value, Rational):
        exact = Fraction(int(value.numerator), int(value.denominator))
    found = exact.limit_denominator(LARGEST_TERM)
    if not 0 < found <= LARGEST_TERM or abs(found - exact) > 1e-12 * exact:
        raise InvalidInput(
            f"width_ratio: wanted a ratio of integers up to {LARGEST_TERM}, such as 1/2, "
            f"got {shown(value)}."
        )
    return found


def check_layer(name: str, layer: object) -> None:
    """Check that something is a layer."""
    instance_of(name, layer, Layer, "a layer such as Dense()")
