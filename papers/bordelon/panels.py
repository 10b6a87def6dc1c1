"""Panels: one model under one scheme, at several widths, depths and hyperparameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.sweeps import Sweep, Task
from largen.sweeps.cells import Cell, Protocol
from largen.sweeps.surface import surface
from largen.transfer.replicas import Replica
from largen.transfer.schedules import constant, warmup_cosine
from largen.transfer.schemes import scheme_of
from papers.images import Images
from papers.record import Figure, Found, Part, Report

if TYPE_CHECKING:
    import xarray

SOURCE = "Bordelon et al., Depthwise hyperparameter transfer in residual networks, Figure {}"
SIDE = 8
# Images on which the loss after training is measured.
FINAL = 1024


@dataclass(frozen=True)
class Grid:
    """The grid of networks trained in a panel.

    Attributes
    ----------
    widths, depths
        Widths and depths of the networks; the smallest ones are the base.
    log2_lrs
        Values of log₂ η₀.
    steps, batch_size
        The number of steps, and the batch size.
    weight_decays, momenta
        Weight decays and momenta, which are swept if there are several.
    seeds
        The number of networks at each setting.
    """

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    log2_lrs: tuple[float, ...]
    steps: int
    batch_size: int = 64
    weight_decays: tuple[float, ...] = (0.0,)
    momenta: tuple[float, ...] = (0.9,)
    seeds: int = 1

    @property
    def base(self) -> tuple[int, int]:
        """The smallest width and depth."""
        return min(self.widths), min(self.depths)


@dataclass(frozen=True)
class Panel:
    """A model, a scheme, and the grid of networks.

    Attributes
    ----------
    title
        The panel's title in pictures and claims, and the name of its data.
    model
        ``"conv"`` or ``"vit"``.
    scheme, optimizer
        As in :func:`largen.transfer.torch.scale`.
    grid
        The networks that are trained.
    options
        Options of the model, by name.
    alpha
        The exponent of branches l^(−α), in place of the scheme's own.
    warmup, cosine
        The schedule: the number of steps over which the rate rises, and whether it then falls to
        0 along a cosine.
    """

    title: str
    model: str
    scheme: str
    grid: Grid
    optimizer: str = "sgd"
    options: tuple[tuple[str, Any], ...] = ()
    alpha: str | None = None
    warmup: int = 0
    cosine: bool = False

    @property
    def schedule(self) -> Callable[[int], float] | None:
        """The schedule s(t)."""
        if self.cosine:
            return warmup_cosine(self.grid.steps, warmup=self.warmup)
        return constant(warmup=self.warmup) if self.warmup else None

    def cells(self) -> list[Cell]:
        """Return the cells, each with the networks that are trained together."""
        grid = self.grid
        each = product(grid.log2_lrs, range(grid.seeds), grid.weight_decays, grid.momenta)
        scheme = self.scheme if self.alpha is None else scheme_of(self.scheme, self.alpha)
        replicas = tuple(Replica(2.0**lr, seed, decay, mu) for lr, seed, decay, mu in each)
        return [Cell(scheme, n, l, replicas) for n, l in product(grid.widths, grid.depths)]

    def protocol(self, task: Task) -> Protocol:
        """Return the training protocol that all cells share."""
        from examples import models

        make: Callable[..., Any] = {"conv": models.ConvResNet, "vit": models.ViT}[self.model]
        return Protocol(
            partial(make, **dict(self.options)),
            task,
            self.grid.base,
            optimizer=self.optimizer,
            schedule=self.schedule,
        )


def half_octaves(first: float, last: float) -> tuple[float, ...]:
    """Return log₂ of rates from the first to the last, in steps of a factor √2."""
    return tuple(float(each) for each in np.arange(first, last + 0.25, 0.5))


def small_images(images: Images, steps: int, batch_size: int) -> Task:
    """Return the task: CIFAR-10 with pixels averaged to 8 × 8, or digits at their own 8 × 8."""
    x = images.x_train.astype(np.float64)
    x = x[..., None] if x.ndim == 3 else x
    side = x.shape[1]
    if side > SIDE:
        by = side // SIDE
        x = x[:, : by * SIDE, : by * SIDE].reshape(len(x), SIDE, by, SIDE, by, -1).mean((2, 4))
    x = x - x.mean(0)
    x = np.moveaxis(x / np.sqrt(np.mean(x**2)), -1, 1).astype(np.float32)
    y = images.y_train.astype(np.int64)
    return Task(x.copy(), y, "cross_entropy", batch_size, steps, x[:FINAL].copy(), y[:FINAL].copy())


def parts(settings: Sequence[Panel], images: Mapping[str, Images]) -> list[Part]:
    """Return one part for each cell of each panel."""
    found = []
    for panel in settings:
        task = small_images(images["cifar10"], panel.grid.steps, panel.grid.batch_size)
        if task.x.shape[1] != 3:
            panel = _with(panel, channels=task.x.shape[1])
        protocol = panel.protocol(task)
        for cell in panel.cells():
            key = json.dumps(protocol.settings(cell), sort_keys=True)
            cost = cell.cost * panel.grid.steps * panel.grid.batch_size * 1e-9
            name = _name(panel, cell)
            found.append(Part(name, key, cost, partial(_compute, protocol, cell)))
    return found


def sweep_of(panel: Panel, found: Found) -> Sweep:
    """Return a panel's sweep from its parts."""
    cells = panel.cells()
    data = [found[_name(panel, cell)] for cell in cells]
    names = ("losses", "final", "margin_error")
    arrays = [{name: own[name].values for name in names} for own in data]
    chance = float(data[0].attrs["chance"])
    return surface(cells, arrays, _attributes(panel, chance))


