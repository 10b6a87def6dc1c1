"""The kernel limit with the correction of order 1/n to the mean at finite width n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
from jax.typing import ArrayLike

from largen.errors import NumericalFailure
from largen.expectations.quasi_random import normal_points
from largen.finite_width.training import closed_form, mean_shift
from largen.finite_width.training.smooth import check_smooth
from largen.interrupts import interruptible
from largen.memory import MEMORY_BUDGET
from largen.networks import finite_network
from largen.progress import Report, check_progress, reporter
from largen.runs import Posed, Run, Status, Theory, Trajectory
from largen.runs.theory import set_fields
from largen.scalars import integer, numpy_generator, random_key, real
from largen.theories.kernel_limit.limit import KernelLimit, Reduced

WHAT = "the mean at order 1/width"
MOST_PARTICLES = 2**20


@dataclass(frozen=True, kw_only=True)
class FiniteWidth(Theory):
    """The mean over initialisations of networks of width n: the kernel limit plus a shift c/n.

    This theory covers one hidden layer in NTK parameterization. The neurons are independent at
    initialisation, so that averages over a single neuron give the order 1/n exactly: the effect of
    the kernel's fluctuations at initialisation, and of its movement by O₃ and O₄ (Bahri and Hanin,
    Les Houches lectures, §3.2.2, averaged). Averages are taken over scrambled Sobol points, and the
    error is estimated from independent replicates.

    The theory must be requested, ``lg.solve(run, theory=lg.theories.FiniteWidth(width=256))``; by
    default :func:`largen.solve` returns limits of infinite width.

    Parameters
    ----------
    width
        n; None for the limit of infinite width, where all shifts are 0. Shifts are exactly
        proportional to 1/n: with ``width=1`` they are c itself.
    particles
        The number of sample neurons of each average, rounded up to a power of two.
    replicates
        The number of independent averages, at least 2.
    key
        The random key of the Sobol points.
    memory_budget
        The number of bytes that the computation may take.
    progress
        Whether to show a progress bar; by default in terminals, after two seconds.

    Notes
    -----
    In the trajectory ``f_train`` and ``f_test`` are means over networks of width n, and losses are
    those of the mean outputs. All variables have the units of the outputs or of Θ.

    ========================  ===================================  =================================
    further variable          axes                                 meaning
    ========================  ===================================  =================================
    ``f_train_shift``         as ``f_train``                       c/n, mean minus limit
    ``f_train_error``         as ``f_train``                       the standard error of the mean,
                                                                   and of the shift
    ``f_train_of_kernels``    as ``f_train``                       the part of the shift by
                                                                   fluctuations of the kernel at
                                                                   initialisation
    ``ntk``                   ``(sample, sample_2)``               Θ of infinite width
    ``ntk_shift``             ``(step, sample, sample_2)``         mean change of Θ in training
    ``ntk_shift_error``       ``(step, sample, sample_2)``         its standard error
    ========================  ===================================  =================================

    and the same for ``f_test``. Errors do not include the next order, n⁻².

    Raises
    ------
    InvalidInput
        For an invalid option.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> flow = {"optimizer": lg.gradient_flow(2.0), "times": [1.0, 2.0]}
    >>> run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), data, **flow)
    >>> mean = lg.solve(run, theory=lg.theories.FiniteWidth(width=100, particles=256))
    >>> bool(np.allclose(mean.f_train, lg.solve(run).f_train + mean.f_train_shift))
    True
    """

    name: ClassVar[str] = "kernel, order 1/width"
    papers: ClassVar[tuple[str, ...]] = ("bahri2022les",)
    random_outputs: ClassVar[bool] = True

    width: int | None = None
    particles: int = 2**12
    replicates: int = 8
    key: Any = 0
    memory_budget: float = MEMORY_BUDGET
    progress: bool | Report | None = None

    def __post_init__(self):
        particles = integer("particles", self.particles, at_least=2, at_most=MOST_PARTICLES)
        set_fields(
            self,
            width=None if self.width is None else integer("width", self.width, at_least=1),
            particles=1 << (particles - 1).bit_length(),
            replicates=integer("replicates", self.replicates, at_least=2),
            memory_budget=real("memory_budget", self.memory_budget, above=0),
        )
        random_key(self.key)
        check_progress(self.progress)

    @classmethod
    def pose(cls, run: Run) -> Posed[Reduced]:
        """Return the problem of the kernel limit, for a network that this theory covers.

        Raises
        ------
        NoTheory
            If the theory does not cover the run; the message says why.
        NoRule
            For a layer that has no kernel.
        """
        posed = KernelLimit.pose(run)
        mean_shift.check(run, WHAT)
        check_smooth(run.net, WHAT)
        closed_form.check(run, WHAT)
        reason = "one hidden layer is a sum over neurons, whose averages give the order 1/width"
        return Posed(run, reason, posed.problem)

    @interruptible()
    def solve(self, posed: Posed[Reduced], *, throw: bool = True) -> Trajectory:
        """Solve a run in the kernel limit, and add the correction for the finite width."""
        run, P = posed.run, len(posed.run.data.x_train)
        limit = KernelLimit(memory_budget=self.memory_budget).solve(posed, throw=throw)
        if limit.status is not Status.OK:
            return limit
        kernel = np.concatenate([limit.ntk, limit.ntk_test]).astype(np.float64)
        prior, y = limit.nngp.astype(np.float64), np.asarray(run.data.y_train, np.float64)
        rates = np.linalg.eigvalsh(kernel[:P])
        if rates[0] * closed_form.LARGEST_CONDITION < rates[-1]:
            failed = limit.with_status(Status.SINGULAR)
            if throw:
                raise NumericalFailure(
                    f"{WHAT}: eigenvalues of the kernel range from {rates[0]:.2g} to "
                    f"{rates[-1]:.2g}, by which it is divided: leave out samples that are alike.",
                    failed,
                )
            return failed
        times, drawn = run.times * run.optimizer.lr / P, []
        outputs = run.output_shape[0] if run.output_shape else None
        one = finite_network(run.net, run.param, width=1, inputs=run.data.inputs, outputs=outputs)
        x, given = run.data.x.astype(np.float64), (kernel, prior, y.reshape(P), times)
        with jax.enable_x64(True), reporter(self.progress, WHAT) as report:
            for normals in self._points(one.parameters):
                averages = mean_shift.averages(one, x, P, normals, self.memory_budget)
                drawn.append(mean_shift.shift_of(averages, *given))
                report(len(drawn), self.replicates)
        return self._trajectory(posed, limit, drawn)

    def condition(
        self, limit: Trajectory, f0_train: ArrayLike, f0_test: ArrayLike
    ) -> tuple[Any, Any]:
        """Return the predictions of the infinite-width limit for networks of known outputs."""
        return KernelLimit().condition(limit, f0_train, f0_test)

    def _points(self, dimensions: int):
        """Yield standard Gaussian numbers, (sample neuron, parameter), for each replicate."""
        rng = numpy_generator(self.key)
        for _ in range(self.replicates):
            yield normal_points(self.particles, dimensions, rng)

    def _trajectory(self, posed: Posed[Reduced], limit: Trajectory, drawn: list) -> Trajectory:
        run, P = posed.run, len(posed.run.data.x_train)
        dtype, out = run.data.x_train.dtype, ("output",) if run.output_shape else ()
        kernels, features, moved = (np.stack(part) for part in zip(*drawn, strict=True))
        root, n = len(drawn) ** 0.5, np.inf if self.width is None else self.width
        extra: dict[str, Any] = {"ntk": (("sample", "sample_2"), limit.ntk)}
        means = []
        for name, axis, rows in (
            ("f_train", "sample", slice(P)),
            ("f_test", "test_sample", slice(P, None)),
        ):
            start = getattr(limit, name)

            def shaped(array: np.ndarray, like: np.ndarray = start) -> np.ndarray:
                return (array.reshape(like.shape) / n).astype(dtype)

            total = (kernels + features)[:, :, rows]
            error = shaped(total.std(0, ddof=1) / root)
            shift, axes = shaped(total.mean(0)), ("step", axis, *out)
            extra |= {
                f"{name}_shift": (axes, shift),
                f"{name}_of_kernels": (axes, shaped(kernels[:, :, rows].mean(0))),
                f"{name}_error": (axes, error),
            }
            means.append(start + shift)
        shift = (moved[:, :, :P] / n).astype(dtype)
        axes = ("step", "sample", "sample_2")
        extra["ntk_shift"] = (axes, shift.mean(0))
        extra["ntk_shift_error"] = (axes, shift.std(0, ddof=1) / dtype.type(root))
        at = "at infinite width" if self.width is None else f"at width {self.width}"
        notes = (f"means over initialisations {at}, to order 1/width",)
        return Trajectory.of(
            run, *means, theory=self.name, reason=posed.reason, extra=extra, notes=notes
        )
