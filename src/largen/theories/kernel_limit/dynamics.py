"""A run in the kernel limit as a problem in function space, and the choice of its solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from largen.kernels.modes import Factors, decompose, descent_factors, flow_factors, outputs
from largen.parameterizations import momentum_of
from largen.runs import Run
from largen.theories.kernel_limit import observables
from largen.theories.kernel_limit.descent import Arrays, Problem, descend


class KernelProblem(NamedTuple):
    """A run and its kernels, in float64."""

    run: Run  # the training run
    # Covariance of initial outputs on training samples, then test samples, (P + M, P + M).
    nngp: Any
    # ntk, ntk_test: Θ between training samples (P, P), and between test and training samples (M,
    # P).
    ntk: Any
    ntk_test: Any
    starts_at_zero: bool  # whether initial outputs vanish in the limit
    # Under weight decay, Λ, the degree of the output in the weights; see
    # theories.chains.decay.
    degree: int = 1

    @property
    def closed_form(self) -> bool:
        """Whether eigenmodes solve the problem: squared error, full batches and a fixed kernel."""
        run = self.run
        plain = run.loss.linear_residual and run.batches is None
        return plain and not run.optimizer.weight_decay

    @property
    def channels(self) -> int:
        """Number of outputs."""
        return (self.run.output_shape or (1,))[0]

    @property
    def zero_start(self) -> tuple[Any, Any]:
        """Initial outputs of one network that starts from 0, on training and test samples."""
        return (
            jnp.asarray(np.zeros((1, len(self.ntk), self.channels))),
            jnp.asarray(np.zeros((1, len(self.ntk_test), self.channels))),
        )

    @property
    def targets(self) -> Any:
        """Targets, for the squared error with an output axis."""
        y = self.run.data.y_train
        if not self.run.loss.linear_residual:
            return jnp.asarray(np.asarray(y, np.float64 if y.dtype.kind == "f" else y.dtype))
        return jnp.asarray(np.asarray(y, np.float64).reshape(len(y), -1))


class Answer(NamedTuple):
    """Mean over initialisations, (step, sample, output), and further variables, in float64."""

    # f_train, f_test: the mean outputs on training and test samples.
    f_train: Any
    f_test: Any
    extra: dict[str, Any]  # further variables, by name
    notes: tuple[str, ...] = ()  # notes for the user
    solved: bool = True  # whether the ODE solver reached its tolerance
    largest: float | None = None  # the largest eigenvalue of the tangent kernel, if it is known


def factors(problem: KernelProblem, values: Any) -> Factors:
    """Return the factors of each eigenmode at every time index of the trajectory."""
    run, samples = problem.run, len(problem.ntk)
    if run.steps is None:
        times = np.asarray(run.times) * (run.optimizer.lr / samples)
        return flow_factors(values, jnp.asarray(times))
    return descent_factors(values, _rates(run) / samples, momentum(run))


def _rates(run: Run) -> Any:
    """Return η₀ of the step after each time index; 0 at the last one, which has no step."""
    return jnp.asarray(np.append(run.rates, 0.0))


def momentum(run: Run) -> float:
    """Return the momentum β; 0 for optimizers without momentum."""
    return momentum_of(run.optimizer)


def follow(
    problem: KernelProblem,
    # f0_train, f0_test: initial outputs, (seed, sample, output).
    f0_train: Any,
    f0_test: Any,
    # A function from theories.kernel_limit.observables.
    observe: Callable[[Any, Any], Any] = observables.everything,
    targets: Any = None,  # targets that replace those of the run
) -> tuple[Any, bool]:
    """Train from given initial outputs; return observables in time, and whether it converged."""
    run, decay = problem.run, problem.run.optimizer.weight_decay
    y = problem.targets if targets is None else targets
    scalar = not run.output_shape and not run.loss.linear_residual
    arrays = Arrays(problem.ntk, problem.ntk_test, y, f0_train, f0_test)
    trained = Problem(run.loss, scalar, observe, problem.degree)
    if run.steps is None:
        from largen.theories.kernel_limit.flow import flow

        times, lr = jnp.asarray(run.times), run.optimizer.lr
        seen, solved = flow(trained, arrays, times, lr, decay)
        return seen, bool(solved)
    batches = None if run.batches is None else jnp.asarray(np.asarray(run.batches))
    return descend(trained, arrays, _rates(run), momentum(run), batches, decay), True


def from_initial(problem: KernelProblem, f0_train: Any, f0_test: Any) -> tuple[Any, Any]:
    """Return training and test outputs (seed, step, sample, output) from given initial outputs."""
    if problem.closed_form:
        modes = decompose(problem.ntk, problem.ntk_test)
        by_mode = factors(problem, modes.values)
        return outputs(modes, by_mode, problem.targets, f0_train, f0_test)
    (train, test), _ = follow(problem, f0_train, f0_test)
    return jnp.moveaxis(train, 0, 1), jnp.moveaxis(test, 0, 1)