def parameters_of(panel: Panel, found: Found) -> dict[tuple[int, int], int]:
    """Return the number of parameters by width and depth."""
    return {
        (cell.width, cell.depth): int(found[_name(panel, cell)].attrs["parameters"])
        for cell in panel.cells()
    }


def draw_sweeps(settings: Sequence[Panel], found: Found) -> Any:
    """Draw the loss against the rate, in one panel each."""
    import xarray

    from largen.plots.sweeps import sweep_figure

    data = xarray.concat(
        [_titled(panel, sweep_of(panel, found)) for panel in settings], "scheme", join="outer"
    )
    return sweep_figure(data, Sweep(data).best())


def of_sweeps(name: str, title: str, number: Any, **own: Any) -> Figure:
    """Return a figure whose parts are cells of sweeps and whose images are CIFAR-10's.

    Parameters
    ----------
    name, title, number
        The figure's name and title, and its number in the paper.
    own
        The other fields of :class:`Figure`; by default the picture shows losses against rates.
    """
    own = {"draw": draw_sweeps, **own}
    return Figure(name, title, SOURCE.format(number), ("cifar10",), parts=parts, **own)


def _titled(panel: Panel, swept: Sweep) -> xarray.Dataset:
    # Panels differ in their numbers of seeds: of all rates that were trained, the mean is drawn.
    mean = swept.data.drop_vars("loss_train").mean("seed", skipna=False, keep_attrs=True)
    return mean.expand_dims(seed=[0]).assign_coords(scheme=[panel.title])


def _name(panel: Panel, cell: Cell) -> str:
    return f"{panel.title}, width {cell.width}, depth {cell.depth}".replace("/", "∕")


def _with(panel: Panel, **options: Any) -> Panel:
    from dataclasses import replace

    return replace(panel, options=(*panel.options, *options.items()))


def _attributes(panel: Panel, chance: float) -> dict[str, Any]:
    grid = {k: str(v) for k, v in asdict(panel.grid).items()}
    return {"chance": chance, "steps": panel.grid.steps, "optimizer": panel.optimizer, **grid}


def _compute(protocol: Protocol, cell: Cell, report: Report) -> xarray.Dataset:
    import xarray

    plan = protocol.plan(cell)
    trained = protocol.train(cell, report, plan)
    return xarray.Dataset(
        {
            "losses": (("replica", "step"), trained.losses.astype(np.float32)),
            "final": ("replica", trained.final),
            "margin_error": ("replica", protocol.task.margin_error(trained.each)),
            "lr": ("replica", np.array([replica.lr for replica in cell.replicas])),
        },
        attrs={
            "width": cell.width,
            "depth": cell.depth,
            "parameters": sum(prod(weight.shape) for weight in plan.weights),
            "chance": protocol.task.chance,
        },
    )
