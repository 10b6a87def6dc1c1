"""Whether networks of one width are lazy: what moves in training, and what the kernel limit misses.

A network is lazy if training follows its linearisation at initialisation (Chizat, Oyallon and Bach,
*On lazy training in differentiable programming*). Its tangent kernel K is then constant, and

    df/dt = (η₀/P) K(t) Δ

is off by the relative change of K alone. This change decides between lazy and rich. The kernel
limit, which has Θ = lim K in place of K(t), has a second error: K(0) of one network differs from Θ
by order N^(−1/2), which is not learning, and which the network's kernel would not have.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput, NumericalFailure, instance_of
from largen.experiments.distances import chosen_samples, distances_of, prediction_for
from largen.kernels import ntk_kernel
from largen.networks import train
from largen.networks.ensembles import MOST_SEEDS
from largen.results import fields_over, in_notebooks, save_result
from largen.runs import Run, Trajectory
from largen.scalars import integer, random_key
from largen.theories import AdaptiveKernelLimit, KernelLimit, solve

LAZY, RICH = 0.1, 0.5  # relative movements of the NTK below and above which networks are called so


@cites("chizat2019lazy", "pehlevan2023lecture")
class Regime(NamedTuple):
    """The regime of networks of one width; made by :func:`lazy_or_rich`.

    All numbers but the last four are relative, and root mean squares over networks.

    Attributes
    ----------
    kind
        ``"lazy"`` if the NTK moves by less than 10 %, ``"rich"`` if it moves by more than 50 %,
        else ``"in between"``.
    ntk, ntk_error
        |K(T) − K(0)|/|K(0)| on training samples, in the Frobenius norm, and its standard error.
    feature_kernel, feature_kernel_error
        The same of the feature kernels of all hidden layers together.
    initial_ntk, initial_ntk_error
        |K(0) − Θ|/|Θ|, the distance of a network's NTK from the kernel limit's.
    kernel_limit, kernel_limit_error
        The distance of a network's outputs from the kernel limit, given its own initial outputs,
        over all time indices, relative to the root mean square of the limit's outputs.
    on
        The samples of the outputs.
    width, seeds
        N, and the number of networks.
    richness
        γ/√N, by which features move; it is γ₀ in :func:`largen.mean_field`.
    """

    kind: str
    ntk: float
    ntk_error: float
    feature_kernel: float
    feature_kernel_error: float
    initial_ntk: float
    initial_ntk_error: float
    kernel_limit: float
    kernel_limit_error: float
    on: str
    width: int
    seeds: int
    richness: float

    def __repr__(self) -> str:
        start = _percent(self.initial_ntk, self.initial_ntk_error)
        verb = "good to" if self.kind == "lazy" else "off by"
        return "\n".join(
            [
                f"{self.kind}: the NTK moves by {_percent(self.ntk, self.ntk_error)}; the kernel "
                f"limit is {verb} {_percent(self.kernel_limit, self.kernel_limit_error)} of f",
                f"  {self.seeds} networks of width {self.width}, γ/√N = {self.richness:.3g}; "
                f"outputs on {self.on} samples",
                "  feature kernels move by "
                f"{_percent(self.feature_kernel, self.feature_kernel_error)}; at initialisation "
                f"the NTK of a network is off by {start}",
            ]
        )

    _repr_html_ = in_notebooks
    to_xarray = fields_over()
    save = save_result


def lazy_or_rich(
    run: Run,
    width: int,
    *,
    seeds: int = 16,
    key: Any = 0,
    on: str | None = None,
    progress: Any = None,
) -> Regime:
    """Measure whether networks of a width are lazy, and how far the kernel limit describes them.

    A small ensemble is trained at this width. Its kernel limit is that of networks whose γ is fixed
    at the value γ₀Nᵈ that it has at this width, so that the question makes sense in mean-field
    parameterizations as well.

    Parameters
    ----------
    run
        The run.
    width
        N.
    seeds
        Number of networks, at least 4.
    key
        ``jax.random.key(seed)`` or an integer.
    on
        ``"test"`` or ``"train"``: samples on which outputs are compared; test by default if there
        are any.
    progress
        As in :func:`largen.train`.

    Raises
    ------
    InvalidInput
        If the parameterization starts from a reference network.
    NoTheory, NoRule
        If the kernel limit does not cover the run: for layers without a kernel, scalings that
        diverge.
    NumericalFailure
        If networks or their limit diverge, or outputs or tangent kernels are 0.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(6, 3))
    >>> data = lg.Dataset(x, np.sign(x[:, 0]))
    >>> run = lg.Run(lg.mlp(1, "erf"), lg.ntk(), data, optimizer=lg.gd(lr=0.5), steps=10)
    >>> lg.training.lazy_or_rich(run, width=200).kind
    'lazy'
    """
    instance_of("run", run, Run, "an lg.Run")
    run.check_one_output("lg.training.lazy_or_rich")
    if run.param.reference is not None:
        raise InvalidInput(
            f"run: γ of {run.param} is its reference network's; use lg.ntk() or lg.mean_field()."
        )
    width = integer("width", width, at_least=1)
    seeds = integer("seeds", seeds, at_least=4, at_most=MOST_SEEDS)
    key, on = random_key(key), chosen_samples(on, len(run.data.x_test) > 0)

    limit = _kernel_limit(fixed_gamma(run, width))
    nets = train(run, width, seeds, key, record=("feature_kernel", "ntk"), progress=progress)
    prediction = prediction_for(limit, nets, on)
    distance = distances_of(nets, prediction, on, np.random.default_rng(0))
    size = distance["output_size"]
    rounding = 100 * np.finfo(nets.f_train.dtype).eps * np.abs(run.data.y_train).max()
    if not (size > rounding and nets.ntk[:, 0].any()):
        raise NumericalFailure(
            "lg.training.lazy_or_rich: the outputs of the limit and their tangent kernels are "
            "compared with networks as parts of their size, which is 0 here: inputs or targets "
            "are zero, or the learning rate is too small."
        )
    moved = _relative(nets.ntk[:, 0], nets.ntk[:, -1])
    theta = np.asarray(ntk_kernel(run.net, run.data.x_train, param=run.param))
    if theta.shape != nets.ntk.shape[2:]:  # several outputs, which are independent in the limit
        theta = theta[:, :, None, None] * np.eye(nets.ntk.shape[-1])
    kind = "lazy" if moved[0] < LAZY else "rich" if moved[0] > RICH else "in between"
    return Regime(
        kind,
        *moved,
        *_relative(nets.feature_kernel[:, 0], nets.feature_kernel[:, -1]),
        *_relative(np.broadcast_to(theta, nets.ntk[:, 0].shape), nets.ntk[:, 0]),
        distance["single"] / size,
        distance["single_error"] / size,
        on,
        width,
        seeds,
        run.param.gamma * width ** float(run.param.canonical_d - Fraction(1, 2)),
    )


def fixed_gamma(run: Run, width: int) -> Run:
    """Return a run with the same networks at this width, and a γ that grows no further."""
    power = run.param.canonical_d
    fixed = replace(
        run.param,
        name=f"{run.param.name} at width {width}",
        d=run.param.d - power,
        gamma=run.param.gamma * width ** float(power),
    )
    return run.with_changes(param=fixed)


def _kernel_limit(run: Run) -> Trajectory:
    """Return a limit of features that stand still, whose outputs are predicted for networks."""
    if not run.optimizer.adaptive:
        return solve(run, theory=KernelLimit(std=False))
    # Predictions for given initial outputs do not rest on means over these.
    return solve(run, theory=AdaptiveKernelLimit(replicates=1, record=()))


def _relative(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Return |after − before|/|before|, its root mean square over networks, and its error."""
    flat = [array.reshape(len(array), -1).astype(np.float64) for array in (before, after)]
    squares = np.sum((flat[1] - flat[0]) ** 2, 1) / np.sum(flat[0] ** 2, 1)
    root = float(np.sqrt(squares.mean()))
    noise = float(squares.std(ddof=1) / np.sqrt(len(squares)))
    return root, noise / (2 * root) if root else 0.0


def _percent(value: float, error: float) -> str:
    """Return 6.0 ± 0.3 %, with as many digits as the error has."""
    digits = max(0, 1 - int(np.floor(np.log10(100 * error)))) if error > 0 else 2
    digits = min(digits, 3)
    return f"{100 * value:.{digits}f} ± {100 * error:.{digits}f} %"
