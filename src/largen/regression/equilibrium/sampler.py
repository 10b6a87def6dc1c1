"""Networks of a width drawn from their posterior, neuron by neuron."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from largen.architectures import Layer
from largen.bibliography import cites
from largen.errors import NoTheory, NumericalFailure
from largen.expectations import ActivationFunction
from largen.interrupts import interruptible
from largen.kernels.tiles import check_size
from largen.parameterizations import Parameterization
from largen.regression.checks import noise_variance, training_inputs, training_targets
from largen.regression.equilibrium.fits import Squares
from largen.regression.equilibrium.network import check_noise, equilibrium_of
from largen.regression.equilibrium.one_layer import proposal_of
from largen.regression.equilibrium.predictions import of_test_samples, test_inputs
from largen.regression.equilibrium.sites import Mixture
from largen.results import brief, in_notebooks, plot_result, save_result, with_labels
from largen.scalars import integer, random_key

if TYPE_CHECKING:
    import xarray

SMALLEST_STEP = 0.05  # of a local move, relative to the prior's deviation; the largest is 1


@cites("lauditi2025adaptive")
class PosteriorSamples(NamedTuple):
    """Averages over networks of a width that were drawn from their posterior.

    Attributes
    ----------
    mean, mean_error
        Mean of f at the test samples, (test_sample, output), and its standard error over chains.
    variance, variance_error
        The variance of f there, and its standard error.
    feature_kernel, feature_kernel_error
        Φ = φ·φ/N of the training samples, (sample, sample), and its standard error.
    acceptance
        Accepted fraction of the moves that replace a neuron; below 0.05 the neurons may not have
        changed between their modes.
    """

    mean: Any
    mean_error: Any
    variance: Any
    variance_error: Any
    feature_kernel: Any
    feature_kernel_error: Any
    acceptance: float

    __repr__ = brief
    _repr_html_ = in_notebooks
    save = save_result
    plot = plot_result

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return all arrays with named axes."""
        pair = ("sample", "sample_2")
        others = {"feature_kernel": pair, "feature_kernel_error": pair, "acceptance": ()}
        return of_test_samples(self._asdict(), others)

    @classmethod
    def from_xarray(cls, dataset: xarray.Dataset) -> PosteriorSamples:
        """Return the averages that :meth:`to_xarray` turned into a data set."""
        found = {name: dataset[name].values for name in cls._fields}
        return cls(**{**found, "acceptance": float(found["acceptance"])})


class Posed(NamedTuple):
    """The samples and the constants of a chain."""

    train: Float[Array, "sample weight"]
    test: Float[Array, "test_sample weight"]
    y: Float[Array, "sample output"]
    noise: Float[Array, " sample"]
    gamma: Float[Array, ""]
    out_std: Float[Array, ""]


class State(NamedTuple):
    """Neurons, and (Φ + κ)⁻¹ of the training samples."""

    xi: Float[Array, "neuron weight"]
    inverse: Float[Array, "sample sample"]


