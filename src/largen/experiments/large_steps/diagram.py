"""Networks at steps beyond 2/λ: curvature, losses and survival over rates and widths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from largen.arrays import precision
from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory, OutOfMemory, instance_of
from largen.finite_width.training.large_steps import (
    LOST,
    MODELS,
    Setting,
    bytes_of,
    curvature,
    curvatures,
    train_at_rates,
)
from largen.interrupts import interruptible
from largen.memory import MEMORY_BUDGET
from largen.networks import finite_network
from largen.parameterizations import momentum_of
from largen.progress import Report, reporter
from largen.results import DataResult
from largen.runs import Run
from largen.scalars import flag, integer, integers, random_key, real, sequence
from largen.text import aligned

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

WHAT = "lg.training.catapult_diagram"
MOST_SEEDS = 10**4
VARIABLES = ("curvature", "largest_loss", "at", "steps", "loss", "alive")


@cites("lewkowycz2020large", "bahri2022les")
@dataclass(frozen=True, repr=False)
class CatapultDiagram(DataResult):
    """Large steps over reduced rates and widths; made by :func:`catapult_diagram`.

    Attributes
    ----------
    data
        Over (model, width, seed, rate): ``curvature``, the largest eigenvalue λ of the tangent
        kernel over P after training, ``largest_loss`` and ``at`` (its step), ``steps`` until the
        loss stays below the level (NaN if it does not), ``loss`` after training and ``alive``,
        whether it never exceeded a million times the initial one; networks whose loss did keep
        their last values before. Over (width, seed): ``initial_curvature`` λ₀ and
        ``initial_loss``. The coordinate ``rate`` is x = ηλ₀, with each network's own λ₀.
    """

    data: xarray.Dataset

    @property
    def survival(self) -> xarray.DataArray:
        """The fraction of networks that do not diverge, (model, width, rate)."""
        return self.data["alive"].mean("seed").rename("survival")

    def thresholds(self, model: str | None = None) -> dict[int, tuple[float, float]]:
        """Return where most networks begin to diverge, by width, as measured.

        Parameters
        ----------
        model
            ``"network"`` or ``"quadratic"``; the first of the diagram's by default.

        Returns
        -------
        dict
            The last rate x at which at least half of the networks are alive, and the next one, at
            which fewer are; 0 for the former, ∞ for the latter if none diverges.
        """
        model = str(self.data["model"].values[0]) if model is None else model
        if model not in self.data["model"].values:
            raise InvalidInput(f"model: wanted one of {list(self.data['model'].values)}.")
        rates, thresholds = self.data["rate"].values, {}
        for width in self.data["width"].values:
            most = self.survival.sel(model=model, width=width).values >= 0.5
            lost = np.flatnonzero(~most)
            first = lost[0] if len(lost) else len(rates)
            thresholds[int(width)] = (
                float(rates[first - 1]) if first else 0.0,
                float(rates[first]) if first < len(rates) else np.inf,
            )
        return thresholds

    @classmethod
    def from_xarray(cls, dataset: xarray.Dataset) -> CatapultDiagram:
        """Return the result that :meth:`to_xarray` turned into a data set."""
        return cls(dataset)

    def _figure(self) -> Figure:
        """Draw survival, ηλ after training, the largest loss and the steps."""
        from largen.plots import catapult_diagram_figure

        return catapult_diagram_figure(self.data)

    def __repr__(self) -> str:
        data = self.data
        cells = [["model", "width", *(f"x = {x:g}" for x in data["rate"].values)]]
        ends = (data["rate"] * data["curvature"] / data["initial_curvature"]).where(data["alive"])
        for model in data["model"].values:
            for width in data["width"].values:
                at = {"model": model, "width": width}
                alive = data["alive"].sel(at)
                row = []
                for x in data["rate"].values:
                    count = f"{int(alive.sel(rate=x).sum())}/{alive.sizes['seed']}"
                    end = ends.sel(at).sel(rate=x).values
                    mean = f" {np.nanmedian(end):.2f}" if np.isfinite(end).any() else ""
                    row.append(count + mean)
                cells.append([str(model), str(int(width)), *row])
        return "\n".join(
            ["networks that do not diverge, and the median of ηλ after training", *aligned(cells)]
        )


@interruptible()
def catapult_diagram(
    run: Run,
    widths: Iterable[int],
    rates: Iterable[float],
    *,
    seeds: int = 4,
    key: Any = 0,
    level: float = 1e-2,
    quadratic: bool = True,
    memory_budget: float = MEMORY_BUDGET,
    progress: bool | Report | None = None,
) -> CatapultDiagram:
    """Train networks at large rates, and return curvature and loss after training.

    Where x = ηλ₀ > 2 the loss first grows, and with it the change of the parameters, until the
    curvature λ has fallen below 2/η: a catapult (Lewkowycz, Bahri, Dyer, Sohl-Dickstein and
    Gur-Ari 2020; Bahri and Hanin, Les Houches lectures, §3.3). The largest x at which networks
    survive is empirical: about 4 for linear, tanh and relu networks with one hidden layer and a few
    samples, and the spread between networks of one width is large. λ₀ is that of each network.

    Parameters
    ----------
    run
        Any network; the mean squared error, full-batch gradient descent without momentum. Its
        rate is replaced, its number of steps is kept.
    widths
        N, one or several.
    rates
        x = ηλ₀, one or several positive numbers.
    seeds
        Networks of each width.
    key
        ``jax.random.key(seed)`` or an integer; network i starts from ``fold_in(key, i)``, as in
        :func:`largen.train`.
    level
        Fraction of the initial loss below which training counts as finished.
    quadratic
        Whether to train, with each network, its expansion to second order in the parameters
        (:func:`largen.networks.taylor_expand`), from the same start and at the same rates. It has
        catapults too, and diverges earlier.
    memory_budget
        Bytes; it limits the number of rates that are trained together.
    progress
        Whether to show a bar; by default in terminals, after two seconds. A function is called
        with the numbers of finished and of all trainings.

    Raises
    ------
    InvalidInput
        If an argument is invalid.
    NoTheory
        For other losses and optimizers, at which 2/λ₀ is not the threshold of the linear dynamics.
    OutOfMemory
        If a single network exceeds the memory budget.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(1, "linear"), lg.ntk(), data, optimizer=lg.gd(1.0), steps=60)
    >>> result = lg.training.catapult_diagram(run, [256], [1.0, 3.0, 8.0], seeds=2, quadratic=False)
    >>> result.survival.values.tolist()
    [[[1.0, 1.0, 0.0]]]
    """
    import jax

    instance_of("run", run, Run, "an lg.Run")
    run.check_one_output(WHAT)
    check(run, WHAT)
    grid = grid_of(widths, rates, seeds, level)
    key = random_key(key)
    memory_budget = real("memory_budget", memory_budget, above=0)
    models = MODELS if flag("quadratic", quadratic) else MODELS[:1]
    x, y = run.data.x_train, run.data.y_train.astype(run.data.x_train.dtype)

    def cell(n: int, seed: int) -> Cell:
        outputs = run.output_shape[0] if run.output_shape else None
        network = finite_network(
            run.net, run.param, width=n, inputs=run.data.inputs, outputs=outputs
        )
        params = network.draw(jax.random.fold_in(key, seed), x.dtype)
        own = curvature(Setting(network, run.loss, None), params, x)
        first = float(run.loss.mean(network.outputs_of(params, x), y))
        return Cell(own, first, {
            model: _at_rates(
                Setting(network, run.loss, None if model == "network" else 2),
                params, x, y, grid.rates / own, run.steps, grid.level * first, memory_budget,
            )
            for model in models
        })  # fmt: skip

    with precision(x):
        return diagram_of(run, models, grid, cell, progress)


class Grid(NamedTuple):
    """The axes of a diagram."""

    widths: list[int]
    rates: np.ndarray  # x = ηλ₀
    seeds: int
    level: float  # the fraction of the initial loss below which training counts as finished


class Cell(NamedTuple):
    """The outcome of one network."""

    # curvature, loss: λ₀, and the initial loss.
    curvature: float
    loss: float
    found: dict[str, dict[str, np.ndarray]]  # the variables of a diagram by model, each (rate,)


def grid_of(widths: Iterable[int], rates: Iterable[float], seeds: int, level: float) -> Grid:
    """Check the axes of a diagram at the public function."""
    width = sorted(set(integers("widths", widths, at_least=1)))
    given = sequence("rates", rates, "a list of positive numbers")
    rate = np.array(sorted({real("rates", x, above=0) for x in given}))
    for name, values in (("widths", width), ("rates", rate)):
        if not len(values):
            raise InvalidInput(f"{name}: wanted at least one, got none.")
    seeds = integer("seeds", seeds, at_least=1, at_most=MOST_SEEDS)
    return Grid(width, rate, seeds, real("level", level, above=0))


def diagram_of(
    run: Run,
    models: Sequence[str],
    grid: Grid,
    cell: Callable[[int, int], Cell],
    progress: bool | Report | None,
) -> CatapultDiagram:
    """Return the diagram of what ``cell`` returns for a width and a seed."""
    import xarray

    shape = (len(models), len(grid.widths), grid.seeds, len(grid.rates))
    table = {name: np.zeros(shape, bool if name == "alive" else np.float64) for name in VARIABLES}
    before = {name: np.zeros(shape[1:3]) for name in ("initial_curvature", "initial_loss")}
    cells = [(i, s) for i in range(len(grid.widths)) for s in range(grid.seeds)]
    with reporter(progress, "large steps") as report:
        for done, (i, s) in enumerate(cells, start=1):
            one = cell(grid.widths[i], s)
            before["initial_curvature"][i, s], before["initial_loss"][i, s] = one[:2]
            for m, model in enumerate(models):
                for name, values in one.found[model].items():
                    table[name][m, i, s] = values
            report(done, len(cells))
    axes = ("model", "width", "seed", "rate")
    coordinates = {
        "model": list(models), "width": grid.widths, "seed": np.arange(grid.seeds),
        "rate": grid.rates,
    }  # fmt: skip
    return CatapultDiagram(
        xarray.Dataset(
            {name: (axes, values) for name, values in table.items()}
            | {name: (axes[1:3], values) for name, values in before.items()},
            coordinates,
            {"run": repr(run), "net": repr(run.net), "level": grid.level, "lost_above": LOST},
        )
    )


def check(run: Run, what: str) -> None:
    """Check that 2/λ₀ is the threshold of a run's linear dynamics, at a rate that is constant."""
    optimizer = run.optimizer
    if not run.loss.squared:
        raise NoTheory(f'{what}: wanted the loss "mse", whose curvature is λ, got {run.loss.name}.')
    if (
        not optimizer.descends_in_steps
        or momentum_of(optimizer)
        or optimizer.weight_decay
        or optimizer.batch_size is not None
        or optimizer.schedule is not None
    ):
        raise NoTheory(
            f"{what}: wanted full-batch gradient descent of a constant rate, without momentum and "
            f"weight decay, such as lg.gd(0.1), got {optimizer}."
        )


