"""Losses: a number for each sample, and its negative slope, the residual Δ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Shaped

from largen.errors import InvalidInput, one_of

Targets = Literal["real", "sign", "class", "any"]

PROBED = (-1.7, -0.6, 0.2, 0.9, 2.3)  # outputs at which losses are compared
MOST_PROBED = 4  # targets


@dataclass(frozen=True)
class Loss:
    """The loss ℓ(f, y) of one sample; a run minimises its mean (1/P) Σ_μ ℓ(f_μ, y_μ).

    Attributes
    ----------
    name
        What it is called.
    sample
        ℓ: the output ``(output,)`` or ``()`` of a sample and its target to a number.
    targets
        What the targets must be: real numbers like the output, signs ±1, class indices
        0 … C−1, or anything (a loss of the user's own).
    linear_residual
        Whether Δ is linear in f, as for the mean squared error: kernel dynamics then have a
        closed form.
    """

    name: str
    sample: Callable[[Any, Any], Any] = field(repr=False)
    targets: Targets = "any"
    linear_residual: bool = False

    def mean(
        self, f: Float[ArrayLike, "sample *output"], y: Shaped[ArrayLike, "sample *target"]
    ) -> Float[Array, ""]:
        """Return (1/P) Σ_μ ℓ(f_μ, y_μ)."""
        return jnp.mean(jax.vmap(self.sample)(f, y))

    def residual(
        self, f: Float[ArrayLike, "sample *output"], y: Shaped[ArrayLike, "sample *target"]
    ) -> Float[Array, "sample *output"]:
        """Return Δ_μ = −∂ℓ/∂f_μ, which is not divided by the number of samples."""
        return -jax.vmap(jax.grad(self.sample))(f, y)

    def fingerprint(self, y: Shaped[np.ndarray, "sample *target"], shape: tuple[int, ...]) -> str:
        """Return the name, and the losses of some outputs, to five digits.

        Functions of the same name may differ, and may be edited between two runs.

        Parameters
        ----------
        y
            Targets of the run; the first few are looked at.
        shape
            Of the output of a sample.
        """
        outputs = np.resize(np.array(PROBED, np.float32), (len(PROBED), *shape))
        targets = y[:MOST_PROBED].astype(np.float32) if y.dtype.kind == "f" else y[:MOST_PROBED]
        values = (float(self.sample(jnp.asarray(f), t)) for f in outputs for t in targets)
        return " ".join([self.name, *(f"{value:.4e}" for value in values)])


def _squared(f, y):
    return 0.5 * jnp.sum((f - y) ** 2)


def _logistic(f, y):
    return jnp.sum(jax.nn.softplus(-y * f))


def _cross_entropy(f, y):
    return jax.nn.logsumexp(f) - f[y]


LOSSES = {
    "mse": Loss("mse", _squared, "real", linear_residual=True),
    "logistic": Loss("logistic", _logistic, "sign"),
    "cross_entropy": Loss("cross_entropy", _cross_entropy, "class"),
}
ALIASES = {"softmax": "cross_entropy"}


def loss(spec: str | Loss | Callable[[Any, Any], Any]) -> Loss:
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
        For an unknown name.

    Examples
    --------
    >>> import largen as lg
    >>> lg.loss("mse").residual(np.array([0.2]), np.array([1.0])).tolist()  # doctest: +ELLIPSIS
    [0.8...]
    """
    if isinstance(spec, Loss):
        return spec
    if isinstance(spec, str):
        return LOSSES[one_of("loss", ALIASES.get(spec, spec), LOSSES)]
    if callable(spec):
        return Loss(getattr(spec, "__name__", "custom"), spec)
    raise InvalidInput(f"loss: wanted a name or a function of (f, y), got {spec!r}.")


def check_targets(loss: Loss, name: str, y: np.ndarray) -> None:
    """Check at the door that targets fit a loss.

    Raises
    ------
    InvalidInput
        With the labels that were found and those that the loss wants.
    """
    integral = np.issubdtype(y.dtype, np.integer)
    match loss.targets:
        case "sign":
            found = np.unique(y)
            if not np.isin(found, (-1, 1)).all():
                raise InvalidInput(
                    f"{name}: the logistic loss wants labels −1 and +1, got {_some(found)}. "
                    "For labels 0 and 1 pass 2*y - 1."
                )
        case "class":
            if not integral or y.ndim != 1:
                raise InvalidInput(
                    f"{name}: cross_entropy wants integer class indices of shape (sample,), got "
                    f"dtype {y.dtype} and shape {y.shape}. For one-hot rows pass y.argmax(-1)."
                )
            if y.min() < 0:
                raise InvalidInput(f"{name}: class indices start at 0, got {y.min()}.")
        case "real":
            if not (np.issubdtype(y.dtype, np.floating) or integral):
                raise InvalidInput(f"{name}: mse wants numbers, got dtype {y.dtype}.")


def _some(values: np.ndarray) -> str:
    shown = ", ".join(f"{v:g}" for v in values[:6])
    return shown + (", …" if len(values) > 6 else "")
