"""Activations: elementwise functions with a name, a derivative and, if known, closed forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache, partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from largen.callables import outputs_on_shapes, takes
from largen.errors import InvalidInput, exactly, one_of
from largen.expectations.closed_form import ClosedForm
from largen.expectations.error_functions import ERF, GELU
from largen.expectations.exponentials import COS, EXP, SIN
from largen.expectations.families import SELU, Elu, Family, Gaussian, Jump, LeakyRelu
from largen.expectations.homogeneous import homogeneous
from largen.expectations.recognition import recognise
from largen.text import shown

Elementwise = Callable[[Array], Array]
_TRIED = (0.9, -1.3, 0.4)  # test points: unsorted, and with a generic sum and product


@dataclass(frozen=True)
class Derivative:
    """The derivative of an elementwise function by forward autodiff, itself elementwise."""

    function: Elementwise

    def __call__(self, x: Array) -> Array:
        """Return f'(x)."""
        return jax.jvp(self.function, (x,), (jnp.ones_like(x),))[1]


@dataclass(frozen=True, repr=False)
class ActivationFunction:
    """An elementwise function φ with a name.

    Instances are frozen, comparable and hashable, so that they can be part of an architecture and
    static arguments of compiled functions.

    Parameters
    ----------
    name
        Name of the activation in printed output.
    function
        φ as an elementwise JAX function.
    derivative_function
        φ', needed only where autodiff does not give the desired value at a kink.
    closed_form
        The Gaussian integrals in closed form, if known; otherwise they are computed numerically.
    reach
        If given, integrals are computed by :mod:`largen.expectations.angular`, for standard
        deviations √q up to this number; otherwise the method is chosen automatically.
    series_below
        With ``reach``, the variance up to which pairs are computed by the Hermite series all the
        same, which is faster: where both variances are below.

    Examples
    --------
    >>> from largen.expectations import as_activation
    >>> relu = as_activation("relu")
    >>> relu, relu == as_activation("relu")
    (relu, True)
    >>> float(relu(-1.0)), float(relu.derivative(0.0))
    (0.0, 0.0)
    """

    name: str
    function: Elementwise
    derivative_function: Elementwise | None = field(default=None)
    closed_form: ClosedForm | None = field(default=None)
    reach: float | None = field(default=None)
    series_below: float = field(default=0.0)

    def __call__(self, x):
        """Return φ(x), elementwise."""
        return self.function(jnp.asarray(x))

    @property
    def jumps(self) -> bool:
        """Whether φ is known to have jumps, so that there is no tangent kernel."""
        return self.closed_form is not None and self.closed_form.jumps

    @property
    def slope(self) -> float | None:
        """The slope c of φ(x) = c x; None for any other φ."""
        slopes = None if self.closed_form is None else self.closed_form.slopes
        return slopes[0] if slopes is not None and slopes[1] == 0 else None

    def derivative(self, x):
        """Return φ'(x), elementwise; relu'(0) = 0."""
        x = jnp.asarray(x)
        if self.derivative_function is not None:
            return self.derivative_function(x)
        return Derivative(self.function)(x)

    def derivatives(self, x):
        """Return φ'(x) and φ''(x), elementwise; what φ'' has at kinks is left out."""
        x = jnp.asarray(x)
        return jax.jvp(self.derivative, (x,), (jnp.ones_like(x),))

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self):
        # JAX's own functions and closed forms cannot be pickled or copied: named activations are
        # pickled by name, and activations made from a function are rebuilt from the function.
        if _REGISTRY.get(self.name) == self:
            return as_activation, (self.name,)
        if as_activation(self.function) == self:
            return as_activation, (self.function,)
        return ActivationFunction, tuple(getattr(self, part.name) for part in fields(self))


def _relu_derivative(x: Array) -> Array:
    return (x > 0).astype(x.dtype)


def _gelu(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=False)


def _linear(x: Array) -> Array:
    return x


