"""Running a sweep: cell by cell or on several cores, stored on disk and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from largen.errors import instance_of
from largen.interrupts import check, interruptible, resume_hint
from largen.jobs import number_of_jobs, results_of
from largen.progress import reporter
from largen.scalars import flag
from largen.sweeps.arguments import check_protocol
from largen.sweeps.cells import Cell, Protocol, arrays_of
from largen.sweeps.grid import Grid
from largen.sweeps.plans import verdicts_of_plans
from largen.sweeps.store import Store
from largen.sweeps.surface import Sweep, surface
from largen.sweeps.task import Task
from largen.sweeps.trust import FEWEST_SEEDS


def sweep(  # noqa: PLR0913  (what is swept is a record; the rest says how)
    make_model: Callable[..., Any],
    task: Task,
    grid: Grid,
    *,
    optimizer: str = "sgd",
    schedule: Callable[[int], float] | None = None,
    checkpoint: Any = None,
    jobs: int = 1,
    device: Any = None,
    apply: Callable[[Any, Any], Any] | None = None,
    identity: str | None = None,
    verify: bool | None = None,
    progress: Any = None,
    **options: Any,
) -> Sweep:
    """Train a model at all rates, widths, depths and seeds, under several schemes.

    Networks of one shape and scheme form a cell and are trained together in one batched
    computation; those that diverge are stopped.

    Parameters
    ----------
    make_model
        ``make_model(width=…, depth=…)`` → a PyTorch module; for JAX see ``apply``.
    task
        The training task.
    grid
        Rates, widths, depths, schemes and numbers of seeds: :class:`largen.sweeps.Grid`.
    optimizer, schedule
        As in :func:`largen.transfer.torch.scale`; s(t), see ``warmup_cosine``.
    checkpoint
        A folder in which every finished cell is stored. The same call with the same folder
        resumes without training stored cells again. Cells are identified by all that they depend
        on: the code of the model and ``apply`` with their closures and globals, options, data and
        the schedule. Objects that cannot be identified, such as an open file, are refused.
    identity
        The user's name for the model, ``apply`` and the options, which replaces their code in the
        identification of cells.
    jobs
        Number of cells trained at once, by ``joblib``: −1 for one on each core. Inside
        ``joblib.parallel_config(backend="ray")`` or ``"dask"`` they run on other machines. Threads
        give the same networks, unless random numbers are drawn in training, as by dropout.
    device
        The device on which to train; PyTorch's default if None.
    apply
        For a model in JAX: ``apply(parameters, inputs)``, where ``make_model(key, width=…,
        depth=…)`` returns parameters (:func:`largen.transfer.jax.scale`).
    verify
        Whether the plan of each scheme is verified before anything is trained, as by ``scale``:
        forecasts (:meth:`Sweep.forecast`) are of verified plans only. By default where the grid has
        pilots for one: two widths or more, with four seeds or more.
    progress
        True or False for a bar or none, or a function of (done, total); by default a bar in a
        terminal.
    **options
        Passed on to ``scale``.

    Returns
    -------
    Sweep
        The loss surface and its analysis.

    Raises
    ------
    InvalidInput
        If there is nothing to train, or an argument is invalid.

    Examples
    --------
    >>> from torch import nn
    >>> def mlp(width, depth):
    ...     hidden = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())]
    ...     return nn.Sequential(nn.Linear(64, width), *hidden, nn.Linear(width, 2))
    >>> draw = np.random.default_rng(0)
    >>> x = draw.normal(size=(256, 64)).astype("float32")
    >>> task = Task(x, (x[:, 0] > 0).astype(int), steps=20)
    >>> grid = Grid(lrs=[2**-4, 2**-2, 1.0], base=(16, 2), widths=[16, 32], schemes=["mup"])
    >>> losses = sweep(mlp, task, grid)
    >>> dict(losses.data["loss"].sizes)
    {'scheme': 1, 'width': 2, 'depth': 1, 'seed': 1, 'lr': 3}
    """
    instance_of("grid", grid, Grid, "a largen.sweeps.Grid")
    protocol = check_protocol(
        Protocol(
            make_model, task, grid.shape, grid.names, optimizer, schedule, options, device, apply,
            identity,
        ),
        grid.momenta,
    )  # fmt: skip
    cells = grid.cells()
    jobs = number_of_jobs(jobs)
    goes_on = (
        "Nothing was saved; with checkpoint=… the same call would resume here."
        if checkpoint is None
        else f"Finished cells are in {checkpoint}: the same call resumes from them."
    )
    wanted = _are_pilots(grid) if verify is None else flag("verify", verify)
    verified = verdicts_of_plans(protocol, cells) if wanted else {}
    with resume_hint(goes_on), reporter(progress, "sweep") as report:
        arrays = dict(_run(protocol, cells, Store.at(checkpoint), jobs, report))
    attributes = {
        **verified,
        "optimizer": protocol.optimizer,
        "base_width": protocol.base[0],
        "base_depth": protocol.base[1],
        "loss": task.loss,
        "steps": task.steps,
        "chance": task.chance,
        "samples": len(task.constant),
    }
    return surface(cells, [arrays[i] for i in range(len(cells))], attributes)


def _are_pilots(grid: Grid) -> bool:
    """Whether a grid has what a forecast needs."""
    seeds = grid.seeds.values() if isinstance(grid.seeds, Mapping) else [grid.seeds]
    return len(grid.widths) > 1 and min(seeds) >= FEWEST_SEEDS


def _run(
    protocol: Protocol, cells: Sequence[Cell], store: Store, jobs: int, report: Any
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yield every cell's arrays, stored ones first; the others are stored as they finish."""
    missing, settings = [], []
    for i, cell in enumerate(cells):
        settings.append(protocol.settings(cell) if store.folder is not None else {})
        kept = store.load(settings[i])
        if kept is None:
            missing.append(i)
        else:
            yield i, kept
    bar = _Bar(report, [cell.cost for cell in cells], missing)
    for i, arrays in _train(protocol, cells, missing, jobs, bar):
        store.save(settings[i], arrays)
        bar.finish(i)
        yield i, arrays


def _train(
    protocol: Protocol, cells: Sequence[Cell], missing: Sequence[int], jobs: int, bar: _Bar
) -> Iterable[tuple[int, dict[str, np.ndarray]]]:
    if jobs == 1:
        # An interrupt may come within a callback of PyTorch or JAX, which would swallow it.
        with interruptible(at_once=True):
            for i in missing:
                yield i, arrays_of(protocol.train(cells[i], bar.within(i)), protocol.task)
                check()
        return
    # Large cells first, so that no core waits for the last one.
    order = sorted(missing, key=lambda i: -cells[i].cost)
    yield from results_of([(_number, (i, protocol, cells[i])) for i in order], jobs)


def _number(i: int, protocol: Protocol, cell: Cell) -> tuple[int, dict[str, np.ndarray]]:
    return i, arrays_of(protocol.train(cell), protocol.task)


class _Bar:
    """Progress bar weighted by the cost of each cell, in thousandths."""

    def __init__(self, report: Callable[[int, int], object], costs: list[float], missing: list):
        self.report, self.costs = report, costs
        self.total = sum(costs)
        self.done = self.total - sum(costs[i] for i in missing)

    def within(self, i: int) -> Callable[[int, int], None]:
        def inner(step: int, steps: int) -> None:
            check()
            self._show(self.done + self.costs[i] * step / steps)

        return inner

    def finish(self, i: int) -> None:
        self.done += self.costs[i]
        self._show(self.done)

    def _show(self, done: float) -> None:
        self.report(round(1000 * done / self.total), 1000)
