"""The exact training of linear networks with one hidden layer, at any width and step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory, instance_of
from largen.experiments.large_steps.diagram import CatapultDiagram, Cell, check, diagram_of, grid_of
from largen.finite_width.training import many_samples, two_layers
from largen.memory import check_fits
from largen.networks.network import network_of
from largen.parameterizations.distributions import GAUSSIAN
from largen.progress import Report
from largen.results import Result, with_labels
from largen.runs import Run
from largen.scalars import integer, numpy_generator, random_key

if TYPE_CHECKING:
    import xarray

WHAT = "lg.training.linear_training"
OF_MAP = "lg.training.linear_catapult_diagram"


@cites("lewkowycz2020large", "bahri2022les")
@dataclass(frozen=True, repr=False)
class LinearTraining(Result):
    """The training of a linear network with one hidden layer; made by :func:`linear_training`.

    Attributes
    ----------
    f_train, f_test
        Outputs, ``(step, sample[, output])``; where training diverged, the last before it.
    loss_train, loss_test
        Mean losses, ``(step,)``.
    curvatures
        λ, the largest eigenvalue of the tangent kernel of training samples over P, ``(step,)``.
    rates
        η₀ of each step.
    ntk
        The tangent kernel of training samples at the end,
        ``(sample, sample_2[, output, output_2])``.
    coupling
        κ.
    diverged
        The step at which training diverged; None if it did not.
    of
        A description of the trained network.
    """

    f_train: np.ndarray
    f_test: np.ndarray
    loss_train: np.ndarray
    loss_test: np.ndarray
    curvatures: np.ndarray
    rates: np.ndarray
    ntk: np.ndarray
    coupling: float
    diverged: int | None
    of: str

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return ``f_train``, ``f_test``, losses and ``curvature`` over ``step``, and ``ntk``."""
        import xarray

        output = ("output",) * (self.f_train.ndim - 2)
        both = ("output", "output_2") if output else ()
        columns = {
            "f_train": (("step", "sample", *output), self.f_train),
            "f_test": (("step", "test_sample", *output), self.f_test),
            "loss_train": ("step", self.loss_train),
            "loss_test": ("step", self.loss_test),
            "curvature": ("step", self.curvatures),
            "ntk": (("sample", "sample_2", *both), self.ntk),
        }
        lost = -1 if self.diverged is None else self.diverged
        return xarray.Dataset(
            columns,
            {"step": np.arange(len(self.f_train))},
            {"of": self.of, "coupling": self.coupling, "diverged": lost},
        )

    def __repr__(self) -> str:
        end = "" if self.diverged is None else f"; diverged at time index {self.diverged}"
        ends = self.rates[[0, -1]] * self.curvatures[[0, -1]]
        return "\n".join(
            [
                f"LinearTraining: {self.of}, {len(self.rates)} steps, κ = {self.coupling:.4g}",
                f"  ηλ    {ends[0]:.6g} → {ends[1]:.6g}",
                f"  loss  {self.loss_train[0]:.4g} → {self.loss_train[-1]:.4g}, "
                f"at most {self.loss_train.max():.4g}{end}",
            ]
        )


def linear_training(
    run: Run, params: Any = None, *, width: int | None = None, key: Any = 0
) -> LinearTraining:
    """Return the training of a linear network with one hidden layer, exactly, at any width.

    f = m₁m₂ V U x closes in its outputs F, the tangent kernel A = ρ_V m₂² ZZᵀ of the read-out
    behind the hidden layer Z, and B = ρ_U m₁² m₂² VVᵀ, for the rule's multipliers m and rates ρ.
    With K = XXᵀ, the coupling κ = ρ_U ρ_V (m₁m₂)² and E = −η ∂ℓ/∂F of a batch, a step of gradient
    descent is

        F ← F + AE + KEB + κ KE FᵀE,
        A ← A + κ (KE Fᵀ + F EᵀK + KE B EᵀK),
        B ← B + κ (FᵀE + EᵀF + EᵀAE),

    and the tangent kernel is A ⊗ 1 + K ⊗ B; rows of test samples follow the same equations. For one
    sample and one output this is :func:`catapult`, with λ = A + KB and c = κK. Bahri and Hanin,
    Les Houches lectures, (115), follow F and the sum A + KB, in which the equations do not close;
    in its two terms they do. In NTK parameterization κ = 1/(DN) vanishes at infinite width, in
    mean field it is γ₀²/D at every width.

    Parameters
    ----------
    run
        ``lg.mlp(1, "linear")`` or two :class:`largen.Dense`, any parameterization, loss, number of
        samples and outputs; gradient descent, full-batch or in minibatches, with any schedule.
    params
        Initial parameters of a finite network, from :func:`largen.networks.init`. The computation
        is in float64, whatever their precision.
    width
        N of a random network, whose initial F, A and B are drawn from their exact distribution at a
        cost that does not grow with N. Without ``params`` and ``width``, the limit of infinite
        width that starts at F = 0.
    key
        A JAX key or an integer, for ``width``.

    Raises
    ------
    InvalidInput
        For parameters of another network, or both ``params`` and ``width``.
    NoTheory
        For other networks or optimizers, without a width for parameterizations without a limit, and
        with ``width`` for weights that are not Gaussian.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 0.5]))
    >>> run = lg.Run(
    ...     lg.mlp(1, "linear"), lg.mean_field(0.3), data, optimizer=lg.gd(10.0), steps=200
    ... )
    >>> result = lg.training.linear_training(run)  # at infinite width
    >>> print(result)
    LinearTraining: a network of infinite width, 200 steps, κ = 0.03
      ηλ    2.22222 → 1.97714
      loss  0.375 → ..., at most 0.5602
    """
    instance_of("run", run, Run, "an lg.Run")
    run.check_one_output(WHAT)
    two_layers.check(run, WHAT)
    _check_fits(run)
    key = random_key(key)
    if params is not None:
        if width is not None:
            raise InvalidInput("width: params determine it; pass one of the two.")
        constants, start, of = _of_network(run, params)
    elif width is None:
        constants = two_layers.at_infinite_width(run, WHAT)
        start, of = many_samples.at_infinite_width(run, constants), "a network of infinite width"
    else:
        n = integer("width", width, at_least=1)
        constants = two_layers.at_width(run, n)
        start, of = _drawn(run, constants, n, key, WHAT), f"a network of width {n}"
    path, ntk = many_samples.follow(run, constants, start)
    P, lost = len(run.data.x_train), np.flatnonzero(~path.sound)
    outputs = path.outputs.reshape(*path.outputs.shape[:2], *run.output_shape)
    return LinearTraining(
        f_train=outputs[:, :P],
        f_test=outputs[:, P:],
        loss_train=many_samples.losses(run, outputs[:, :P], run.data.y_train),
        loss_test=many_samples.losses(run, outputs[:, P:], run.data.y_test),
        curvatures=path.curvatures,
        rates=run.rates,
        ntk=ntk.transpose(0, 2, 1, 3).reshape(P, P, *2 * run.output_shape),
        coupling=constants.coupling,
        diverged=int(lost[0]) if len(lost) else None,
        of=of,
    )