@cache
def of_family(family: Family, name: str | None = None) -> ActivationFunction:
    """Return the activation of a function with parameters, one object for equal parameters."""
    return ActivationFunction(name or str(family), family, family.derivative, family.closed_form)


_REGISTRY = {
    phi.name: phi
    for phi in (
        ActivationFunction("linear", _linear, jnp.ones_like, homogeneous(1.0, 0.0, 1.0)),
        ActivationFunction("relu", jax.nn.relu, _relu_derivative, homogeneous(0.5, 0.5, 0.0)),
        of_family(LeakyRelu(0.01), "leaky_relu"),
        ActivationFunction("abs", jnp.abs, jnp.sign, homogeneous(0.0, 1.0, 0.0)),
        ActivationFunction("erf", jax.scipy.special.erf, None, ERF),
        ActivationFunction("gelu", _gelu, None, GELU),
        ActivationFunction("sin", jnp.sin, jnp.cos, SIN),
        ActivationFunction("cos", jnp.cos, None, COS),
        ActivationFunction("exp", jnp.exp, jnp.exp, EXP),
        ActivationFunction("tanh", jnp.tanh),
        ActivationFunction("sigmoid", jax.nn.sigmoid),
        ActivationFunction("silu", jax.nn.silu),
        ActivationFunction("softplus", jax.nn.softplus),
        of_family(Elu(1.0), "elu"),
        of_family(SELU),
        of_family(Gaussian(1.0), "gaussian"),
        of_family(Jump(-1.0)),
        of_family(Jump(0.0)),
    )
}
_WITH_PARAMETERS = {
    "rbf": "largen.expectations.rbf(gamma), whose kernel behind one affine map is that of radial "
    "basis functions; the bump e^(−x²/2) is 'gaussian'",
    "hermite": "largen.expectations.hermite(degree)",
    "monomial": "largen.expectations.monomial(degree)",
    "polynomial": "largen.expectations.polynomial(coefficients)",
}
# What other libraries have under these names.
_OTHERWISE = dict.fromkeys(
    ("identity", "id", "none"), "the identity is 'linear', or no Activation at all"
) | {"softmax": "it is not elementwise; attention layers have it, such as lg.layers.SelfAttention"}
_REGISTRY["swish"] = _REGISTRY["silu"]  # another name for the same function


def as_activation(spec: Any) -> ActivationFunction:
    """Return the activation given by a name or a function.

    Parameters
    ----------
    spec
        A name (linear, relu, leaky_relu, abs, erf, gelu, sin, cos, exp, tanh, sigmoid, silu
        or swish, softplus, elu, selu, gaussian, sign, step; gelu is the exact one, leaky_relu has
        slope 0.01, gaussian is e^(−x²/2)), an elementwise JAX function, or an
        :class:`ActivationFunction`, such as those that :func:`elu`, :func:`hermite` and others
        in :mod:`largen.expectations` return. A function recognised as piecewise linear, such as a
        relu written by hand or a hard tanh, gets exact integrals, and a curved one with kinks away
        from 0 is integrated piece by piece; :func:`with_kinks` takes the kinks from the caller.

    Raises
    ------
    InvalidInput
        If the name is not known, or the function is not an elementwise JAX function.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from largen.expectations import as_activation
    >>> as_activation("tanh")
    tanh
    >>> def cube(x):
    ...     return x**3
    >>> as_activation(cube)
    cube
    >>> as_activation("rely")
    Traceback (most recent call last):
    ...
    largen.errors.InvalidInput: activation: 'rely' is not known. Did you mean 'relu'? ...
    """
    if isinstance(spec, ActivationFunction):
        return exactly("activation", spec, ActivationFunction, "an elementwise JAX function")
    if isinstance(spec, str):
        if spec in _WITH_PARAMETERS:
            raise InvalidInput(f"activation: {spec!r} has parameters: {_WITH_PARAMETERS[spec]}.")
        if spec.lower() in _OTHERWISE:
            raise InvalidInput(f"activation: {spec!r} is not known: {_OTHERWISE[spec.lower()]}.")
        return _REGISTRY[one_of("activation", spec, _REGISTRY)]
    if not callable(spec):
        raise InvalidInput(
            f"activation: wanted a name or an elementwise JAX function, got {shown(spec)}."
        )
    if isinstance(spec, Family) and not isinstance(spec, type):
        _check_family(type(spec))
        return of_family(spec)
    function = cast(Elementwise, spec)
    _check_elementwise(function)
    name = getattr(function, "__name__", type(function).__name__)
    return ActivationFunction(name, function, closed_form=recognise(function, Derivative(function)))


