"""Upper bounds on the training loss from a positive tangent kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from largen.arrays import tree_of_floats
from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory, NumericalFailure, instance_of
from largen.networks import apply, empirical_ntk
from largen.parameterizations import momentum_of
from largen.results import in_notebooks, plot_result, save_result, with_labels
from largen.runs import Run

if TYPE_CHECKING:
    import xarray

_SINGULAR = 1e-12  # of the largest eigenvalue


@cites("hanin2026primer")
class ConvergenceBound(NamedTuple):
    """An upper bound on the training loss; made by :func:`convergence_bound`.

    Attributes
    ----------
    smallest, largest
        Eigenvalues of the tangent kernel Ĥ of the training samples at these parameters.
    rate
        2ηδ/P, at which the bound falls per unit of time of gradient flow, η being its ``lr``; per
        step of gradient descent with the first rate, −log of the factor.
    times
        The times of the run's time indices.
    loss
        The bound at these times, starting from the loss at the parameters, (step,).
    along_residual
        rᵀĤr/rᵀr of the residual r = f − y at the parameters, from ``smallest`` to ``largest``: the
        loss begins to fall at 2η/P times it, and with a constant Ĥ goes on at smaller rates, so
        that under gradient flow L(t) ≥ e^{−2η·along_residual·t/P} L(0). ``largest`` if r is 0.
    """

    smallest: float
    largest: float
    rate: float
    times: np.ndarray
    loss: np.ndarray
    along_residual: float

    def __repr__(self) -> str:
        return (
            f"ConvergenceBound: eigenvalues {self.smallest:.3g} to {self.largest:.3g}, "
            f"{self.along_residual:.3g} along the residual, rate {self.rate:.3g}; "
            f"loss at most {self.loss[0]:.3g} → {self.loss[-1]:.3g}"
        )

    _repr_html_ = in_notebooks
    save = save_result
    plot = plot_result

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return the bound over ``step``, with the eigenvalues and the rate."""
        import xarray

        names = ("smallest", "largest", "rate", "along_residual")
        numbers = {name: ((), getattr(self, name)) for name in names}
        return xarray.Dataset(
            {**numbers, "loss": ("step", self.loss)}, {"time": ("step", self.times)}
        )


def convergence_bound(run: Run, params: Any) -> ConvergenceBound:
    """Return an upper bound on the loss of a run, from the tangent kernel at given parameters.

    With Ĥ ≥ δ along the run (Hanin, lectures on scaling limits of neural networks, Lemma 3.2.1) and
    dL/dt = −(η/P²)(f − y)ᵀĤ(f − y),

        L(t) ≤ e^{−2ηδt/P} L(0),

    twice the rate that the lemma prints; (3.2.5) lacks the factor −1/P, and (3.2.6) has 1/P in
    place of −1/P². A step of gradient descent with a constant Ĥ multiplies the loss by at most
    max(|1 − ηδ/P|, |1 − ηλ_max/P|)². Ĥ ≥ δ must hold at all times: evaluate δ at the end of
    training as well, and use the smaller one. Wide networks in the kernel regime keep Ĥ. Less is
    enough: that rᵀĤr ≥ δ rᵀr along the run for the residual r alone, which
    ``trajectory.dissipation(relative=True)`` measures (:meth:`largen.Trajectory.dissipation`).

    Parameters
    ----------
    run
        A run with loss ``"mse"`` under gradient flow or full-batch gradient descent without
        momentum or weight decay.
    params
        Parameters of a finite network of ``run.net`` in ``run.param``, from
        :func:`largen.networks.init`.

    Raises
    ------
    NoTheory
        For other losses and optimizers.
    InvalidInput
        If the rate is so large that the bound grows.
    NumericalFailure
        If the tangent kernel is singular, so that there is no bound.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), data, optimizer=lg.gradient_flow(), times=[1.0])
    >>> params = lg.networks.init(run.net, run.param, width=64, inputs=3, key=0, dtype=np.float64)
    >>> result = lg.training.convergence_bound(run, params)
    >>> bool(np.isclose(result.loss[1], result.loss[0] * np.exp(-2 * result.smallest / 3)))
    True
    """
    instance_of("run", run, Run, "a largen.Run")
    run.check_one_output("lg.training.convergence_bound")
    _check(run)
    tree_of_floats("params", params)
    x, y = run.data.x_train, run.data.y_train
    outputs = y.shape[1] if y.ndim > 1 else None
    kernel = np.asarray(empirical_ntk(run.net, params, x, param=run.param, outputs=outputs))
    f = np.asarray(apply(run.net, params, x, param=run.param, outputs=outputs))
    samples = len(y)
    if kernel.ndim == 4:
        kernel = kernel.transpose(0, 2, 1, 3).reshape(f.size, f.size)
    eigenvalues = np.linalg.eigvalsh(kernel.astype(np.float64))
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    if smallest <= _SINGULAR * largest:
        raise NumericalFailure(
            f"params: the tangent kernel has eigenvalues from {smallest:.2g} to {largest:.2g}: it "
            "is singular, and nothing bounds the loss. Take more width, or leave repeated samples "
            "out."
        )
    residual = np.asarray(f - y, np.float64).ravel()
    square = float(residual @ residual)
    along = float(residual @ kernel @ residual) / square if square else largest
    start = 0.5 * square / samples
    times = run.times
    if run.optimizer.continuous:
        rate = 2 * run.optimizer.lr * smallest / samples
        falling = -rate * times
    else:
        edges = np.array([smallest, largest])[:, None] / samples
        factors = np.abs(1 - edges * run.rates).max(axis=0)
        if factors.max() > 1:
            raise InvalidInput(
                f"run: its rate is beyond 2P/λ_max = {2 * samples / largest:.3g}, and gradient "
                "descent diverges."
            )
        falling = np.concatenate([[0.0], 2 * np.cumsum(np.log(np.maximum(factors, 1e-300)))])
        rate = -float(falling[1])
    loss = start * np.exp(falling)
    return ConvergenceBound(smallest, largest, float(rate), times, loss, along)


def _check(run: Run) -> None:
    optimizer = run.optimizer
    plain = optimizer.descends and not momentum_of(optimizer)
    if not plain or optimizer.weight_decay:
        raise NoTheory(
            "lg.training.convergence_bound: wanted gradient flow, or gradient descent without "
            f"momentum and weight decay, got {optimizer}."
        )
    if not run.loss.squared or run.batches is not None:
        raise NoTheory(
            "lg.training.convergence_bound: wanted the loss 'mse' of all samples in each step."
        )
