"""The kernel limit with the correction of order 1/n to the mean at finite width n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
from jax.typing import ArrayLike

from largen.errors import InvalidInput, NoTheory, NumericalFailure
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
from largen.theories.kernel_limit import trained_shift
from largen.theories.kernel_limit.limit import KernelLimit, Reduced

WHAT = "the mean at order 1/width"
MOST_PARTICLES = 2**20


@dataclass(frozen=True, kw_only=True)
class FiniteWidth(Theory):
    """The mean over initialisations of networks of width n: the kernel limit plus a shift c/n.

    Under gradient flow, the neurons of one smooth hidden layer are independent at initialisation,
    so that averages over a single neuron give the order 1/n exactly: the effect of the kernel's
    fluctuations at initialisation, and of its movement by O₃ and O₄ (Bahri and Hanin, Les Houches
    lectures, §3.2.2, averaged). Averages are taken over scrambled Sobol points, and the error is
    estimated from independent replicates.

    For any other network with a kernel limit, such as deep, residual and convolutional ones and
    those with kinks, and for gradient descent of any step, momentum and batches, the movement is
    measured in networks of a small width, as the difference of each from the training at its own
    initial kernel; the effect of the kernel's fluctuations is computed for fully connected networks
    (smooth ones, if they are residual) and measured at initialisation for others. The equations are
    in :mod:`largen.theories.kernel_limit.trained_shift`.

    The theory must be requested, ``lg.solve(run, theory=lg.theories.FiniteWidth(width=256))``; by
    default :func:`largen.solve` returns limits of infinite width.

    Parameters
    ----------
    width
        n; None for the limit of infinite width, where all shifts are 0. For smooth networks shifts
        are exactly proportional to 1/n: with ``width=1`` they are c itself.
    particles
        The number of sample neurons of each average, rounded up to a power of two; of networks that
        are measured, the number of sampled fluctuations of their kernel.
    replicates
        The number of independent averages over neurons, at least 2.
    networks, network_width
        The number of trained networks, and their width, from which the movement of kernels is
        measured if there are no averages over neurons. As many of a quarter of the width are
        trained, too. A note says if the shift is not proportional to 1/width between them, as at
        large steps; take a larger ``network_width`` then. With a kink in φ, as in relu, the shift
        is a n^(−1/2) + b/n, to which both widths are fitted; the next power, n^(−3/2), is not in
        the error, and takes a ``network_width`` of about 256.
    key
        The random key.
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
    ``f_train_shift``         as ``f_train``                       mean minus limit
    ``f_train_error``         as ``f_train``                       the standard error of the mean,
                                                                   and of the shift
    ``f_train_of_kernels``    as ``f_train``                       the part of the shift by
                                                                   fluctuations of the kernel at
                                                                   initialisation
    ``ntk``                   ``(sample, sample_2)``               Θ of infinite width
    ``ntk_shift``             ``(step, sample, sample_2)``         mean change of Θ in training,
                                                                   by averages over neurons only
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
    networks: int = 512
    network_width: int = 64
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
            networks=integer("networks", self.networks, at_least=2, at_most=MOST_PARTICLES),
            network_width=integer("network_width", self.network_width, at_least=8),
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
        if _by_neurons(run):
            reason = "one hidden layer is a sum over neurons, whose averages give the order 1/width"
        else:
            trained_shift.check(run, WHAT, posed.problem.form.d)
            reason = "trained networks of small widths show what movement of the kernel adds"
        return Posed(run, reason, posed.problem)

    @interruptible()
    def solve(self, posed: Posed[Reduced], *, throw: bool = True) -> Trajectory:
        """Solve a run in the kernel limit, and add the correction for the finite width."""
        run, P = posed.run, len(posed.run.data.x_train)
        limit = KernelLimit(memory_budget=self.memory_budget).solve(posed, throw=throw)
        if limit.status is not Status.OK:
            return limit
        if not _by_neurons(run):
            return self._with_networks(posed, limit)
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
        kernels, features, moved = (np.stack(part) for part in zip(*drawn, strict=True))
        total, root = kernels + features, len(drawn) ** 0.5
        n = np.inf if self.width is None else self.width
        shifts = total.mean(0) / n, total.std(0, ddof=1) / (n * root), kernels.mean(0) / n
        dtype, axes = run.data.x_train.dtype, ("step", "sample", "sample_2")
        moved = moved[:, :, :P] / n
        errors = moved.std(0, ddof=1) / root
        of_ntk = {
            "ntk_shift": (axes, moved.mean(0).astype(dtype)),
            "ntk_shift_error": (axes, errors.astype(dtype)),
        }
        return self._trajectory(posed, limit, shifts, of_ntk)

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

    def _with_networks(self, posed: Posed[Reduced], limit: Trajectory) -> Trajectory:
        """Add the shift that networks of a small width have."""
        with jax.enable_x64(True), reporter(self.progress, WHAT) as report:
            shift = trained_shift.shift_of(
                posed.run,
                limit,
                self.network_width,
                self.networks,
                self.particles,
                random_key(self.key),
                report,
            )
        wide, narrow = shift.widths
        note = f"measured in {self.networks} networks each of width {wide} and {narrow}"
        if shift.kinked:
            note += ": the kink makes a part of order width^(-1/2)"
        else:
            note += f"; next order {shift.next_order:.1%} of the shift at width {wide}"
            if shift.next_order > trained_shift.LARGE_NEXT_ORDER:
                note += ", which is not small: take a larger network_width"
        n = np.inf if self.width is None else self.width
        return self._trajectory(posed, limit, shift.at(n), {}, note)

    def _trajectory(
        self,
        posed: Posed[Reduced],
        limit: Trajectory,
        # The shift, its error, and the part of fluctuating kernels, (time, row).
        shifts: tuple[np.ndarray, np.ndarray, np.ndarray],
        extra: dict[str, Any],
        *notes: str,
    ) -> Trajectory:
        run, P = posed.run, len(posed.run.data.x_train)
        dtype, out = run.data.x_train.dtype, ("output",) if run.output_shape else ()
        extra = {"ntk": (("sample", "sample_2"), limit.ntk), **extra}
        means = []
        for name, axis, rows in (
            ("f_train", "sample", slice(P)),
            ("f_test", "test_sample", slice(P, None)),
        ):
            start, axes = getattr(limit, name), ("step", axis, *out)
            parts = (each[:, rows].reshape(start.shape).astype(dtype) for each in shifts)
            named = dict(zip(("shift", "error", "of_kernels"), parts, strict=True))
            extra |= {f"{name}_{what}": (axes, part) for what, part in named.items()}
            means.append(start + named["shift"])
        at = "at infinite width" if self.width is None else f"at width {self.width}"
        notes = (f"means over initialisations {at}, to order 1/width", *notes)
        return Trajectory.of(
            run, *means, theory=self.name, reason=posed.reason, extra=extra, notes=notes
        )


def _by_neurons(run: Run) -> bool:
    """Whether averages over single neurons give the order 1/n."""
    try:
        mean_shift.check(run, WHAT)
        check_smooth(run.net, WHAT)
        closed_form.check(run, WHAT)
    except (NoTheory, InvalidInput):
        return False
    return True