def _check_not_torch(function: Any, name: str) -> None:
    """Refuse functions and modules of PyTorch, which JAX cannot differentiate."""
    owners = (getattr(function, "__module__", None), type(function).__module__)
    if not any(str(owner).split(".")[0] == "torch" for owner in owners):
        return
    short = name.removesuffix("()").lower()
    wanted = repr(short) if short in _REGISTRY else "such as 'relu'"
    raise InvalidInput(
        f"activation: {name} is of PyTorch, which JAX cannot differentiate; pass the name "
        f"{wanted}, or a function of jax.numpy. lg.read(make, x) reads whole modules of PyTorch."
    )


def _check_family(kind: type) -> None:
    """Refuse a class whose values are its own, with the derivative or the integrals of its base."""
    said = next(base for base in kind.__mro__ if "__call__" in vars(base))
    for name in ("derivative", "closed_form"):
        of = next(base for base in kind.__mro__ if name in vars(base))
        if issubclass(of, said):
            continue
        raise InvalidInput(
            f"activation: {kind.__name__} has values of its own and the {name} of {of.__name__}, "
            f"from which it derives; it lacks {name} (closed_form may be None)."
        )


def _check_elementwise(function: Elementwise) -> None:
    """Check at a few points that each output is a number that depends on its own input alone."""
    name = getattr(function, "__name__", shown(function))
    if isinstance(function, np.ufunc):
        raise InvalidInput(
            f"activation: {name} is a function of NumPy or SciPy, which JAX cannot differentiate; "
            "pass that of jax.numpy or jax.scipy, or a name such as 'tanh'."
        )
    _check_not_torch(function, name)
    takes("activation", function, ("x",))
    try:
        hash(function)
    except TypeError:
        raise InvalidInput(f"activation: {name} is not hashable; pass a plain function.") from None
    shape = jax.ShapeDtypeStruct((len(_TRIED),), np.float32)
    out = outputs_on_shapes("activation", function, shape)
    if getattr(out, "shape", None) != shape.shape or not np.issubdtype(out.dtype, np.floating):
        raise InvalidInput(
            f"activation: {name} must map floats of shape {shape.shape} to floats of the same "
            f"shape, got {shown(out)}."
        )
    alone = outputs_on_shapes("activation", function, jax.ShapeDtypeStruct((1, 1), np.float32))
    if getattr(alone, "shape", None) == (1, 1):
        with jax.ensure_compile_time_eval():
            together, alone = map(np.asarray, _values(function, jnp.asarray(_TRIED, np.float32)))
        if np.isnan(together).any():
            at = _TRIED[int(np.argmax(np.isnan(together)))]
            raise InvalidInput(f"activation: {name}({at}) is not a number.")
        if np.allclose(together, alone, rtol=1e-4, atol=1e-6):
            return
    raise InvalidInput(
        f"activation: {name} is not elementwise: what it makes of one number depends on others. "
        "Functions such as softmax or cumsum are no activations."
    )


@partial(jax.jit, static_argnums=0)
def _values(function: Elementwise, x: Array) -> tuple[Array, Array]:
    """Return φ of all numbers in one call, and of each number in a call of its own."""
    alone = [function(x[i].reshape(1, 1))[0] for i in range(len(x))]
    return function(x), jnp.concatenate(alone)