@interruptible()
def sample_posterior(
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    x_test: ArrayLike,
    *,
    width: int,
    noise: ArrayLike,
    param: Parameterization,
    draws: int = 400,
    chains: int = 8,
    key: Any = 0,
) -> PosteriorSamples:
    """Draw networks of one hidden layer from their posterior in mean-field scaling.

    The posterior of :func:`adaptive_posterior` at a width N, exact up to the error of Monte Carlo.
    The read-out is integrated out, so that the neurons' fields are distributed as

        exp(−½ Σ|ξ_i|² − (γ₀²N/2) yᵀ(Φ + κ)⁻¹y) det(Φ + κ)^(−C/2),   Φ = φ·φ/N,

    and each neuron in turn is replaced by a draw of a Gaussian mixture, and moved a little, each
    accepted with its Metropolis probability. Hamiltonian and Langevin dynamics do not replace
    neurons: at strong tilts they do not cross the barriers between a neuron's modes, whose height
    does not depend on the width.

    Parameters
    ----------
    net
        One hidden layer.
    x, y
        Training samples, (sample, input), and targets, (sample,) or (sample, output).
    x_test
        (test_sample, input).
    width
        N, the number of hidden neurons.
    noise, param
        As in :func:`adaptive_posterior`, with noise > 0.
    draws
        Number of networks of a chain, of which the first fifth is left out. Time grows as
        ``chains · draws · width · P²``.
    chains
        Number of independent chains, at least 2, whose spread is the reported error.
    key
        A JAX key or an integer.

    Raises
    ------
    NoTheory
        For networks that :func:`adaptive_posterior` refuses, and for more than one hidden layer.
    NumericalFailure
        If Φ + κ is singular, or outputs overflow.
    InvalidInput
        For wrong shapes, NaN, or a noise that is not positive.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    >>> drawn = lg.regression.sample_posterior(
    ...     lg.mlp(1, "erf"), x, y, x, width=16, noise=0.1, param=lg.mean_field(), draws=50
    ... )
    >>> drawn.mean.shape, drawn.feature_kernel.shape
    ((2,), (2, 2))
    """
    rows = training_inputs(x).astype(np.float64)
    targets = training_targets(y, len(rows))
    test, _ = test_inputs(x_test, rows)
    ridge = check_noise(noise_variance(noise, len(rows)), len(rows), positive=True)
    neurons = integer("width", width, at_least=1)
    count, copies = integer("draws", draws, at_least=10), integer("chains", chains, at_least=2)
    given = random_key(key)
    of = equilibrium_of(net, param, rows)
    if of.hidden > 1:
        raise NoTheory("sample_posterior draws networks of one hidden layer.")
    columns = targets.reshape(len(targets), -1)
    check_size("width", neurons * copies, rows.shape[1] + len(rows), 4, np.float64)
    check_size("draws", count * copies, len(test) * columns.shape[1] + 1, 4, np.float64)
    fit = Squares(columns, ridge, targets.ndim == 1)
    mixture = proposal_of(of, rows, fit, given)
    with jax.enable_x64(True):
        posed = Posed(
            jnp.asarray(of.columns(rows)),
            jnp.asarray(of.columns(test)),
            jnp.asarray(columns),
            jnp.asarray(ridge),
            jnp.asarray(of.gamma, float),
            jnp.asarray(of.out_std, float),
        )
        proposal = Mixture(*(jnp.asarray(part) for part in mixture))  # pyright: ignore[reportArgumentType]
        keys = jax.random.split(given, copies)
        found = _chains(of.phi, neurons, count, count // 5, posed, proposal, keys)
        f, within, kernels, accepted = (np.asarray(part) for part in found)
    averages = _averages(f, within, kernels, float(accepted.mean()), targets.ndim == 1)
    if not all(np.isfinite(part).all() for part in averages):
        raise NumericalFailure("sample_posterior: outputs overflow; rescale the inputs.", averages)
    return averages


def _averages(
    f: np.ndarray, within: np.ndarray, kernels: np.ndarray, acceptance: float, single: bool
) -> PosteriorSamples:
    """Average over draws and chains: f of shape (chain, draw, test_sample, output)."""
    from scipy.stats import sem

    mean = f.mean((0, 1))
    spread = np.mean((f - mean) ** 2, 1) + within[:, :, None]
    outputs = [mean, sem(f.mean(1)), spread.mean(0), sem(spread)]
    if single:
        outputs = [part[:, 0] for part in outputs]
    return PosteriorSamples(*outputs, kernels.mean(0), sem(kernels), acceptance)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _chains(
    phi: ActivationFunction,
    width: int,
    draws: int,
    left_out: int,
    posed: Posed,
    proposal: Mixture,
    keys: Any,
):
    """Return outputs, their variance given the neurons, mean kernels and acceptance, by chain."""

    def features(xi: Any, fields: Any) -> Any:
        return posed.out_std * phi(xi @ fields.T)

    def inverse_of(xi: Any) -> Any:
        values = features(xi, posed.train)
        return jnp.linalg.inv(values.T @ values / width + jnp.diag(posed.noise))

    def log_ratio(u: Any) -> Any:
        """Return the log density of the proposal over the prior's."""
        white = jax.vmap(
            lambda root, center: jax.scipy.linalg.solve_triangular(root, u - center, lower=True)
        )(proposal.roots, proposal.centers)
        sizes = jnp.sum(jnp.log(jnp.diagonal(proposal.roots, axis1=1, axis2=2)), 1)
        logs = jnp.log(proposal.shares) - jnp.sum(white**2, 1) / 2 - sizes
        return jax.nn.logsumexp(logs) + jnp.sum(u**2) / 2

    def draw(key: Any) -> Any:
        keys = jax.random.split(key)
        part = jax.random.categorical(keys[0], jnp.log(proposal.shares))
        xi = jax.random.normal(keys[1], posed.train.shape[1:])
        u = proposal.basis.T @ xi
        moved = proposal.centers[part] + proposal.roots[part] @ u
        return xi + proposal.basis @ (moved - u)

    def replaced(state: State, i: Any, new: Any, log_prior: Any, key: Any) -> tuple[State, Any]:
        """Accept or reject another neuron; (Φ + κ)⁻¹ changes by two ranks."""
        old = state.xi[i]
        pair = features(jnp.stack([new, old]), posed.train).T
        turned = state.inverse @ pair
        inner = jnp.diag(jnp.array([width, -width], pair.dtype)) + pair.T @ turned
        along = turned.T @ posed.y
        gain = jnp.sum(along * jnp.linalg.solve(inner, along)) * posed.gamma**2 * width / 2
        # det(1 + S FᵀM⁻¹F) with S⁻¹ = diag(N, −N)
        log_det = jnp.log(jnp.maximum(-jnp.linalg.det(inner) / width**2, 1e-300))
        log_p = gain - posed.y.shape[1] * log_det / 2 + log_prior
        accepted = jnp.log(jax.random.uniform(key)) < log_p
        inverse = state.inverse - turned @ jnp.linalg.solve(inner, turned.T)
        xi = state.xi.at[i].set(jnp.where(accepted, new, old))
        return State(xi, jnp.where(accepted, inverse, state.inverse)), accepted

    def neuron(state: State, given: Any) -> tuple[State, Any]:
        i, key = given
        keys = jax.random.split(key, 5)
        new, basis = draw(keys[0]), proposal.basis
        log_prior = log_ratio(basis.T @ state.xi[i]) - log_ratio(basis.T @ new)
        state, accepted = replaced(state, i, new, log_prior, keys[1])
        step = SMALLEST_STEP ** jax.random.uniform(keys[2])
        noise = jax.random.normal(keys[3], posed.train.shape[1:])
        near = jnp.sqrt(1 - step**2) * state.xi[i] + step * noise
        state, _ = replaced(state, i, near, 0.0, keys[4])
        return state, accepted

    def sweep(carry: Any, given: Any) -> tuple[Any, Any]:
        state, kernel = carry
        number, key = given
        keys = jax.random.split(key, width)
        state, accepted = jax.lax.scan(neuron, state, (jnp.arange(width), keys))
        state = State(state.xi, inverse_of(state.xi))
        values = features(state.xi, posed.train)
        test = features(state.xi, posed.test)
        cross = test.T @ values / width
        whitened = cross @ state.inverse
        within = jnp.mean(test**2, 0) - jnp.sum(whitened * cross, 1)
        kept = values.T @ values / width * (number >= left_out)
        unit = posed.gamma**2 * width
        return (state, kernel + kept), (whitened @ posed.y, within / unit, accepted.mean())

    def chain(key: Any) -> Any:
        first, rest = jax.random.split(key)
        xi = jax.vmap(draw)(jax.random.split(first, width))
        start = State(xi, inverse_of(xi)), jnp.zeros((len(posed.y),) * 2)
        steps = jnp.arange(draws), jax.random.split(rest, draws)
        (_, kernel), (f, within, accepted) = jax.lax.scan(sweep, start, steps)
        kept = slice(left_out, None)
        return f[kept], within[kept].mean(0), kernel / (draws - left_out), accepted.mean()

    return jax.vmap(chain)(keys)
