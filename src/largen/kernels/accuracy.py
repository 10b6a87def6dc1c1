"""Accuracy checks of the expectations in a network's kernels, at a few representative variances.

Representative inputs are propagated through the layers; every activation without a closed form is
then checked at the variances of its preactivations. The cost does not depend on the number of
pairs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from largen.arrays import precision
from largen.errors import LostDigits, NoTheory, NumericalFailure
from largen.expectations import ActivationFunction
from largen.expectations.accuracy import DEFAULT_RTOL, shortfall, with_suitable_method
from largen.expectations.two_functions import cross_shortfall
from largen.kernels.depth_grid import shortfall_in_depth, with_suitable_steps
from largen.kernels.lower import Lowered
from largen.kernels.rules import pairs_of_functions, plan_of
from largen.kernels.state import AffineConstants, Copies, GainConstants, Wanted
from largen.kernels.variances import activation_variances
from largen.programs import Function, Operation, Program, Repeat
from largen.programs.rewriting import map_operations
from largen.scalars import real


def inaccuracy(
    lowered: Lowered, inputs: tuple[Any, ...], rtol: float | None, with_ntk: bool = True
) -> str | None:
    """Return an error message if a kernel of these inputs may miss ``rtol``, else None."""
    rtol = DEFAULT_RTOL["float64"] if rtol is None else real("rtol", rtol, above=0.0)
    found = activation_variances(lowered, inputs)
    for phi, (q, times) in found.items():
        words = shortfall(phi, q, rtol, layers=times, derivative=with_ntk)
        if words is not None:
            return f"kernels: {words}"
    for phi, psi in pairs_of_functions(lowered.program):
        if phi in found and psi in found:
            words = cross_shortfall(phi, psi, found[phi][0], found[psi][0], rtol, with_ntk)
            if words is not None:
                return f"kernels: {words}"
    if with_ntk:
        _warn_of_near_samples(lowered.program, inputs, rtol)
    return shortfall_in_depth(lowered, inputs, with_ntk, rtol)


def overflow(result: Any, x1: Any, x2: Any | None, rtol: float | None) -> str | None:
    """Return an error message if kernels of these untraced inputs are not finite, else None.

    And warn if kernels are finite but have lost digits. If a second moment overflows, its row or
    column is not finite, and products of two overflow first for the largest samples: one row, one
    column and the diagonal of a symmetric kernel suffice.
    """
    kernels = jax.tree.leaves(result)
    with precision(result, x1, x2):
        telling = _telling_compiled if isinstance(kernels[0], jax.Array) else _telling
        parts, sizes = telling(kernels, x1, x2)
        words = infinite(parts)
        if words is None:
            warn_of_lost_digits(sizes, rtol)
        return words


def sizes_of(x: Any) -> Any:
    """Return the largest absolute entry of each sample, since its mean square may overflow."""
    return abs(x).reshape(len(x), -1).max(axis=1)


def _telling(kernels: list[Any], x1: Any, x2: Any | None) -> tuple[list[Any], list[Any]]:
    sizes = [sizes_of(x) for x in ((x1,) if x2 is None else (x1, x2))]
    largest = [size.argmax() for size in sizes]
    parts = [part for k in kernels for part in (k[largest[0]], k[:, largest[-1]])]
    return parts + ([k.diagonal() for k in kernels] if x2 is None else []), sizes


_telling_compiled = jax.jit(_telling)  # one program, without intermediates of the inputs' size


def warn_of_lost_digits(sizes: Iterable[Any], rtol: float | None = None) -> None:
    """Warn if samples of these sizes differ so much that some of their kernels miss ``rtol``.

    A covariance is carried as the gap (q₁ + q₂)/2 − K₁₂, which is accurate for samples that nearly
    coincide. For sizes s ≪ S the gap has a rounding error of εS², and K₁₂ is at most of order sS:
    its error relative to √(K₁₁K₂₂) is up to (S/s)ε. For a sample of zeros the covariance is that of
    the biases, which are of order one, so that it counts with size one.
    """
    found = np.concatenate([np.asarray(size, np.float64) for size in sizes])
    found = np.where(found > 0, found, min(found.max(), 1.0))
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = found.max() / found.min()  # NaN if all are 0
    error = float(ratio * np.finfo(np.float64).eps)
    if error > (DEFAULT_RTOL["float64"] if rtol is None else rtol):
        warnings.warn(
            f"kernels: the largest sample is {ratio:.1e} times the smallest, and kernels of the "
            f"two may be off by {error:.1e} of √(K₁₁K₂₂). Scale samples alike.",
            LostDigits,
            stacklevel=2,
        )


def _warn_of_near_samples(program: Program, inputs: tuple[Any, ...], rtol: float) -> None:
    """Warn if samples are so close that sums of dependent terms lose their distance.

    A gap of a sum is then a difference of covariances, with a rounding error ε N for N pairs of
    terms, and at most of the order of the gap g of the samples, relative to their variance. A bend
    of an activation turns it into an error of min(√g, ε N/√g) in the tangent kernel.
    """
    pairs = len(plan_of(program, Wanted()).wanted)
    rounding = pairs * float(np.finfo(np.float64).eps)
    if rounding**0.5 <= rtol:  # the largest value of the minimum
        return
    gaps = _small_gaps(inputs, (rounding / rtol) ** 2)
    worst = float(np.max(np.minimum(np.sqrt(gaps), rounding / np.sqrt(gaps)), initial=0.0))
    if worst > rtol:
        warnings.warn(
            "kernels: some samples nearly coincide, and this network has sums of terms that depend "
            f"on the same weights: tangent kernels of such samples may be off by {worst:.1e}.",
            LostDigits,
            stacklevel=2,
        )


def _small_gaps(inputs: tuple[Any, ...], most: float) -> np.ndarray:
    """Return half the squared distances below a bound, over the mean square, of other samples."""
    flat = [np.asarray(x, np.float64).reshape(len(x), -1) for x in inputs]
    one, two = flat[0], flat[-1]
    sizes = np.sum(two**2, axis=1)
    found = [np.zeros(0)]
    for rows in np.array_split(one, max(len(one) * len(two) // 2**22, 1)):
        size = np.sum(rows**2, axis=1)[:, None] + sizes
        rough = size / 2 - rows @ two.T
        i, j = np.nonzero(rough <= (most + 1e-13) * size)
        exact = np.sum((rows[i] - two[j]) ** 2, axis=1) / np.maximum(size[i, j], 1e-300)
        found.append(exact[(exact > 0) & (exact <= most)])
    return np.concatenate(found)


def infinite(kernels: Iterable[Any], dtype: Any = None) -> str | None:
    """Return an error message if kernels are not finite in their own or a given dtype, or None."""
    for kernel in kernels:
        with np.errstate(over="ignore"):
            kernel = np.asarray(kernel, dtype)
        if not np.isfinite(kernel).all():
            return (
                "kernels: not finite, since second moments of the inputs or of a layer, or "
                f"products of two, overflow {kernel.dtype} on the way. Scale the inputs to a mean "
                "square of order one, and weight_std to keep it."
            )
    return None


def with_suitable_methods(
    lowered: Lowered,
    inputs: tuple[Any, ...],
    with_ntk: bool = True,
    rtol: float | None = None,
    earlier: dict[ActivationFunction, ActivationFunction] | None = None,
) -> Lowered:
    """Return the network with suitable methods for expectations and steps in infinite depth.

    ``earlier``: methods of networks with the same operations, which are used again, and so are
    compiled functions, where they are accurate enough; what is chosen is added.
    """
    if with_ntk:
        check_tangent(lowered.program, lowered.constants)
    usual, earlier = DEFAULT_RTOL["float64"], {} if earlier is None else earlier
    chosen = {}
    for phi, (q, times) in activation_variances(lowered, inputs).items():
        before = earlier.get(phi)
        if before is None or shortfall(before, q, usual, layers=times, derivative=with_ntk):
            before = with_suitable_method(phi, q, usual, layers=times, derivative=with_ntk)
        chosen[phi] = earlier[phi] = before
    if not all(phi is method for phi, method in chosen.items()):
        lowered = lowered._replace(program=with_activations(lowered.program, chosen))
    return with_suitable_steps(lowered, inputs, with_ntk, usual if rtol is None else rtol)


def check_tangent(program: Program, constants: Sequence[Any], moves: bool = False) -> None:
    """Raise an error if an activation jumps behind trained weights: there is no tangent kernel.

    ``moves``: whether what enters depends on trained weights.
    """
    values: list[bool] = []  # whether each value does
    for operation, its in zip(program.operations, constants, strict=True):
        moved = any(values[read] for read in operation.reads) if values else moves
        moved = moved or _trained(its)
        if isinstance(operation, Repeat):
            check_tangent(operation.body, its.constants if isinstance(its, Copies) else its, moved)
        elif isinstance(operation, Function) and operation.phi.jumps and moved:
            raise NoTheory(
                f"kernels: the activation {operation.phi!r} jumps, so that E[φ'φ'] diverges and "
                "there is no tangent kernel where weights before it are trained; its NNGP kernel "
                "exists: lg.nngp_kernel."
            )
        values.append(moved)


def _trained(constants: Any) -> bool:
    """Return whether an operation's weights, gains or offsets are trained."""
    kinds = AffineConstants, GainConstants
    leaves = jax.tree.leaves(constants, is_leaf=lambda each: isinstance(each, kinds))
    affine = (each[2:] for each in leaves if isinstance(each, AffineConstants))
    gains = (each for each in leaves if isinstance(each, GainConstants))
    return any(np.any(rate) for rates in (*affine, *gains) for rate in rates)


def activations_of(program: Program) -> list[ActivationFunction]:
    """Return all activations in a program, and the derivatives for gains inside of them."""
    functions = [each for each in program.all_operations() if isinstance(each, Function)]
    derivatives = (of for each in functions for _, *both in each.gains for of in both)
    found: list[Any] = [each.phi for each in functions] + [*derivatives]
    return [phi for phi in found if isinstance(phi, ActivationFunction)]


def with_activations(program: Program, chosen: Mapping[Any, Any]) -> Program:
    """Return a program with some of its activations replaced."""

    def change(operation: Operation) -> Operation:
        if isinstance(operation, Function):
            gains = tuple(
                (weight, *(chosen.get(of, of) for of in functions))  # a number stays as it is
                for weight, *functions in operation.gains
            )
            return replace(operation, phi=chosen.get(operation.phi, operation.phi), gains=gains)
        return operation

    return map_operations(program, change)


def report(words: str | None, result: Any, throw: bool) -> Any:
    """Return the result; if there is a message and ``throw``, raise an error that carries it."""
    if words is not None and throw:
        raise NumericalFailure(words, result)
    return result
