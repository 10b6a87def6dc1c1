"""Predictions from kernels: Gaussian processes conditioned on training samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import is_traced
from largen.bibliography import cites
from largen.errors import InvalidInput, NumericalFailure
from largen.interrupts import interruptible
from largen.kernels.masked import Masked, diagonal_of, kernel_of, masked
from largen.kernels.nngp_ntk import kernel, nngp_kernel, ntk_kernel
from largen.kernels.padding import fill
from largen.kernels.tiles import check_size
from largen.parameterizations import Parameterization
from largen.regression.checks import (
    check_lazy,
    new_inputs,
    noise_variance,
    sample_weights,
    training_inputs,
    training_targets,
)
from largen.regression.conditioning import Conditioned, Inference, Relaxation, draw, infer
from largen.regression.factor import explain
from largen.results import brief, in_notebooks, plot_result, save_result, with_labels
from largen.scalars import flag, integer, random_key

if TYPE_CHECKING:
    import xarray

KINDS = {"nngp": "NNGP kernel", "ntk": "NTK", "ntk-gp": "NTK"}


class Prediction(NamedTuple):
    """Mean and variance of the outputs at test samples.

    Attributes
    ----------
    mean
        (test_sample,) or (test_sample, output). If several times were requested, this array and the
        two below have a leading axis of times.
    variance
        (test_sample,), the same for each output. It is the variance of the function; a new target
        has the variance of its noise in addition. None where it is not known.
    covariance
        (test_sample, test_sample), the same for each output; None unless requested.
    """

    mean: Any
    variance: Any
    covariance: Any = None

    __repr__ = brief
    _repr_html_ = in_notebooks
    save = save_result
    plot = plot_result

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return all arrays over ``test_sample``, with ``time`` and ``output`` if there are any."""
        import xarray

        if self.variance is None:
            # Without it a second axis may be one of outputs or of times.
            axes = tuple(f"mean_axis_{i}" for i in range(np.ndim(self.mean)))
            axes = axes if len(axes) > 1 else ("test_sample",)
            return xarray.Dataset({"mean": (axes, np.asarray(self.mean))})
        times = ("time",) * (np.ndim(self.variance) - 1)
        output = ("output",) * (np.ndim(self.mean) - np.ndim(self.variance))
        rows = (*times, "test_sample")
        variables: dict[str, Any] = {"mean": ((*rows, *output), np.asarray(self.mean))}
        variables["variance"] = (rows, np.asarray(self.variance))
        if self.covariance is not None:
            variables["covariance"] = ((*rows, "test_sample_2"), np.asarray(self.covariance))
        return xarray.Dataset(variables)

    @classmethod
    def from_xarray(cls, dataset: xarray.Dataset) -> Prediction:
        """Return the prediction that :meth:`to_xarray` turned into a data set."""
        return cls(*(dataset[name].values if name in dataset else None for name in cls._fields))