def linear_catapult_diagram(
    run: Run,
    widths: Iterable[int],
    rates: Iterable[float],
    *,
    seeds: int = 4,
    key: Any = 0,
    level: float = 1e-2,
    progress: bool | Report | None = None,
) -> CatapultDiagram:
    """Return which large rates linear networks with one hidden layer survive, at any width.

    As :func:`catapult_diagram`, by the equations of :func:`linear_training` instead of networks:
    the cost depends on the number of samples and does not grow with the width.
    ``.thresholds()`` is the largest stable rate x = ηλ₀ by width.

    Parameters
    ----------
    run
        As for :func:`linear_training`; the mean squared error and full-batch gradient descent with
        a constant rate. Its rate is replaced, its number of steps is kept.
    widths, rates, seeds, key, level, progress
        As for :func:`catapult_diagram`.

    Returns
    -------
    CatapultDiagram
        With the single model ``"equations"``.

    Raises
    ------
    InvalidInput
        If an argument is invalid.
    NoTheory
        For other networks, losses and optimizers, and for weights that are not Gaussian.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(1, "linear"), lg.ntk(), data, optimizer=lg.gd(1.0), steps=100)
    >>> result = lg.training.linear_catapult_diagram(run, [100, 10**6], [1.0, 3.0, 5.0], seeds=8)
    >>> result.thresholds()
    {100: (3.0, 5.0), 1000000: (3.0, 5.0)}
    """
    instance_of("run", run, Run, "an lg.Run")
    run.check_one_output(OF_MAP)
    two_layers.check(run, OF_MAP)
    check(run, OF_MAP)
    grid, key = grid_of(widths, rates, seeds, level), random_key(key)
    y = run.data.y_train
    _check_fits(run)

    def cell(n: int, seed: int) -> Cell:
        import jax

        constants = two_layers.at_width(run, n)
        start = _drawn(run, constants, n, jax.random.fold_in(key, seed), OF_MAP)
        own = many_samples.curvature(run, start)
        if not own > 0:
            raise InvalidInput("run: all inputs are 0, and with them the tangent kernel.")
        outputs = start.outputs[: len(y)].reshape(1, len(y), *run.output_shape)
        first = float(many_samples.losses(run, outputs, y)[0])
        found = many_samples.ends(run, constants, start, grid.rates / own, grid.level)
        return Cell(own, first, {"equations": found})

    return diagram_of(run, ["equations"], grid, cell, progress)


def _check_fits(run: Run) -> None:
    samples, outputs = len(many_samples.samples_of(run)), run.outputs or 1
    steps = run.steps or 0
    needed = 8.0 * (
        steps * samples * outputs + 6 * samples**2 + 4 * (len(run.data.x_train) * outputs) ** 2
    )
    what = f"run: {steps} steps and tangent kernels of {samples} samples"
    check_fits(needed, what, "Take fewer samples or steps.")


def _of_network(run: Run, params: Any) -> tuple[two_layers.Constants, many_samples.State, str]:
    import jax

    network = network_of(run.net, params, run.param, run.outputs, run.data.inputs)
    network.check_params(params)
    constants = two_layers.at_width(run, network.width)
    start = many_samples.of_weights(run, constants, network.width, *jax.tree.leaves(params))
    return constants, start, f"a network of width {network.width}"


def _drawn(
    run: Run, constants: two_layers.Constants, width: int, key: Any, what: str
) -> many_samples.State:

    for row in two_layers.table_at(run, width).rows:
        if row.distribution != GAUSSIAN:
            raise NoTheory(
                f"{what}: {row.name} starts with the {row.distribution} distribution, whose "
                "networks are not drawn without weights; pass params."
            )
    rng = numpy_generator(key)
    return many_samples.drawn(run, constants, width, rng)
