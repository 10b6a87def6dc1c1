"""Predictions from kernels: Gaussian processes given training samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import integer, is_traced, random_key
from largen.errors import InvalidInput, NumericalFailure, one_of
from largen.kernels.masked import Masked, diagonal_of, kernel_of, masked
from largen.kernels.nngp_ntk import kernel, nngp, ntk_kernel
from largen.kernels.prediction.doors import (
    new_inputs,
    noise_variance,
    training_inputs,
    training_targets,
)
from largen.kernels.prediction.factor import Factor, explain, factorise, solve
from largen.kernels.prediction.moments import inferred, trained
from largen.kernels.prediction.padding import filled
from largen.parameterizations import Parameterization

KINDS = {
    "nngp": "NNGP kernel",
    "ntk": "NTK",
    "ntk-gp": "NTK",
}


class Prediction(NamedTuple):
    """What is expected of the outputs at test samples.

    Attributes
    ----------
    mean
        (test_sample,) or (test_sample, output).
    variance
        (test_sample,), the same for each output; without the noise of targets.
    covariance
        (test_sample, test_sample), the same for each output; None unless asked for.
    """

    mean: Any
    variance: Any
    covariance: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """A Gaussian process conditioned on training samples; made by :func:`posterior`.

    Attributes
    ----------
    net, param, kind
        Whose kernel it is.
    x, y, noise, mask
        What it is conditioned on.
    status
        ``"ok"``; ``"singular"`` if the pseudo-inverse had to be taken.
    condition, rank
        Of the training kernel with its noise; the condition number is an estimate.
    """

    net: Layer
    param: Parameterization | None
    kind: str
    x: np.ndarray
    y: np.ndarray
    noise: np.ndarray
    factor: Factor
    weights: np.ndarray
    prior: np.ndarray | None
    mask: np.ndarray | None

    @property
    def status(self) -> str:
        """``"ok"`` or ``"singular"``."""
        return "singular" if self.factor.singular else "ok"

    @property
    def condition(self) -> float:
        """Estimated condition number of kernel and noise on the training samples."""
        return self.factor.condition

    @property
    def rank(self) -> int:
        """Number of eigenvalues that are not lost in rounding."""
        return self.factor.rank

    @property
    def log_likelihood(self) -> float:
        """Log marginal likelihood of the targets, summed over outputs.

        Bahri and Hanin, Les Houches lectures, eq. (33), −½ yᵀA⁻¹y − ½ log det A − (P/2) log 2π
        with A = K + noise. −∞ where A is singular.

        Raises
        ------
        InvalidInput
            For the kind ``"ntk"``: trained networks are no Bayesian posterior.
        """
        if self.kind == "ntk":
            raise InvalidInput(
                "kind: 'ntk' describes trained networks, which have no marginal likelihood; "
                "take 'nngp' or 'ntk-gp'."
            )
        if self.factor.singular:
            return -float("inf")
        y = self.y.reshape(len(self.y), -1)
        constant = self.factor.log_determinant + len(y) * np.log(2 * np.pi)
        return float(-np.sum(y * self.weights) / 2 - y.shape[1] * constant / 2)

    def predict(
        self, x_test: ArrayLike, *, mask: ArrayLike | None = None, covariance: bool = False
    ) -> Prediction:
        """Return mean and variance of the outputs at test samples.

        May be traced by ``jit`` and ``grad`` in ``x_test``, then in the precision of the trace.

        Parameters
        ----------
        x_test
            (test_sample, input).
        mask
            Which positions of each sample are there, (test_sample, *space); all by default.
        covariance
            Whether to return the covariance of every pair of test samples, too.

        Raises
        ------
        InvalidInput
            For inputs that are not finite floats of as many columns as the training inputs.
        """
        x = new_inputs(x_test, self.x)
        new = masked("mask", mask, x)
        if is_traced(x):
            return self._shaped(*self._moments(new, covariance))
        dtype = np.result_type(x.dtype, self.x.dtype, np.float32)
        with jax.enable_x64(True):
            moments = self._moments(filled(new, np.float64), covariance)
        # Also in JAX's float64, which is off outside of this call, only via NumPy.
        rows = len(x)
        mean, variance = (np.asarray(m, dtype)[:rows] for m in moments[:2])
        full = np.asarray(moments[2], dtype)[:rows, :rows] if covariance else None
        moments = mean, variance, full
        if isinstance(x, jax.Array):
            with jax.enable_x64(dtype == np.float64):
                moments = tuple(None if m is None else jnp.asarray(m) for m in moments)
        return self._shaped(*moments)

    def sample(
        self, x_test: ArrayLike, *, key: Any, draws: int = 1, mask: ArrayLike | None = None
    ) -> Any:
        """Draw functions, seen at the test samples.

        Parameters
        ----------
        x_test
            (test_sample, input).
        key
            A JAX key or an integer.
        draws
            How many functions.
        mask
            As in :meth:`predict`.

        Returns
        -------
        array
            (draw, test_sample) or (draw, test_sample, output), without the noise of targets.

        Raises
        ------
        InvalidInput
            As :meth:`predict`; for a wrong key or number.
        """
        draws, key = integer("draws", draws, at_least=1), random_key(key)
        if is_traced(x_test):
            raise InvalidInput("x_test: is traced; draw samples outside of jit and grad.")
        x = np.asarray(new_inputs(x_test, self.x), np.float64)
        mean, _, covariance = self.predict(x, mask=mask, covariance=True)
        dtype = np.result_type(np.asarray(x_test).dtype, self.x.dtype, np.float32)
        with jax.enable_x64(True):
            values, vectors = jnp.linalg.eigh(covariance)
            root = vectors * jnp.sqrt(jnp.maximum(values, 0))
            shape = (draws, len(x), self.weights.shape[1])
            noise = jax.random.normal(key, shape, jnp.float64)
            functions = np.asarray(jnp.einsum("ij,sjc->sic", root, noise))
        functions = (functions + mean.reshape(len(x), -1)).astype(dtype)
        return functions if self.y.ndim == 2 else functions[..., 0]

    def _shaped(self, mean, variance, covariance) -> Prediction:
        return Prediction(mean if self.y.ndim == 2 else mean[:, 0], variance, covariance)

    def _moments(self, new: Masked, full: bool):
        """Return mean (M, C), variance (M,) and covariance (M, M) or None."""
        weights = jnp.asarray(self.weights)
        root, singular = jnp.asarray(self.factor.root), self.factor.singular
        own = jnp.asarray(self._prior(new) if full else diagonal_of(self._prior, new))
        given = filled(Masked(self.x, self.mask))
        if self.kind == "ntk":
            both = kernel_of(kernel, self.net, new, given, param=self.param)
            prior_cross, cross = (jnp.asarray(k[:, : len(self.x)]) for k in both)
            prior = jnp.asarray(self.prior)
            mean, spread = trained(root, singular, weights, cross, own, prior, prior_cross)
        else:
            cross = jnp.asarray(self._prior(new, given)[:, : len(self.x)])
            mean, spread = inferred(root, singular, weights, cross, own)
        if not full:
            return mean, spread, None
        return mean, jnp.maximum(jnp.diagonal(spread), 0), spread

    def _prior(self, first: Masked, second: Masked | None = None):
        """Return the covariance before any training sample was seen."""
        of = ntk_kernel if self.kind == "ntk-gp" else nngp
        return kernel_of(of, self.net, first, second, param=self.param)

    def __repr__(self) -> str:
        return (
            f"Posterior({self.kind!r} on {len(self.x)} samples, {self.status}, condition "
            f"{self.condition:.1e}, {self.net!r})"
        )


def posterior(
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    *,
    kind: str = "nngp",
    noise: ArrayLike = 0.0,
    mask: ArrayLike | None = None,
    param: Parameterization | None = None,
    throw: bool = True,
) -> Posterior:
    """Condition the Gaussian process of an infinitely wide network on training samples.

    With A = K + σ_n² (``"nngp"``) or A = Θ + σ_n² (the others) on the training samples, and *
    for test samples (Bahri and Hanin, Les Houches lectures, eqs. (32) and (90)),

    ==========  =================================  ========================================
    kind        what it describes                  mean and covariance
    ==========  =================================  ========================================
    "nngp"      Bayesian inference with the        K*A⁻¹y, K** − K*A⁻¹K*ᵀ
                network as prior
    "ntk"       networks trained by gradient       Θ*A⁻¹y, K** − K*Bᵀ − BK*ᵀ + BKBᵀ
                flow for ever, over their          with B = Θ*A⁻¹
                initialisations
    "ntk-gp"    Bayesian inference with the        Θ*A⁻¹y, Θ** − Θ*A⁻¹Θ*ᵀ
                linearised network as prior
    ==========  =================================  ========================================

    Parameters
    ----------
    net
        The architecture.
    x, y
        Training samples, (sample, input) or (sample, *space, channel), and targets, (sample,) or
        (sample, output); outputs are independent of one another.
    kind
        See above.
    noise
        σ_n², the variance of the targets' noise: a number that is added to the diagonal of the
        kernel as it is, not relative to its trace, or one for each sample, (sample,). For
        ``"ntk"`` it is the ridge: the loss ½ Σ (f − y)² has the penalty ½ σ_n² |θ − θ(0)|² in
        weights of unit rate.
    mask
        Which positions of each sample are there, Booleans (sample, *space), for samples of
        variable length; all by default. ``predict`` takes one for test samples.
    param
        The parameterization; :func:`largen.ntk` by default. See :func:`largen.kernel` for what
        its NNGP means.
    throw
        Whether a singular kernel is raised, or handled by the pseudo-inverse and told in the
        status.

    Returns
    -------
    Posterior
        With ``predict(x_test)``, ``sample(x_test, key=...)`` and ``log_likelihood``. It is
        computed in float64; results have the dtype of the inputs.

    Raises
    ------
    NumericalFailure
        If the condition number of A exceeds 1e12: the message tells its rank and equal rows. If
        the kernel is not accurate, as :func:`largen.kernel` says, whatever ``throw``.
    InvalidInput
        For wrong shapes, NaN, an unknown kind, or a negative noise.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net = lg.mlp(1, "erf")
    >>> x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    >>> given = lg.posterior(net, x, y, noise=0.01)
    >>> mean, variance, _ = given.predict(np.array([[1.0, 0.0], [3.0, 1.0]]))
    >>> mean.round(3), variance.round(3)
    (array([0.971, 0.888]), array([0.01 , 0.103]))
    >>> given.sample(x, key=0, draws=5).shape
    (5, 2)
    """
    one_of("kind", kind, KINDS)
    rows = training_inputs(x)
    targets = training_targets(y, len(rows))
    variance = noise_variance(noise, len(rows))
    given, prior = masked("mask", mask, rows), None
    if kind == "nngp":
        matrix = kernel_of(nngp, net, filled(given, np.float64), param=param)
    elif kind == "ntk-gp":
        matrix = kernel_of(ntk_kernel, net, filled(given, np.float64), param=param)
    else:
        prior, matrix = kernel_of(kernel, net, filled(given, np.float64), param=param)
    samples = slice(len(rows))
    matrix, prior = matrix[samples, samples], None if prior is None else prior[samples, samples]
    noisy = matrix + np.diag(np.broadcast_to(variance, len(rows)))
    with jax.enable_x64(True):
        factor = factorise(jnp.asarray(noisy))
        columns = jnp.asarray(targets.reshape(len(rows), -1))
        weights = solve(jnp.asarray(factor.root), factor.singular, columns)
    found = Posterior(
        net, param, kind, rows, targets, variance, factor, np.asarray(weights), prior, given.mask
    )
    if factor.singular and throw:
        raise NumericalFailure(f"posterior: {explain(KINDS[kind], factor, noisy, rows)}", found)
    return found