@cites("lee2018deep", "lee2019wide", "bahri2022les")
@dataclass(frozen=True, eq=False, repr=False)
class Posterior(Conditioned):
    """A Gaussian process conditioned on training samples; made by :func:`largen.posterior`.

    Attributes
    ----------
    net, param, kind
        The network, the parameterization and the kind of posterior.
    x, y, mask
        Training samples, targets and mask.
    noise
        The variance of the targets' noise, as given or chosen, one number or one for each sample.
    status
        ``"ok"``; ``"singular"`` if the pseudo-inverse was used.
    condition, rank
        Condition number (an estimate) and numerical rank of the training kernel plus noise.
    """

    net: Layer
    param: Parameterization | None
    kind: str
    x: np.ndarray
    y: np.ndarray
    mask: np.ndarray | None
    given: Inference | Relaxation

    @property
    def log_likelihood(self) -> float:
        """Log marginal likelihood of the targets, summed over outputs.

        Bahri and Hanin, Les Houches lectures, eq. (33), −½ yᵀA⁻¹y − ½ log det A − (P/2) log 2π
        with A = K + noise. −∞ where A is singular.

        Raises
        ------
        InvalidInput
            For the kind ``"ntk"``: the distribution of trained networks is no Bayesian posterior.
        """
        if self.kind == "ntk" or not isinstance(self.given, Inference):
            raise InvalidInput(
                "kind: 'ntk' describes trained networks, which have no marginal likelihood; "
                "take 'nngp' or 'ntk-gp'."
            )
        return self.given.log_likelihood(self.y.reshape(len(self.y), -1))

    @interruptible()
    def predict(
        self, x_test: ArrayLike, *, mask: ArrayLike | None = None, covariance: bool = False
    ) -> Prediction:
        """Return mean and variance of the outputs at test samples, without the targets' noise.

        In the Bayesian kinds a new target has the variance ``variance + noise``; for the kind
        ``"ntk"`` the variance is that of single networks over initialisations. ``x_test`` may be
        traced by ``jit`` and ``grad``; the results then have the precision of the trace.

        Parameters
        ----------
        x_test
            (test_sample, input).
        mask
            Which positions of each sample are present, (test_sample, *space); all by default.
        covariance
            Whether to return the covariance of every pair of test samples, too.

        Raises
        ------
        InvalidInput
            For inputs that are not finite floats of as many columns as the training inputs.
        OutOfMemory
            If kernels with the training samples do not fit into memory.
        """
        return self._predicted(x_test, mask, flag("covariance", covariance))

    def _predicted(self, x_test: Any, mask: Any, covariance: bool, spread: bool = True) -> Any:
        """Return what :meth:`predict` does; without ``spread`` the mean alone, which is quicker."""
        x = new_inputs(x_test, self.x)
        new = masked("mask", mask, x)
        if not len(x):  # of one sample, whose row is cut off below
            new = Masked(self.x, self.mask).rows(slice(1))
        if is_traced(x):
            found = self._moments(new, covariance, spread)
            return self._shaped(*_cut(found, len(x)))
        dtype = np.result_type(x.dtype, self.x.dtype, np.float32)
        kernels = 4 if self.kind == "ntk" and spread else 2
        check_size("x_test", len(x), len(self.x) + covariance * len(x), kernels, np.float64)
        with jax.enable_x64(True):
            found = self._moments(fill(new, np.float64), covariance, spread)
        # JAX's float64 is off outside of this call, so that results leave it as NumPy arrays.
        moments = [None if m is None else np.asarray(m, dtype) for m in found]
        moments = _cut(moments, len(x))
        if isinstance(x, jax.Array):
            with jax.enable_x64(dtype == np.float64):
                moments = [None if m is None else jnp.asarray(m) for m in moments]
        return self._shaped(*moments)

    def sample(
        self, x_test: ArrayLike, *, key: Any = 0, draws: int = 1, mask: ArrayLike | None = None
    ) -> Any:
        """Draw functions and evaluate them at the test samples.

        Parameters
        ----------
        x_test, mask
            As in :meth:`predict`.
        key
            A JAX key or an integer.
        draws
            Number of functions.

        Returns
        -------
        array
            (draw, test_sample) or (draw, test_sample, output), without the noise of targets.

        Raises
        ------
        InvalidInput
            As for :meth:`predict`; also for a wrong key or number of draws.
        """
        draws, key = integer("draws", draws, at_least=1), random_key(key)
        if isinstance(self.given, Relaxation) and self.given.several:
            raise InvalidInput("time: sample() needs a single time; pass one of them.")
        if is_traced(x_test):
            raise InvalidInput("x_test: is traced; draw samples outside of jit and grad.")
        given = new_inputs(x_test, self.x)
        x = np.asarray(given, np.float64)
        mean, _, covariance = self.predict(x, mask=mask, covariance=True)
        dtype = np.result_type(given.dtype, self.x.dtype, np.float32)
        if not len(x):
            return np.zeros((draws, *mean.shape), dtype)
        functions = draw(mean.reshape(len(x), -1), covariance, key, draws).astype(dtype)
        return functions if self.y.ndim == 2 else functions[..., 0]

    def _shaped(self, mean, variance, covariance) -> Prediction:
        return Prediction(mean if self.y.ndim == 2 else mean[..., 0], variance, covariance)

    def _moments(self, new: Masked, full: bool, spread: bool):
        """Return mean (M, C), variance (M,) and covariance (M, M), or None for the latter two."""
        given = fill(Masked(self.x, self.mask))
        if not spread:
            of = nngp_kernel if self.kind == "nngp" else ntk_kernel
            cross = kernel_of(of, self.net, new, given, param=self.param)
            return self.given.mean(cross[:, : len(self.x)]), None, None
        prior_of_new = self._prior(new) if full else diagonal_of(self._prior, new)
        if self.kind == "ntk":
            both = kernel_of(kernel, self.net, new, given, param=self.param)
            prior_cross, cross = (k[:, : len(self.x)] for k in both)
        else:
            cross, prior_cross = self._prior(new, given)[:, : len(self.x)], None
        mean, own = self.given.moments(cross, prior_of_new, prior_cross)
        if not full:
            return mean, own, None
        return mean, jnp.maximum(jnp.diagonal(own, axis1=-2, axis2=-1), 0), own

    def _prior(self, first: Masked, second: Masked | None = None):
        of = ntk_kernel if self.kind == "ntk-gp" else nngp_kernel
        return kernel_of(of, self.net, first, second, param=self.param)

    def __repr__(self) -> str:
        return (
            f"Posterior({self.kind!r} on {len(self.x)} samples, {self.status}, condition "
            f"{self.condition:.1e}, {self.net!r})"
        )


