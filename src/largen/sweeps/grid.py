"""The grid of a sweep: shapes, schemes, and settings of the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from largen.callables import takes
from largen.errors import InvalidInput
from largen.scalars import integer, integers, real, sequence
from largen.sweeps.cells import Cell
from largen.text import shown
from largen.transfer.replicas import Replica
from largen.transfer.schemes import scheme_of

Rates = Sequence[float] | np.ndarray | Callable[[int, int], Sequence[float] | np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """All settings at which :func:`sweep` trains networks: the product of what is given.

    Attributes
    ----------
    lrs
        Values of η₀, the rate at the base shape, which each scheme translates to other shapes; or
        a function of width and depth that returns them, for example a coarser grid for large
        networks. A shape without rates is omitted. Factors of 2 over 5 to 8 octaves are usual.
    base
        (width, depth) at which all schemes agree; or a width alone, of a model that is built by its
        width.
    widths, depths
        The widths and depths of the networks; those of the base by default.
    schemes
        As in :func:`largen.transfer.torch.scale`.
    seeds
        Number of networks at each setting, with seeds 0, 1, …; several if losses at neighbouring
        rates differ by less than those of two seeds. A dict says it for each width: seeds are cheap
        at small widths, and forecasts want four or more (:meth:`Sweep.forecast`).
    weight_decays, momenta
        Values of λ₀ and of the momentum; the momentum is 0.9 by default, and can be given for
        ``optimizer="momentum"`` only.
    names
        The model builder's keywords for width and depth, or for the width alone.

    Raises
    ------
    InvalidInput
        If a list is empty or has negative numbers, or another field is invalid.

    Examples
    --------
    >>> grid = Grid(lrs=[0.1, 0.2], base=(16, 2), widths=[16, 32, 64], schemes=["mup"])
    >>> [(cell.width, cell.depth, len(cell.replicas)) for cell in grid.cells()]
    [(16, 2, 2), (32, 2, 2), (64, 2, 2)]
    """

    lrs: Rates
    base: tuple[int, int] | int
    widths: Sequence[int] = ()
    depths: Sequence[int] = ()
    schemes: Sequence[Any] = ("standard", "mup", "depth_mup")
    seeds: int | Mapping[int, int] = 1
    weight_decays: Sequence[float] = (0.0,)
    momenta: Sequence[float] | None = None
    names: tuple[str, ...] = ("width", "depth")

    def __post_init__(self) -> None:
        if callable(self.lrs):
            takes("lrs", self.lrs, ("width", "depth"))
        names, base = _names(self.names), self.base
        if not hasattr(base, "__len__"):
            base, names = (integer("base", base, at_least=1), 1), names[:1]
        if len(names) == 1 and len(integers("depths", self.depths, 1)):
            raise InvalidInput("depths: the base is a width alone; wanted base=(width, depth).")
        widths = sorted(set(integers("widths", self.widths, 1)))
        checked = {
            "lrs": self.lrs if callable(self.lrs) else _numbers("lrs", self.lrs),
            "base": _base(base),
            "widths": widths,
            "depths": sorted(set(integers("depths", self.depths, 1))),
            "schemes": list(sequence("schemes", self.schemes, "a list of schemes")),
            "seeds": _seeds(self.seeds, widths or [_base(base)[0]]),
            "weight_decays": _numbers("weight_decays", self.weight_decays),
            "momenta": None if self.momenta is None else _numbers("momenta", self.momenta),
            "names": names,
        }
        if not checked["schemes"]:
            raise InvalidInput("schemes: is empty; wanted at least one.")
        for scheme in checked["schemes"]:
            scheme_of(scheme)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, int]:
        """Width and depth of the base; a depth of 1 if the base is a width alone."""
        assert isinstance(self.base, tuple)
        return self.base

    def cells(self) -> list[Cell]:
        """Return the networks of each shape and scheme that are trained together.

        Raises
        ------
        InvalidInput
            If there is nothing to train.
        """
        cells = [
            Cell(scheme, width, depth, replicas)
            for scheme, width, depth in product(
                self.schemes, self.widths or self.shape[:1], self.depths or self.shape[1:]
            )
            if (replicas := tuple(self._replicas(width, depth)))
        ]
        if not cells:
            raise InvalidInput("lrs: there is no rate at any shape.")
        return cells

    def cost(self, width: int) -> float:
        """Return all trainings of the grid in trainings of one width, told before anything is run.

        Weights, and with them the operations of a step, are taken to grow with width² and depth.
        Forecasts pay where this is below one, which is from eight times the widest pilots on.

        Parameters
        ----------
        width
            The width of the network that is to be trained, of the base's depth.

        Examples
        --------
        >>> grid = Grid(lrs=[2**-k for k in (8, 7, 6, 5, 4)], base=32, widths=[32, 64, 128],
        ...             schemes=["mup"], seeds={32: 8, 64: 6, 128: 4})
        >>> round(grid.cost(1024), 2)
        0.47
        """
        one = integer("width", width, at_least=1) ** 2 * self.shape[1]
        return sum(len(cell.replicas) * cell.width**2 * cell.depth for cell in self.cells()) / one

    def _replicas(self, width: int, depth: int) -> Iterator[Replica]:
        lrs = self.lrs
        if callable(lrs):
            wanted = "a function of width and depth that returns a list of rates ≥ 0"
            lrs = [real("lrs", lr, at_least=0) for lr in sequence("lrs", lrs(width, depth), wanted)]
        momenta = (0.9,) if self.momenta is None else self.momenta
        seeds = self.seeds[width] if isinstance(self.seeds, Mapping) else self.seeds
        for settings in product(lrs, range(seeds), self.weight_decays, momenta):
            yield Replica(*settings)


def _seeds(seeds: Any, widths: Sequence[int]) -> int | dict[int, int]:
    """Return the number of seeds, or a dict of those of each width."""
    if not isinstance(seeds, Mapping):
        return integer("seeds", seeds, at_least=1)
    found = {n: integer("seeds", count, at_least=1) for n, count in seeds.items()}
    if sorted(found, key=str) != sorted(widths, key=str):
        raise InvalidInput(f"seeds: wanted a number for each of {widths}, got {shown(seeds)}.")
    return {n: found[n] for n in widths}


def _base(base: Any) -> tuple[int, int]:
    wanted = "a width, or a pair (width, depth) of integers"
    sizes = integers("base", sequence("base", base, wanted), 1)
    if len(sizes) != 2:
        raise InvalidInput(f"base: wanted {wanted}, got {shown(base)}.")
    return sizes[0], sizes[1]


def _names(names: Any) -> tuple[str, ...]:
    wanted = "the builder's two names, of width and depth, or that of the width"
    found = sequence("names", names, wanted)
    texts = all(isinstance(name, str) for name in found)
    if not texts or len(set(found)) < len(found) or len(found) not in (1, 2):
        raise InvalidInput(f"names: wanted {wanted}, got {shown(names)}.")
    return tuple(found)


def _numbers(name: str, values: Any) -> list[float]:
    wanted = "a list of numbers ≥ 0" + (name == "lrs") * ", or a function of width and depth"
    numbers = [real(name, v, at_least=0) for v in sequence(name, values, wanted)]
    if not numbers:
        raise InvalidInput(f"{name}: is empty; wanted at least one number.")
    return numbers