def _at_rates(
    setting: Setting, params: Any, x: Any, y: Any, rates: Any, steps: Any, level: float,
    memory_budget: float,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the results at all rates, computed together as far as memory allows."""
    import jax

    one, samples = bytes_of(setting, len(x), 1), len(x)
    if one > memory_budget:
        raise OutOfMemory(
            f"memory_budget: a network of width {setting.network.width} takes about "
            f"{one / 1e9:.3g} GB in training; take a smaller width, or quadratic=False."
        )
    more = bytes_of(setting, samples, 2) - one
    together = min(len(rates), 1 + int((memory_budget - one) / more))
    parts: list[dict[str, np.ndarray]] = []
    for begin in range(0, len(rates), together):
        chosen = np.asarray(rates[begin : begin + together], x.dtype)
        state = train_at_rates(setting, params, x, y, chosen, steps, level)
        ended = curvatures(setting, params, state.params, x)
        last = np.asarray(state.above, np.float64)
        there = np.asarray(state.sound) & (np.asarray(state.last) <= level)
        parts.append(
            {
                "curvature": ended,
                "largest_loss": np.asarray(state.peak, np.float64),
                "at": np.asarray(state.at_peak, np.float64),
                "steps": np.where(there, last, np.nan),
                "loss": np.asarray(state.last, np.float64),
                "alive": np.asarray(state.sound),
            }
        )
        jax.block_until_ready(state)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