def _cut(moments: Any, rows: int) -> list[Any]:
    """Return the first rows of mean, variance and covariance, each of which may be None."""
    cuts = np.s_[..., :rows, :], np.s_[..., :rows], np.s_[..., :rows, :rows]
    return [None if m is None else m[cut] for m, cut in zip(moments, cuts, strict=True)]


def fixed_posterior(
    net: Any,
    x: Any,
    y: Any,
    kind: str,
    noise: Any,
    weights: Any = None,
    mask: Any = None,
    param: Any = None,
    throw: bool = True,
) -> Posterior:
    """Return the posterior of a fixed kernel, for arguments of :func:`largen.posterior`."""
    throw = flag("throw", throw)
    rows = training_inputs(x)
    targets = training_targets(y, len(rows))
    given, variance = masked("mask", mask, rows), noise
    if not isinstance(noise, str):
        variance = noise_variance(noise, len(rows))
    weight = None if weights is None else sample_weights(weights, len(rows))
    if weight is not None:
        kept = weight > 0
        given, targets, weight = given.rows(kept), targets[kept], weight[kept]
        if np.ndim(variance):
            variance = np.asarray(variance)[kept]
    matrix, prior = matrices(net, given, kind, param)
    inferred = infer(
        matrix, prior, targets.reshape(len(targets), -1), variance, weight, kind != "ntk"
    )
    result = Posterior(net, param, kind, given.x, targets, given.mask, inferred)
    if inferred.factor.singular and throw:
        words = explain(KINDS[kind], inferred.factor, matrix, inferred.noise, weight, given.x)
        raise NumericalFailure(f"posterior: {words}", result)
    return result


def matrices(
    net: Layer, given: Masked, kind: str, param: Parameterization | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the kernel of training samples, and for ``"ntk"`` their NNGP kernel as well."""
    check_lazy(param)
    # Kernels, the sum with the noise, its factor, and what the factorisation works with.
    check_size("x", len(given.x), len(given.x), 6 if kind == "ntk" else 4, np.float64)
    of = {"nngp": nngp_kernel, "ntk": kernel, "ntk-gp": ntk_kernel}[kind]
    kernels = kernel_of(of, net, fill(given, np.float64), param=param)
    prior, matrix = kernels if kind == "ntk" else (None, kernels)
    seen = slice(len(given.x))
    return np.asarray(matrix)[seen, seen], None if prior is None else np.asarray(prior)[seen, seen]
