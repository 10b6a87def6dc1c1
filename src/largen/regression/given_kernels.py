"""Predictions from kernels given as matrices: empirical, stored, or the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from largen.arrays import floating
from largen.bibliography import cites
from largen.errors import InvalidInput, NumericalFailure, one_of
from largen.interrupts import interruptible
from largen.regression.checks import noise_variance, sample_weights, training_targets
from largen.regression.conditioning import Conditioned, Inference, Relaxation, draw, infer, relax
from largen.regression.early_stopping import singular_at_infinity, training_times
from largen.regression.factor import explain
from largen.regression.gaussian_process import Prediction
from largen.regression.kernel_rows import (
    Targets,
    check_positive,
    join_outputs,
    separate,
    square_kernel,
)
from largen.scalars import flag, integer, random_key


@cites("bahri2022les")
@dataclass(frozen=True, eq=False, repr=False)
class KernelPosterior(Conditioned):
    """Predictions from a kernel matrix; made by the functions of this module.

    Attributes
    ----------
    y
        Targets, (sample,) or (sample, output).
    noise
        The variance of the targets' noise, as given or chosen; 0 for gradient flow.
    status
        ``"ok"``; ``"singular"`` if the pseudo-inverse was used.
    condition, rank
        The condition number and the numerical rank of the kernel plus noise.
    """

    targets: Targets
    bayesian: bool
    given: Inference | Relaxation

    @property
    def y(self) -> np.ndarray:
        """Targets in the shape in which they were given."""
        return self.targets.y

    @property
    def log_likelihood(self) -> float:
        """Log marginal likelihood of the targets, as of :class:`largen.regression.Posterior`.

        Raises
        ------
        InvalidInput
            For trained networks, which have no marginal likelihood.
        """
        if not self.bayesian or not isinstance(self.given, Inference):
            raise InvalidInput("kind: trained networks have no marginal likelihood; take 'gp'.")
        return self.given.log_likelihood(self.targets.columns())

    def predict(self, cross: Any, test: Any = None, *, prior_cross: Any = None) -> Prediction:
        """Return the mean and, if the kernels of test samples are given, the variance.

        Parameters
        ----------
        cross
            The kernel from test to training samples, (test_sample, sample), with trailing axes of
            outputs if the training kernel has them.
        test
            The prior's kernel of test samples: (test_sample,) for K(x, x) only, or
            (test_sample, test_sample) for covariances as well. For trained networks it is the NNGP
            kernel. Coupled outputs need (test_sample, test_sample, output, output).
        prior_cross
            For trained networks the NNGP kernel from test to training samples.

        Returns
        -------
        Prediction
            Without the noise of targets. Variance and covariance are None if ``test`` is not
            given; for coupled outputs they are (test_sample, output) and
            (test_sample, test_sample, output, output).

        Raises
        ------
        InvalidInput
            For shapes that do not fit, NaN, or kernels that are missing.
        """
        cross = self._cross("cross", cross)
        with jax.enable_x64(True):
            if test is None:
                return Prediction(self.targets.shaped(np.asarray(self.given.mean(cross))), None)
            test_prior = self._own(test, len(cross))
            if not self.bayesian:
                if self.given.prior is None or prior_cross is None:
                    raise InvalidInput(
                        "prior_cross: variances of trained networks need the NNGP kernel as well: "
                        "of training samples (prior=), from test to training samples "
                        "(prior_cross=) and of test samples (test=)."
                    )
                prior_cross = self._cross("prior_cross", prior_cross)
                if prior_cross.shape != cross.shape:
                    raise InvalidInput("prior_cross: wanted as many test samples as cross has.")
            mean, spread = map(np.asarray, self.given.moments(cross, test_prior, prior_cross))
        if test_prior.ndim == 1:
            return Prediction(self.targets.shaped(mean), spread)
        variance = np.maximum(np.diagonal(spread, axis1=-2, axis2=-1), 0)
        if self.targets.coupled:
            outputs = self.targets.outputs
            variance = variance.reshape(*variance.shape[:-1], -1, outputs)
            spread = separate(spread, outputs)
        return Prediction(self.targets.shaped(mean), variance, spread)

    def sample(
        self, cross: Any, test: Any, *, key: Any = 0, draws: int = 1, prior_cross: Any = None
    ) -> np.ndarray:
        """Draw functions without the noise of targets, evaluated at test samples.

        Parameters
        ----------
        cross, test, prior_cross
            As in :meth:`predict`; ``test`` must have all pairs of samples.
        key
            A JAX key or an integer.
        draws
            Number of functions.

        Returns
        -------
        array
            (draw, test_sample) or (draw, test_sample, output).

        Raises
        ------
        InvalidInput
            For several times.
        """
        draws, key = integer("draws", draws, at_least=1), random_key(key)
        if isinstance(self.given, Relaxation) and self.given.several:
            raise InvalidInput("time: sample() needs a single time; pass one of them.")
        moments = self.predict(cross, test, prior_cross=prior_cross)
        if moments.covariance is None:
            raise InvalidInput("test: draws need the kernel of all pairs of test samples.")
        if not len(moments.mean):
            return np.zeros((draws, *moments.mean.shape))
        if self.targets.coupled:
            mean, covariance = moments.mean.reshape(-1, 1), join_outputs(moments.covariance)
        else:
            mean, covariance = moments.mean.reshape(len(moments.mean), -1), moments.covariance
        return self.targets.shaped(draw(mean, covariance, key, draws))

    def _cross(self, name: str, kernel: Any) -> np.ndarray:
        y, coupled = self.targets.y, self.targets.coupled
        if kernel is None:
            raise InvalidInput(
                f"{name}: wanted the kernel from test to training samples; to predict the training "
                "samples themselves, pass the kernel of all of them."
            )
        matrix = np.asarray(
            floating(name, kernel, ndim=4 if coupled else 2, no_rows=True), np.float64
        )
        wanted = (len(y), y.shape[1], y.shape[1]) if coupled else (len(y),)
        if matrix.shape[1:] != wanted:
            shape = ", ".join(map(str, ("test_sample", *wanted)))
            raise InvalidInput(f"{name}: wanted ({shape}), got {matrix.shape}.")
        return self.targets.matrix(matrix)

    def _own(self, test: Any, rows: int) -> np.ndarray:
        coupled = self.targets.coupled
        if not rows and np.size(test) == 0:
            return np.zeros((0,) * min(np.ndim(test), 2))
        kernel = np.asarray(floating("test", test, ndim=4 if coupled else (1, 2)), np.float64)
        kernel = join_outputs(kernel) if coupled else kernel
        if kernel.shape not in ((rows,), (rows, rows)):
            raise InvalidInput(
                f"test: does not fit cross of {rows} rows, its shape is {kernel.shape}."
            )
        return kernel

    def __repr__(self) -> str:
        return (
            f"KernelPosterior({len(self.y)} samples, {self.status}, condition {self.condition:.1e})"
        )


@interruptible()
def posterior_from_kernel(
    kernel: Any,
    y: Any,
    *,
    kind: str = "gp",
    noise: Any = 0.0,
    weights: Any = None,
    prior: Any = None,
    throw: bool = True,
) -> KernelPosterior:
    """Condition a Gaussian process, or trained networks, whose kernel is given as a matrix.

    The means and covariances are those of :func:`largen.posterior` (Bahri and Hanin, Les Houches
    lectures, eqs. (32) and (90)), with any kernel in the place of that of infinite width: the
    empirical tangent kernel of a finite network, a stored kernel, or a sum of kernels.

    Parameters
    ----------
    kernel
        The kernel of the training samples, (sample, sample), or (sample, sample, output, output) as
        :func:`largen.networks.empirical_ntk` returns it for several outputs. Arrays on disk are
        read into memory.
    y
        Targets, (sample,) or (sample, output).
    kind
        ``"gp"``, Bayesian inference with the kernel as the prior's covariance; or ``"ntk"``,
        networks with this tangent kernel trained by gradient flow for an infinite time.
    noise, weights
        As in :func:`largen.posterior`; ``noise`` may be ``"auto"``.
    prior
        For ``"ntk"``: the NNGP kernel of the training samples; without it only means are returned.
    throw
        Whether to raise for a singular kernel; otherwise the pseudo-inverse is used and the status
        is ``"singular"``.

    Raises
    ------
    NumericalFailure
        If the condition number of kernel and noise exceeds 1e12.
    InvalidInput
        If the kernel is not symmetric, or with its noise not positive semidefinite, both up to
        relative errors of 1e-6.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    >>> K = lg.nngp_kernel(lg.mlp(1, "erf"), x)
    >>> lg.regression.posterior_from_kernel(K, y, noise=0.01).predict(K).mean.round(3)
    array([ 0.971, -0.971])
    """
    one_of("kind", kind, ("gp", "ntk"))
    throw = flag("throw", throw)
    if kind == "gp" and prior is not None:
        raise InvalidInput("prior: belongs to kind='ntk'; the kernel of 'gp' is the prior.")
    given, weight, matrix, before = _checked("kernel", kernel, y, weights, prior)
    columns, variance = given.columns(), noise
    if not isinstance(noise, str):
        variance = noise_variance(noise, len(given.y))
        variance = given.of_rows(variance) if np.ndim(variance) else variance
    of_rows = None if weights is None else given.of_rows(weight)
    weight = np.ones(1) if of_rows is None else of_rows
    added = 0.0 if isinstance(noise, str) else variance / weight
    check_positive("kernel", matrix, added, float(weight.max()))
    inferred = infer(matrix, before, columns, variance, of_rows, kind == "gp")
    result = KernelPosterior(given, kind == "gp", inferred)
    if inferred.factor.singular and throw:
        words = explain("kernel", inferred.factor, matrix, inferred.noise, of_rows)
        raise NumericalFailure(f"posterior_from_kernel: {words}", result)
    return result


@interruptible()
def flow_posterior_from_kernel(
    ntk: Any, y: Any, *, time: Any, weights: Any = None, prior: Any = None, throw: bool = True
) -> KernelPosterior:
    """Return networks after times of gradient flow with a tangent kernel given as a matrix.

    As :func:`largen.regression.flow_posterior` (Bahri and Hanin, Les Houches lectures, eqs.
    (87)-(90)). Means are f(t) for outputs that start at 0: for a network with initial outputs f₀,
    condition on y − f₀ and add f₀.

    Parameters
    ----------
    ntk
        Θ of the training samples, (sample, sample) or (sample, sample, output, output).
    y
        Targets, (sample,) or (sample, output).
    time, weights
        As in :func:`largen.regression.flow_posterior`: one or several times, also infinite, or
        ``"auto"``.
    prior
        The NNGP kernel of the training samples; without it only means are returned.
    throw
        Whether to raise for a singular kernel at an infinite time.

    Raises
    ------
    InvalidInput
        If a kernel is not symmetric and positive semidefinite, up to relative errors of 1e-6.
    NumericalFailure
        For an infinite time, if the kernel is singular.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> K = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> given = lg.regression.flow_posterior_from_kernel(
    ...     K, np.array([1.0, -1.0]), time=[1.0, np.inf]
    ... )
    >>> given.predict(K).mean.round(3)  # 1 − e^(−t/2), then all
    array([[ 0.393, -0.393],
           [ 1.   , -1.   ]])
    """
    throw = flag("throw", throw)
    given, weight, matrix, before = _checked("ntk", ntk, y, weights, prior)
    check_positive("ntk", matrix)
    columns, of_rows = given.columns(), given.of_rows(weight)
    times = training_times(time, matrix, columns, of_rows)
    if not isinstance(time, str):
        times = times * given.outputs  # the loss is a mean over samples, not over rows
    relaxation = relax(matrix, before, columns, times, of_rows)
    result = KernelPosterior(given, False, relaxation)
    if relaxation.status != "ok" and throw:
        words = singular_at_infinity(relaxation, "Drop equal rows, or take finite times")
        raise NumericalFailure(f"flow_posterior_from_kernel: {words}", result)
    return result


def _checked(
    name: str, kernel: Any, y: Any, weights: Any, prior: Any
) -> tuple[Targets, np.ndarray, np.ndarray, np.ndarray | None]:
    """Return targets, weights of all samples, and the kernels of samples of positive weight."""
    matrix = square_kernel(name, kernel).astype(np.float64)
    targets = training_targets(y, len(matrix))
    coupled = matrix.ndim == 4
    if coupled and targets.shape[1:] != matrix.shape[3:]:
        raise InvalidInput(f"y: wanted {matrix.shape[::2]}, as {name} has it, got {targets.shape}.")
    weight = sample_weights(weights, len(targets))
    given = Targets(targets, weight > 0, coupled)
    before = None
    if prior is not None:
        before = square_kernel("prior", prior).astype(np.float64)
        if before.shape != matrix.shape:
            raise InvalidInput(f"prior: wanted the shape of {name}, {matrix.shape}.")
        before = given.matrix(before, given.kept)
        check_positive("prior", before)
    return given, weight, given.matrix(matrix, given.kept), before
