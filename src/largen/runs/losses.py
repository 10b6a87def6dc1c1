"""Losses of single samples, and their negative derivatives, the residuals Δ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Shaped

from largen.arrays import as_array, as_floats, finite_result, floating, is_traced, precision
from largen.callables import outputs_on_shapes, takes
from largen.errors import InvalidInput, exactly, instance_of, one_of
from largen.scalars import flag
from largen.text import shown

Targets = Literal["real", "sign", "class", "any"]

PROBED = (-1.7, -0.6, 0.2, 0.9, 2.3)  # outputs at which fingerprints evaluate losses
MOST_PROBED = 4  # targets of a fingerprint


@dataclass(frozen=True)
class Loss:
    """The loss ℓ(f, y) of one sample; a run minimises its mean (1/P) Σ_μ ℓ(f_μ, y_μ).

    Attributes
    ----------
    name
        The name of the loss.
    sample
        ℓ: the output ``(output,)`` or ``()`` of a sample and its target to a number.
    targets
        What the targets must be: real numbers like the output, signs ±1, class indices
        0 … C−1, or anything (a loss of the user's own).
    linear_residual
        Whether Δ is linear in f, as for the mean squared error: kernel dynamics then have a
        closed form.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> (
    ...     lg.losses.as_loss("mse").linear_residual,
    ...     float(lg.losses.as_loss("mse").sample(np.array(0.5), np.array(1.5))),
    ... )
    (True, 0.5)
    """

    name: str
    sample: Callable[[Any, Any], Any] = field(repr=False)
    targets: Targets = "any"
    linear_residual: bool = False

    def __post_init__(self):
        instance_of("name", self.name, str, "a name")
        takes("sample", self.sample, ("f", "y"))
        one_of("targets", self.targets, ("real", "sign", "class", "any"))
        flag("linear_residual", self.linear_residual)

    @property
    def squared(self) -> bool:
        """Whether ℓ is that of ``"mse"``; functions of one's own may have its name."""
        return self.of_one_output().sample is _square

    def over_positions(self) -> Loss:
        """Return the loss of samples with an output at each position: the mean over positions.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> tokens = lg.losses.as_loss("cross_entropy").over_positions()
        >>> bool(np.isclose(tokens.mean(np.zeros((1, 5, 3)), np.zeros((1, 5), int)), np.log(3)))
        True
        """
        if isinstance(self.sample, MeanOverPositions):
            return self
        return replace(self, sample=MeanOverPositions(self.sample))

    def of_one_output(self) -> Loss:
        """Return the loss of which :meth:`over_positions` took the mean, or this one."""
        one = self.sample
        return replace(self, sample=one.each) if isinstance(one, MeanOverPositions) else self

    def mean(
        self, f: Float[ArrayLike, "sample *output"], y: Shaped[ArrayLike, "sample *target"]
    ) -> Float[Array, ""]:
        """Return (1/P) Σ_μ ℓ(f_μ, y_μ)."""
        f, y = _alike(self.sample, f, y)
        with precision(f, y):
            return finite_result("Loss.mean", jnp.mean(jax.vmap(self.sample)(f, y)))

    def residual(
        self, f: Float[ArrayLike, "sample *output"], y: Shaped[ArrayLike, "sample *target"]
    ) -> Float[Array, "sample *output"]:
        """Return Δ_μ = −∂ℓ/∂f_μ, which is not divided by the number of samples."""
        f, y = _alike(self.sample, f, y)
        with precision(f, y):
            return finite_result("Loss.residual", -jax.vmap(jax.grad(self.sample))(f, y))

    def fingerprint(self, y: Shaped[np.ndarray, "sample *target"], shape: tuple[int, ...]) -> str:
        """Return the name, and the losses of some outputs, to five digits.

        The name alone does not identify a loss: functions of the same name may differ, and may be
        edited between two runs.

        Parameters
        ----------
        y
            Targets of the run, of which the first few are used.
        shape
            The shape of the output of a sample.
        """
        outputs = np.resize(np.array(PROBED, np.float32), (len(PROBED), *shape))
        targets = y[:MOST_PROBED].astype(np.float32) if y.dtype.kind == "f" else y[:MOST_PROBED]
        values = np.asarray(_of_pairs(self.sample, outputs, targets)).flat
        return " ".join([self.name, *(f"{value:.4e}" for value in values)])


@dataclass(frozen=True)
class MeanOverPositions:
    """The loss of a sample, (1/S) Σ_s ℓ(f_s, y_s)."""

    each: Callable[[Any, Any], Any]  # ℓ of the output (output,) or () of a position and its target

    def __call__(self, f, y):
        """Return the mean of the losses of outputs (position[, output])."""
        return jnp.mean(jax.vmap(self.each)(f, y))


def _alike(sample: Callable[[Any, Any], Any], f: Any, y: Any) -> tuple[Any, Any]:
    """Check outputs and targets of the same samples; traced ones by their shape."""
    f, y = floating("f", f), as_array("y", y)
    if y.dtype.kind not in "biu":  # integers may be classes
        y = as_floats("y", y)
    deepest = 3 if isinstance(sample, MeanOverPositions) else 2
    if any(a.ndim not in range(deepest - 1, deepest + 1) for a in (f, y)) or len(f) != len(y):
        axes = "(sample, position[, output])" if deepest == 3 else "(sample,) or (sample, output)"
        raise InvalidInput(
            f"f: wanted outputs {axes} and as many targets, got shapes {f.shape} and {y.shape}."
        )
    if is_traced(f, y):
        return f, y
    if not np.isfinite(y).all():
        raise InvalidInput("y: has NaN or infinite entries; drop those samples.")
    one_of_each = (jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in (f, y))
    with precision(f, y):
        outputs_on_shapes("f, y", sample, *one_of_each)
    return f, y


@partial(jax.jit, static_argnums=0)
def _of_pairs(sample: Callable[[Any, Any], Any], outputs: Any, targets: Any) -> Array:
    """Return the losses of all outputs at all targets."""
    of_output = jax.vmap(sample, in_axes=(None, 0))
    return jax.vmap(of_output, in_axes=(0, None))(outputs, targets)


def _square(f, y):
    return 0.5 * jnp.sum((f - y) ** 2)


def _logistic(f, y):
    return jnp.sum(jax.nn.softplus(-y * f))


def _cross_entropy(f, y):
    return jax.nn.logsumexp(f) - f[y]


LOSSES = {
    "mse": Loss("mse", _square, "real", linear_residual=True),
    "logistic": Loss("logistic", _logistic, "sign"),
    "cross_entropy": Loss("cross_entropy", _cross_entropy, "class"),
}
ALIASES = {"softmax": "cross_entropy"}


def as_loss(spec: str | Loss | Callable[[Any, Any], Any]) -> Loss:
    """Return a loss from its name or from a function.

    ==================  ==================================  ==========================
    name                ℓ(f, y)                             targets
    ==================  ==================================  ==========================
    ``mse``             ½|f − y|²                           numbers, shaped as f
    ``logistic``        log(1 + e^(−yf))                    ±1
    ``cross_entropy``   −log softmax(f)_y                   class indices 0 … C−1
    ``softmax``         another name of ``cross_entropy``
    ==================  ==================================  ==========================

    Parameters
    ----------
    spec
        A name; or ℓ itself, a JAX function of the output and the target of one sample.

    Raises
    ------
    InvalidInput
        For an unknown name, or a function that does not take two arguments.

    Examples
    --------
    >>> import largen as lg
    >>> lg.losses.as_loss("mse").residual(
    ...     np.array([0.2]), np.array([1.0])
    ... ).tolist()  # doctest: +ELLIPSIS
    [0.8...]
    """
    if isinstance(spec, Loss):
        return exactly("loss", spec, Loss, "the function ℓ(f, y) itself, or lg.losses.Loss of it")
    if isinstance(spec, str):
        return LOSSES[one_of("loss", ALIASES.get(spec, spec), LOSSES)]
    if callable(spec):
        return Loss(getattr(spec, "__name__", "custom"), takes("loss", spec, ("f", "y")))
    raise InvalidInput(f"loss: wanted a name or a function of (f, y), got {shown(spec)}.")


def mean_loss(loss: Loss, f: np.ndarray, y: np.ndarray, leading: int) -> np.ndarray:
    """Return (1/P) Σ_μ ℓ(f_μ, y_μ) for outputs with ``leading`` axes before the step's."""
    shape = f.shape[: leading + 1]
    if not len(y):
        return np.full(shape, np.nan, dtype=f.dtype)
    flat = f.reshape(-1, *f.shape[leading + 1 :])
    with precision(f):
        return np.asarray(_mean_losses(loss, jnp.asarray(flat), jnp.asarray(y))).reshape(shape)


@partial(jax.jit, static_argnums=0)
def _mean_losses(loss: Loss, f, y):
    return jax.vmap(loss.mean, in_axes=(0, None))(f, y)


def check_loss(loss: Loss, y: np.ndarray, shape: tuple[int, ...]) -> None:
    """Check from shapes, of a sample's output, that a loss is a number and differentiable."""
    if loss.targets != "any":
        return
    try:
        hash(loss.sample)
    except TypeError:
        raise InvalidInput("loss: is not hashable; pass a plain function.") from None
    dtype = y.dtype if y.dtype.kind == "f" else np.dtype(np.float32)
    f = jax.ShapeDtypeStruct(shape, dtype)
    target = jax.ShapeDtypeStruct(y.shape[1:], y.dtype)
    with precision(y):
        value = outputs_on_shapes("loss", loss.sample, f, target)
        if getattr(value, "shape", None) != () or not np.issubdtype(value.dtype, np.floating):
            raise InvalidInput(
                f"loss: wanted a number for the output {shape} and the target {y.shape[1:]} of a "
                f"sample, got {shown(value)} of {loss.name}."
            )
        outputs_on_shapes("loss", jax.grad(loss.sample), f, target)


def check_targets(loss: Loss, name: str, y: np.ndarray) -> None:
    """Check that targets fit a loss."""
    integral = np.issubdtype(y.dtype, np.integer)
    match loss.targets:
        case "sign":
            labels = np.unique(y)
            if not np.isin(labels, (-1, 1)).all():
                raise InvalidInput(
                    f"{name}: the logistic loss requires labels −1 and +1, got {_some(labels)}. "
                    "For labels 0 and 1 pass 2*y - 1."
                )
        case "class":
            at_positions = isinstance(loss.sample, MeanOverPositions)
            if not integral or y.ndim != 1 + at_positions:
                shape = "(sample, position)" if at_positions else "(sample,)"
                raise InvalidInput(
                    f"{name}: cross_entropy requires integer class indices of shape {shape}, got "
                    f"dtype {y.dtype} and shape {y.shape}. For one-hot rows pass y.argmax(-1)."
                )
            if y.min() < 0:
                raise InvalidInput(f"{name}: class indices start at 0, got {y.min()}.")
        case "real":
            if not (np.issubdtype(y.dtype, np.floating) or integral):
                raise InvalidInput(f"{name}: mse requires numbers, got dtype {y.dtype}.")


def _some(values: np.ndarray) -> str:
    shown = ", ".join(f"{v:g}" for v in values[:6])
    return shown + (", …" if len(values) > 6 else "")
