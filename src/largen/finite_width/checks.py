"""Checks of activations, inputs and kernels at finite width."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from largen.arrays import floating, known
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.expectations import ActivationFunction
from largen.expectations.nodes import jumps


def check_derivative(phi: ActivationFunction, what: str) -> None:
    """Raise if φ jumps, so that φ' is not a function."""
    if jumps(phi)[0]:
        raise NoTheory(
            f"{what}: {phi} jumps. Its kernel's derivatives at order 1/width, and its NTK, do not "
            "exist as averages of φ and φ'."
        )


def checked_inputs(x: ArrayLike, name: str = "x") -> np.ndarray:
    """Check inputs, (sample, input), at the public function, in float64."""
    known(name, x)
    return np.asarray(floating(name, x, ndim=2), np.float64)


def one_input(x: ArrayLike) -> np.ndarray:
    """Check that there is one input, which is not 0."""
    inputs = checked_inputs(x)
    if len(inputs) != 1 or not inputs.any():
        raise InvalidInput(f"x: wanted one input that is not 0, got shape {inputs.shape}.")
    return inputs


VANISHING = 1e-60  # a variance whose fourth power is nearly lost


def check_alive(kernel: np.ndarray, layer: int) -> None:
    """Raise if the kernel of a layer overflows or an input's variance is 0."""
    q = np.diagonal(kernel)
    if not np.isfinite(kernel).all():
        raise NumericalFailure(f"the kernel overflows in layer {layer}: take a smaller weight_std.")
    if (q <= VANISHING).any():
        raise NumericalFailure(
            f"input {int(np.argmin(q))} has the variance {q.min():.2g} in layer {layer}: its "
            "signal vanishes, and relative fluctuations are not defined. Take a larger weight_std, "
            "or a bias."
        )
