"""What networks are when training has come to rest under weight decay or noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory, NumericalFailure, instance_of
from largen.interrupts import interruptible
from largen.parameterizations.optimizers import temperature_of
from largen.regression import AdaptivePosterior, DeepLinearPosterior, DeepPosterior
from largen.regression.equilibrium.decay import Resting, homogeneous_at_rest, linear_at_rest
from largen.regression.equilibrium.network import (
    Equilibrium,
    equilibrium_of,
    equilibrium_of_training,
    read_out_weights,
)
from largen.regression.equilibrium.posterior import adaptive_posterior
from largen.results import DataResult
from largen.runs import Run, Status, Trajectory
from largen.scalars import flag, integer, numpy_generator, random_key, real
from largen.theories import solve

if TYPE_CHECKING:
    import xarray

LIFETIMES = 8.0  # of weights under decay alone: the time of the first training
RTOL = 1e-6  # by which the strongest direction of a closed solution may exceed the bound
METHODS = {
    "posterior": "the Bayesian posterior at infinite width",
    "closed": "the minimum over all networks, a convex problem",
    "trained": "the mean field, trained until it is still; other initialisations may end elsewhere",
}


@cites("lauditi2025adaptive", "bach2017breaking")
@dataclass(frozen=True, repr=False)
class NetworksAtRest(DataResult):
    """Networks of infinite width at rest; made by :func:`equilibrium`.

    Attributes
    ----------
    data
        ``f_train (sample[, output])``, ``f_test (test_sample[, output])``, their standard errors
        ``f_train_error`` and ``f_test_error``, and the kernel of the last hidden layer as the
        read-out weighs it, σ²⟨φφᵀ⟩ + σ_b², ``feature_kernel (sample, sample_2)``.
    method
        ``"posterior"``, ``"closed"``, or ``"trained"``.
    status
        ``"ok"``, or ``"not converged"``.
    stationarity
        max |f − Φ(Φ + κ)⁻¹y| / max |y| over training samples, with the kernel Φ at rest and κ the
        weight decay times the number of samples. It vanishes at rest for every activation and
        depth, and in the posterior up to the error of the sites. None for other losses than
        ``mse``.
    collapsed
        Whether decay has taken all weights to zero, so that f = 0.
    posterior
        The posterior, if that is the method; otherwise None.
    neurons
        The neurons, if the method is closed: their ``directions`` in the space of weights and their
        ``weights``; otherwise None.
    """

    data: xarray.Dataset
    method: str
    status: Status
    stationarity: float | None
    posterior: AdaptivePosterior | DeepPosterior | DeepLinearPosterior | None = field(compare=False)
    neurons: Resting | None = field(compare=False)

    @property
    def f_train(self) -> np.ndarray:
        """Outputs on training samples, (sample,) or (sample, output)."""
        return self.data["f_train"].values

    @property
    def f_test(self) -> np.ndarray:
        """Outputs on test samples."""
        return self.data["f_test"].values

    @property
    def collapsed(self) -> bool:
        """Whether decay has taken all weights to zero."""
        return not self.f_train.any() and not self.f_test.any()

    def __repr__(self) -> str:
        collapsed = ", all weights are zero" if self.collapsed else ""
        return f"NetworksAtRest({METHODS[self.method]}: {self.status}{collapsed})"


@interruptible()
def equilibrium(
    run: Run,
    *,
    still: float = 1e-3,
    doublings: int = 4,
    key: Any = 0,
    throw: bool = True,
    **options: Any,
) -> NetworksAtRest:
    """Return where training with weight decay or at a temperature ends, at infinite width.

    With decay λ₀, P samples, κ = Pλ₀ and α = (y − f)/κ, a neuron of one hidden layer moves downhill
    in (Lauditi, Bordelon and Pehlevan 2025)

        e(ξ, z) = ½|ξ|² + ½z² − γ₀ z α·φ(Aξ),   f = ⟨zφ⟩/γ₀,   C = AAᵀ.

    * **Langevin dynamics** at the temperature T₀ ends in the density exp(−e), for weights in units
      of √τ, τ = T₀/λ₀: the posterior of :func:`largen.regression.adaptive_posterior` with noise κ,
      inputs √τ times as large, and γ₀/√τ. For τ = 1 the prior is the initialisation.
    * **Homogeneous activations without noise** (linear, relu, leaky relu, abs): neurons of one
      direction act as one, and the lowest minimum is that of ½|f − y|² + (κ/γ₀)‖ν‖ over measures ν
      of directions (Bach 2017), f = ∫φ dν. The problem is convex, so that f on the training samples
      does not depend on the start. All weights vanish if γ₀ max_u |y·φ(Au)| ≤ κ over unit vectors.
      Linear networks: f = C(C + 1/μ)⁻¹y with γ₀²yᵀC(1 + μC)⁻²y = κ².
    * **Other activations and depths** keep a memory of their start: which of the minima of e are
      occupied is history. The mean field is trained until it is still.

    Parameters
    ----------
    run
        A run with all samples in each step and ``weight_decay`` > 0, by gradient descent, gradient
        flow or Langevin dynamics; its steps, times and schedule are ignored. Networks under other
        losses than ``mse`` are trained.
    still
        The change of outputs, relative to the largest target, in the second half of a training that
        ends it.
    doublings
        How many times the time of training may be doubled, from 8/λ₀ on.
    key
        A JAX key or an integer, for directions, sites or random matrices.
    throw
        Whether to raise if a result is not to be trusted; otherwise its status says so.
    options
        Of the method: those of :func:`largen.solve` for networks that are trained; ``sites`` and
        ``replicates`` of :func:`largen.regression.adaptive_posterior` at a temperature; and
        ``rtol`` of the convex problem, by how much its strongest direction may exceed the bound
        κ/γ₀, 1e-6 by default. Outputs are off by about the root of it.

    Raises
    ------
    InvalidInput
        Without weight decay, with batches, or for another loss at a temperature.
    NoTheory
        For a parameterization in which features do not move, a network without a theory, and noise
        in networks that :func:`largen.regression.adaptive_posterior` does not have.
    NumericalFailure
        If the solution is not found, or networks still move.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> def at(decay):
    ...     optimizer = lg.gd(0.1, weight_decay=decay)
    ...     run = lg.Run(lg.mlp(1, "relu"), lg.mean_field(), data, optimizer=optimizer, steps=1)
    ...     return lg.training.equilibrium(run)
    >>> at(0.1).f_train.round(6).tolist()
    [0.717157, -0.717157]
    >>> at(0.4).collapsed
    True
    """
    instance_of("run", run, Run, "a Run")
    still = real("still", still, above=0)
    doublings, throw = integer("doublings", doublings, at_least=0), flag("throw", throw)
    random = random_key(key)
    _check(run)
    if temperature_of(run.optimizer):
        _check_options(options, "sites", "replicates")
        return _posterior(run, random, throw, options)
    of = _homogeneous(run)
    if of is None:
        return _trained(run, still, doublings, random, throw, options)
    _check_options(options, "rtol")
    return _closed(run, of, real("rtol", options.get("rtol", RTOL), above=0), random, throw)


def _check_options(options: dict[str, Any], *known: str) -> None:
    for name in options:
        if name not in known:
            raise InvalidInput(f"{name}: this equilibrium is found by the options {known}.")


def _check(run: Run) -> None:
    """Refuse training that has no rest."""
    optimizer = run.optimizer
    if not optimizer.follows_gradients:
        raise NoTheory(f"optimizer: {optimizer} has no energy that it minimises; take lg.gd.")
    if not optimizer.weight_decay:
        raise InvalidInput(
            "run: the optimizer has weight_decay=0, and an equilibrium at all weights needs "
            "weight_decay > 0, such as lg.gd(lr=0.1, weight_decay=1e-3)."
        )
    if optimizer.batch_size is not None:
        raise InvalidInput("run: batches are noise of their own; take all samples in each step.")


def _kappa(run: Run) -> float:
    return run.optimizer.weight_decay * len(run.data.x_train)


def _homogeneous(run: Run) -> Equilibrium | None:
    """Return the network if the minimum of its energy is a convex problem."""
    x = np.asarray(run.data.x_train)
    try:
        of = equilibrium_of(run.net, run.param, x)
    except NoTheory:
        return None
    if of.hidden > 1 or not of.homogeneous or not run.loss.linear_residual:
        return None
    return equilibrium_of_training(run.net, run.param, run.optimizer, x)


def _closed(run: Run, of: Equilibrium, rtol: float, key: jax.Array, throw: bool) -> NetworksAtRest:
    """Return the minimum of the convex problem."""
    x, y = np.asarray(run.data.x_train, float), np.asarray(run.data.y_train, float)
    targets, kappa = y.reshape(len(y), -1), _kappa(run)
    if of.linear and targets.shape[1] == 1:
        found = linear_at_rest(of, x, targets, kappa)
    else:
        found = homogeneous_at_rest(of, x, targets, kappa, numpy_generator(key), rtol)
    outputs = [found.outputs(of, np.asarray(at, float)) for at in (x, run.data.x_test)]
    shaped = [f.reshape(len(f), *y.shape[1:]) for f in outputs]
    exact = [np.zeros_like(f) for f in shaped]
    data = _data_set(run, shaped, exact, found.feature_kernel(of, x))
    result = _result(run, data, "closed", found.excess <= rtol, neurons=found)
    if throw and result.status != Status.OK:
        raise NumericalFailure(
            f"equilibrium: after {found.rounds} rounds a direction exceeds the bound by "
            f"{found.excess:.1e}, more than rtol={rtol:g}.",
            result,
        )
    return result


def _posterior(run: Run, key: jax.Array, throw: bool, options: dict[str, Any]) -> NetworksAtRest:
    """Return the posterior in which Langevin dynamics ends."""
    x, y = np.asarray(run.data.x_train), np.asarray(run.data.y_train)
    of = equilibrium_of_training(run.net, run.param, run.optimizer, x)
    given = adaptive_posterior(
        of.net,
        x,
        y,
        noise=_kappa(run),
        param=of.param,
        loss=run.loss,
        key=key,
        throw=throw,
        **options,
    )
    train = given.predict(x)
    test = given.predict(run.data.x_test) if len(run.data.x_test) else None
    means = train.mean, train.mean[:0] if test is None else test.mean
    errors = train.mean_error, train.mean_error[:0] if test is None else test.mean_error
    data = _data_set(run, means, errors, given.feature_kernel)
    return _result(run, data, "posterior", given.status != "not_converged", posterior=given)


def _trained(
    run: Run, still: float, doublings: int, key: jax.Array, throw: bool, options: dict[str, Any]
) -> NetworksAtRest:
    """Train the mean field for twice as long until outputs do not change in the second half."""
    limit, time = _until_still(run, still, doublings, {"key": key, "throw": throw, **options})
    moved = _moved(run, limit)
    settled = limit.status.has_numbers and moved <= still
    found = limit.to_xarray()
    parts = [limit.f_train[-1], limit.f_test[-1]]
    errors = [found[f"{name}_error"].values[-1] for name in ("f_train", "f_test")]
    kernel = _read_out_kernel(run, found["feature_kernel"].values[-1, -1])
    result = _result(run, _data_set(run, parts, errors, kernel), "trained", settled)
    if throw and not settled:
        unit = "" if _has_classes(run) else " of the largest target"
        raise NumericalFailure(
            f"equilibrium: outputs still move by {moved:.1e}{unit} in the second half of the time "
            f"{time:g}; raise doublings=, or accept the change by still=.",
            result,
        )
    return result


def _until_still(
    run: Run, still: float, doublings: int, options: dict[str, Any]
) -> tuple[Trajectory, float]:
    """Return the last training, and the sum of its rates."""
    optimizer = run.optimizer
    if not optimizer.continuous:  # the rest is that of any rates
        optimizer = replace(optimizer, schedule=None)
        run = run.with_changes(optimizer=optimizer)
    time = LIFETIMES / optimizer.weight_decay
    while True:
        if optimizer.continuous:
            longer = run.with_changes(times=np.array([0.5, 1.0]) * time / optimizer.lr)
        else:
            longer = run.with_changes(steps=2 * int(np.ceil(time / 2 / optimizer.lr)))
        limit = solve(longer, record_at=[len(longer.times) - 1], **options)
        if not limit.status.has_numbers or doublings == 0 or _moved(run, limit) <= still:
            return limit, time
        time, doublings = 2 * time, doublings - 1


def _moved(run: Run, limit: Trajectory) -> float:
    """Return by how much outputs move in the second half, relative to the largest target."""
    f = limit.f_train
    size = 1.0 if _has_classes(run) else np.abs(run.data.y_train).max() or 1.0
    return float(np.abs(f[-1] - f[(len(f) - 1) // 2]).max() / size)


def _has_classes(run: Run) -> bool:
    """Whether targets are numbers of outputs, which have no size."""
    return np.ndim(run.data.y_train) <= len(run.output_shape)


def _read_out_kernel(run: Run, features: np.ndarray) -> np.ndarray:
    """Return σ²Φ + σ_b² with the constants of the read-out, whose weights alone rest at f."""
    stds = {"weight": 0.0, "bias": 0.0}
    for weight in read_out_weights(run.net, run.param, run.optimizer, run.data.inputs):
        stds[weight.kind] = weight.std * np.sqrt(weight.rate)
    return stds["weight"] ** 2 * features + stds["bias"] ** 2


def _data_set(run: Run, f: Sequence[Any], errors: Sequence[Any], kernel: Any) -> xarray.Dataset:
    """Return outputs on training and test samples, their errors, and the kernel."""
    import xarray

    train, test = ("sample", *run.output_axes), ("test_sample", *run.output_axes)
    return xarray.Dataset(
        {
            "f_train": (train, f[0]),
            "f_test": (test, f[1]),
            "f_train_error": (train, errors[0]),
            "f_test_error": (test, errors[1]),
            "feature_kernel": (("sample", "sample_2"), kernel),
        }
    )


def _result(
    run: Run, data: xarray.Dataset, method: str, settled: bool, **parts: Any
) -> NetworksAtRest:
    """Return the result, with the stationarity of its outputs."""
    stationarity = None
    if run.loss.linear_residual:
        kernel, y = data["feature_kernel"].values, np.asarray(run.data.y_train, float)
        f = kernel @ np.linalg.solve(kernel + _kappa(run) * np.eye(len(y)), y)
        stationarity = float(np.abs(data["f_train"].values - f).max() / (np.abs(y).max() or 1.0))
    status = Status.OK if settled else Status.NOT_CONVERGED
    given = {"posterior": None, "neurons": None} | parts
    return NetworksAtRest(data.assign_attrs(method=method), method, status, stationarity, **given)
