"""A run in the kernel limit as a problem in function space, and which solver follows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from largen.kernels.modes import Factors, decompose, descent_factors, flow_factors, outputs
from largen.runs import Run
from largen.theories.kernel_limit import observables
from largen.theories.kernel_limit.descent import descend
from largen.theories.kernel_limit.flow import flow


class Problem(NamedTuple):
    """A run and its kernels, in float64.

    Attributes
    ----------
    run
        What is trained, and how.
    nngp
        Covariance of initial outputs on training, then test samples, (P + M, P + M).
    ntk, ntk_test
        Θ among training samples (P, P), and from test to training samples (M, P).
    starts_at_zero
        Whether initial outputs vanish in the limit.
    degree
        The degree of the output in the weights, where they decay; see
        :mod:`largen.theories.kernel_limit.decay`.
    """

    run: Run
    nngp: Any
    ntk: Any
    ntk_test: Any
    starts_at_zero: bool
    degree: int = 1

    @property
    def closed_form(self) -> bool:
        """Whether eigenmodes solve it: squared error, full batch, a kernel that stands still."""
        run = self.run
        plain = run.loss.linear_residual and run.batches is None
        return plain and not run.optimizer.weight_decay

    @property
    def channels(self) -> int:
        """Number of outputs."""
        return (self.run.output_shape or (1,))[0]

    @property
    def zero_start(self) -> tuple[Any, Any]:
        """Initial outputs 0 of one network, on training and test samples."""
        return (
            jnp.zeros((1, len(self.ntk), self.channels)),
            jnp.zeros((1, len(self.ntk_test), self.channels)),
        )

    @property
    def targets(self) -> Any:
        """Targets; those of the squared error have an axis of outputs."""
        y = self.run.data.y_train
        if not self.run.loss.linear_residual:
            return jnp.asarray(y, jnp.float64 if y.dtype.kind == "f" else y.dtype)
        return jnp.asarray(y, jnp.float64).reshape(len(y), -1)


class Answer(NamedTuple):
    """Mean over initialisations, (step, sample, output), and what else there is, in float64.

    Attributes
    ----------
    f_train, f_test
        The mean.
    extra
        Further variables, by name.
    notes
        What the reader should know.
    solved
        Whether the ODE's solver reached its tolerance.
    largest
        The largest eigenvalue of the tangent kernel, if it is known.
    """

    f_train: Any
    f_test: Any
    extra: dict[str, Any]
    notes: tuple[str, ...] = ()
    solved: bool = True
    largest: float | None = None


def factors(problem: Problem, values: Any) -> Factors:
    """Return how far each eigenmode has come at every entry of the trajectory."""
    run, samples = problem.run, len(problem.ntk)
    if run.steps is None:
        return flow_factors(values, jnp.asarray(run.times) * (run.optimizer.lr / samples))
    return descent_factors(values, _rates(run) / samples, momentum(run))


def _rates(run: Run) -> Any:
    """Return η₀ of each step; that of the last entry, which makes none, is 0."""
    return jnp.asarray(np.append(run.rates, 0.0))


def momentum(run: Run) -> float:
    """Return β; 0 for optimizers without."""
    return getattr(run.optimizer, "momentum", 0.0)


def follow(
    problem: Problem,
    f0_train: Any,
    f0_test: Any,
    observe: Callable[[Any, Any], Any] = observables.everything,
    targets: Any = None,
) -> tuple[Any, bool]:
    """Follow networks from given initial outputs step by step, or by the ODE.

    Parameters
    ----------
    problem
        What is solved.
    f0_train, f0_test
        Initial outputs, (seed, sample, output).
    observe
        What is kept at every time.
    targets
        Targets instead of the run's own.

    Returns
    -------
    tuple
        What is observed, stacked along a leading axis of times, and whether the solver worked.
    """
    run, kernels = problem.run, (problem.ntk, problem.ntk_test)
    y = problem.targets if targets is None else targets
    scalar = not run.output_shape and not run.loss.linear_residual
    start, decay = (f0_train, f0_test), run.optimizer.weight_decay
    if run.steps is None:
        times = jnp.asarray(run.times)
        rate = run.optimizer.lr
        seen, solved = flow(
            run.loss, scalar, observe, times, *kernels, y, *start, rate, decay, problem.degree
        )
        return seen, bool(solved)
    batches = None if run.batches is None else jnp.asarray(np.asarray(run.batches))
    settings = _rates(run), momentum(run), batches, decay, problem.degree
    seen = descend(run.loss, scalar, observe, *kernels, y, *start, *settings)
    return seen, True


def from_initial(problem: Problem, f0_train: Any, f0_test: Any) -> tuple[Any, Any]:
    """Return outputs (seed, step, sample, output) from given initial ones, on train and test."""
    if problem.closed_form:
        modes = decompose(problem.ntk, problem.ntk_test)
        by_mode = factors(problem, modes.values)
        return outputs(modes, by_mode, problem.targets, f0_train, f0_test)
    (train, test), _ = follow(problem, f0_train, f0_test)
    return jnp.moveaxis(train, 0, 1), jnp.moveaxis(test, 0, 1)
