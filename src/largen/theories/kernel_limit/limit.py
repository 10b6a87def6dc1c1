"""The kernel limit: networks so wide that their features stay fixed while they train.

Outputs then obey df_μ/dt = (η₀/P) Σ_ν Θ_μν Δ_ν with the tangent kernel Θ of initialisation (Bahri
and Hanin, Les Houches lectures, eqs. (87)-(90)), and start as a Gaussian process whose covariance
is the NNGP kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.interrupts import interruptible
from largen.kernels.accuracy import (
    inaccuracy,
    infinite,
    sizes_of,
    warn_of_lost_digits,
    with_suitable_methods,
)
from largen.kernels.lower import Lowered, lower
from largen.kernels.modes import critical_rate
from largen.kernels.nngp_ntk import concrete_kernels, nngp_scale
from largen.kernels.tiles import check_size, fitting, most_positions
from largen.memory import MEMORY_BUDGET, check_fits
from largen.parameterizations import CanonicalForm, canonical_form
from largen.programs import Affine
from largen.progress import Report, check_progress, reporter
from largen.runs import Posed, Run, Status, Theory, Trajectory
from largen.runs.theory import initial_outputs, set_fields
from largen.scalars import flag, integer, random_key, real
from largen.theories.chains.decay import degree
from largen.theories.kernel_limit.dynamics import Answer, KernelProblem, from_initial, momentum
from largen.theories.kernel_limit.prior import draw, square_root
from largen.theories.kernel_limit.squared_error import solve_squared_error


class Reduced(NamedTuple):
    """A run at infinite width: its constants of order one, and the network of kernels."""

    form: CanonicalForm
    lowered: Lowered  # the network in the form that the kernel recursion takes
    degree: int  # under weight decay, the degree of the output in the weights


@dataclass(frozen=True, kw_only=True)
class KernelLimit(Theory):
    """The kernel limit: features stay fixed, and outputs follow the neural tangent kernel.

    It is the limit of runs with γ = γ₀Nᵈ and 0 ≤ d < ½, such as those in :func:`largen.ntk`: at
    d = 0 outputs are of order one at initialisation, and for 0 < d < ½ they start from 0.

    For the squared error the solution is exact up to rounding: by eigenmodes of the tangent kernel
    for gradient flow and for full-batch steps with momentum, and by the recursion in function space
    for minibatches and for weight decay. For other losses the recursion (or the ODE, to 1e-9) is
    solved for many draws of the initial outputs, and the mean has a Monte Carlo error.

    Parameters
    ----------
    std
        Whether to compute standard deviations over initialisations for the squared error, at a
        cost of P²(P + M) multiplications a step for P training and M test samples.
    covariance
        Whether to keep full covariances over initialisations (squared error only).
    draws
        Number of draws of the initial outputs for other losses, in pairs of opposite sign.
    rtol
        Target relative error of the outputs, |error|/|f|, for losses other than the squared error:
        up to 2¹⁴ draws are made until it is reached. By default the number of draws is ``draws``,
        whatever the error.
    key
        The key of the draws: a JAX key or an integer.
    kernel_rtol
        Accepted relative error of the kernels' Gaussian expectations, 1e-8 by default.
    memory_budget
        Bytes that intermediate layers of the kernels may take: see :func:`largen.kernel`.
    progress
        Whether to show the draws made, of those that ``rtol`` takes; by default in terminals, after
        two seconds.

    Notes
    -----
    In the trajectory ``f_train`` and ``f_test`` are means over initialisations, and losses are
    those of the mean outputs. Standard deviations and covariances are over initialisations.

    =======================  ======================================  =======================
    further variable         axes                                    meaning
    =======================  ======================================  =======================
    ``ntk``                  ``(sample, sample_2)``                  Θ
    ``ntk_test``             ``(test_sample, sample)``               Θ, test to train
    ``nngp``                 ``(sample, sample_2)``                  covariance of f₀
    ``f_train_std``          as ``f_train``                          standard deviation
    ``f_test_std``           as ``f_test``                           standard deviation
    ``f_train_error``        as ``f_train``, not for ``mse``         standard error of mean
    ``f_test_error``         as ``f_test``, not for ``mse``          standard error of mean
    ``f_train_covariance``   ``(step, sample, sample_2)``            covariance, on request
    ``f_test_covariance``    ``(step, test_sample, test_sample_2)``  covariance, on request
    =======================  ======================================  =======================

    Several outputs are independent at initialisation; with the squared error they stay so, and
    covariances are those of each output. The status is ``"diverged"`` if the solution diverges (the
    message names the critical learning rate), ``"inaccurate"`` if the expectations miss
    ``kernel_rtol``, and ``"overflow"`` if the kernels overflow.

    Raises
    ------
    InvalidInput
        For an invalid option.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "relu"), lg.ntk(), data, optimizer=lg.gd(lr=0.5), steps=100)
    >>> limit = lg.solve(run, theory=lg.theories.KernelLimit(std=True))
    >>> limit.f_train[-1].round(3), limit.f_train_std[0].round(3)
    (array([ 0.994, -0.989,  0.994]), array([0.408, 0.408, 0.408]))
    """

    name: ClassVar[str] = "kernel"
    papers: ClassVar[tuple[str, ...]] = ("jacot2018neural", "lee2019wide", "bahri2022les")
    random_outputs: ClassVar[bool] = True
    tangent: ClassVar[str] = "ntk"  # the name of the kernel that outputs follow

    std: bool = True
    covariance: bool = False
    draws: int = 128
    rtol: float | None = None
    key: Any = 0
    kernel_rtol: float | None = None
    memory_budget: float = MEMORY_BUDGET
    progress: bool | Report | None = None

    def __post_init__(self):
        set_fields(
            self,
            std=flag("std", self.std),
            covariance=flag("covariance", self.covariance),
            draws=2 * (integer("draws", self.draws, at_least=4) // 2),
            rtol=_optional("rtol", self.rtol),
            kernel_rtol=_optional("kernel_rtol", self.kernel_rtol),
            memory_budget=real("memory_budget", self.memory_budget, above=0),
        )
        random_key(self.key)
        check_progress(self.progress)

    @classmethod
    def pose(cls, run: Run) -> Posed[Reduced]:
        """Return the run's constants of order one, and its network for the kernel recursion.

        Raises
        ------
        NoTheory
            If the kernel limit does not cover the run; the message says why.
        NoRule
            For a layer that has no kernel.
        """
        form = canonical_form(
            run.param, run.net, run.optimizer, run.data.inputs, infinite_depth=True
        )
        if form.d < 0:
            raise NoTheory(f"initial outputs grow with the width, as N^{-form.d}.")
        if form.d >= Fraction(1, 2):
            raise NoTheory(
                f"γ grows as N^{form.d}: features move, and the tangent kernel with them; the "
                "kernel limit needs a power below 1/2, as in lg.ntk()."
            )
        still, power = "features stand still", 1
        if run.optimizer.weight_decay:
            still = "features only shrink with the weights that decay"
            power = degree(run.program, form)
        if not isinstance(run.program.operations[-1], Affine):
            raise NoTheory(
                f"the network {run.net!r} does not end in a Dense() layer: its outputs are not "
                "Gaussian, and the tangent kernel moves."
            )
        if form.d == 0:
            reason = f"γ does not grow with the width, so {still} (kernel limit)"
        else:
            reason = f"γ grows as N^{form.d}, slower than N^1/2: {still}, outputs start from 0"
        return Posed(run, reason, Reduced(form, lowered_for(run, form), power))

    @interruptible()
    def solve(self, posed: Posed[Reduced], *, throw: bool = True) -> Trajectory:
        """Solve a run in the kernel limit."""
        run = posed.run
        if self.covariance and not run.loss.linear_residual:
            raise InvalidInput(f"covariance: only for the mse loss, got the loss {run.loss.name}.")
        _check_results(run, self.covariance)
        # Overflows are told by the status.
        quiet = np.errstate(over="ignore", invalid="ignore")
        with jax.enable_x64(True), quiet, reporter(self.progress, "kernel limit") as report:
            problem = problem_of(posed, self.memory_budget)
            if run.loss.linear_residual:
                answer = solve_squared_error(problem, self.std, self.covariance)
            else:
                from largen.theories.kernel_limit.by_draws import solve_by_draws

                key = random_key(self.key)
                answer = solve_by_draws(problem, self.draws, key, self.rtol, report)
            limit = self._trajectory(problem, posed.reason, answer)
            lowered = posed.problem.lowered
            failure, status = _failure(problem, lowered, answer, limit, self.kernel_rtol)
        if failure is None:
            return limit
        limit = limit.with_status(status)
        if throw:
            raise NumericalFailure(failure, limit)
        return limit

    def condition(
        self, limit: Trajectory, f0_train: ArrayLike, f0_test: ArrayLike
    ) -> tuple[Any, Any]:
        """Return the limit's predictions for networks whose initial outputs are known.

        In the kernel limit a network's initial output is a random function of order one, and given
        that function the training is deterministic.

        Arguments are those of :meth:`largen.theories.Theory.condition`; outputs are NumPy arrays in
        the precision of ``f0_train``.

        Raises
        ------
        InvalidInput
            For a limit that was loaded from a file, which does not contain the run.
        """
        run, f0_train, f0_test = initial_outputs(limit, f0_train, f0_test)
        with jax.enable_x64(True):
            problem = problem_of(self.pose(run), self.memory_budget)
            start = (
                jnp.asarray(f0.reshape(*f0.shape[:2], problem.channels), jnp.float64)
                for f0 in (f0_train, f0_test)
            )
            train, test = (np.asarray(f, f0_train.dtype) for f in from_initial(problem, *start))
        return (train, test) if run.output_shape else (train[..., 0], test[..., 0])

    def initial_outputs(self, run: Run, draws: int, key: Any) -> tuple[Any, Any]:
        """Draw initial outputs, in pairs of opposite sign; they are 0 if they vanish in the limit.

        Parameters
        ----------
        run
            A run in the kernel limit.
        draws
            The number of draws.
        key
            A JAX key.

        Returns
        -------
        tuple
            Outputs (seed, sample[, output]) and (seed, test_sample[, output]), in the precision of
            the run's data.
        """
        with jax.enable_x64(True):
            problem = problem_of(self.pose(run), self.memory_budget)
            covariance = problem.nngp * (not problem.starts_at_zero)
            root = square_root(covariance, len(problem.ntk))
            both = draw(random_key(key), root, -(-draws // 2), problem.channels)
            train, test = (np.asarray(f[:draws], run.data.x_train.dtype) for f in both)
        return (train, test) if run.output_shape else (train[..., 0], test[..., 0])

    def _trajectory(self, problem: KernelProblem, reason: str, answer: Answer) -> Trajectory:
        """Return an answer as a trajectory."""
        run, samples = problem.run, len(problem.ntk)
        out = ("output",) if run.output_shape else ()
        axes = {
            self.tangent: ("sample", "sample_2"),
            f"{self.tangent}_test": ("test_sample", "sample"),
            "nngp": ("sample", "sample_2"),
            "f_train_covariance": ("step", "sample", "sample_2"),
            "f_test_covariance": ("step", "test_sample", "test_sample_2"),
        }
        axes |= {f"f_train_{what}": ("step", "sample", *out) for what in ("std", "error")}
        axes |= {f"f_test_{what}": ("step", "test_sample", *out) for what in ("std", "error")}

        def stored(name: str, array: Any) -> np.ndarray:
            array = np.asarray(array, run.data.x_train.dtype)
            return array if array.ndim == len(axes[name]) else array[..., 0]

        variables = {
            self.tangent: problem.ntk,
            f"{self.tangent}_test": problem.ntk_test,
            "nngp": problem.nngp[:samples, :samples],
            **answer.extra,
        }
        outputs = (np.asarray(f, run.data.x_train.dtype) for f in (answer.f_train, answer.f_test))
        f_train, f_test = (f if out else f[..., 0] for f in outputs)
        return Trajectory.of(
            run,
            f_train,
            f_test,
            theory=self.name,
            reason=reason,
            extra={name: (axes[name], stored(name, array)) for name, array in variables.items()},
            notes=answer.notes,
        )


def _optional(name: str, value: Any) -> float | None:
    """Check a tolerance that may be None."""
    return None if value is None else real(name, value, above=0)


def _check_results(run: Run, covariance: bool) -> None:
    """Check that outputs at all times, and their covariances, fit into memory."""
    times, outputs = len(run.times), (run.output_shape or (1,))[0]
    sizes = len(run.data.x_train), len(run.data.x_test)
    each = 6 * outputs * sum(sizes) + covariance * 3 * sum(size**2 for size in sizes)
    what = "outputs and covariances" if covariance else "outputs"
    advice = "Leave covariance out, or take fewer samples or steps."
    check_fits(8.0 * times * each, f"run: {what} at {times} times", advice)


def lowered_for(run: Run, form: CanonicalForm) -> Lowered:
    """Return the network of a run for the kernel recursion, with some constants."""
    lowered = lower(run.net, form, run.data.inputs, constant=True)
    return with_suitable_methods(lowered, (run.data.x,))


def problem_of(posed: Posed[Reduced], memory_budget: float = MEMORY_BUDGET) -> KernelProblem:
    """Return the problem in function space that a run poses in the limit."""
    run, (form, lowered, power) = posed.run, posed.problem
    x, samples = run.data.x.astype(np.float64), len(run.data.x_train)
    check_size("run: NNGP and NTK", len(x), len(x), 2, np.float64)
    tile = fitting(lowered.program, most_positions(run.net, run.data.inputs), memory_budget)
    warn_of_lost_digits([sizes_of(x)])
    kernels = concrete_kernels(lowered, nngp_scale(form), x, None, np.float64, largest_tile=tile)
    with jax.enable_x64(True):
        nngp, ntk = (jnp.asarray(kernel) for kernel in kernels)
        parts = ntk[:samples, :samples], ntk[samples:, :samples]
    return KernelProblem(run, nngp, *parts, form.d > 0, power)


def _failure(
    problem: KernelProblem, lowered: Lowered, answer: Answer, limit: Trajectory, rtol: float | None
) -> tuple[str | None, Status]:
    run = problem.run
    words = inaccuracy(lowered, (run.data.x,), rtol)
    if words is not None:
        return words, Status.INACCURATE
    words = infinite((problem.nngp, problem.ntk, problem.ntk_test), run.data.x_train.dtype)
    if words is not None:
        return words, Status.OVERFLOW
    return _divergence(problem, answer, limit), Status.DIVERGED


def _divergence(problem: KernelProblem, answer: Answer, limit: Trajectory) -> str | None:
    """Return a message on the divergence of the dynamics, or None if it is bounded."""
    run = problem.run
    if run.steps is None:
        if answer.solved and limit.status is not Status.DIVERGED:
            return None
        return (
            "gradient flow was not solved to its tolerance: its fastest and slowest modes are too "
            "far apart. Take earlier times, or steps of gradient descent."
        )
    beta, samples = momentum(run), len(problem.ntk)
    largest = answer.largest or float(jnp.linalg.eigvalsh(problem.ntk)[-1])
    critical = critical_rate(largest / samples, beta)
    advice = (
        f"lr = {run.rates.max():g}, and full-batch descent on the squared error diverges above "
        f"the critical learning rate 2{'(1 + momentum)' if beta else ''}/(λ_max/P) = "
        f"{critical:.4g}. Take a smaller lr."
    )
    steady = bool((run.rates == run.rates[0]).all())
    if problem.closed_form and steady:
        return f"gradient descent diverges: {advice}" if run.rates[0] > critical else None
    start, end = (np.abs(limit.f_train[s]).max() for s in (0, -1))
    scale = max(start, np.abs(run.data.y_train).max(), 1.0)
    if limit.status is Status.DIVERGED or (run.loss.linear_residual and end > 1e3 * scale):
        return f"the dynamics diverges: {advice}"
    return None
