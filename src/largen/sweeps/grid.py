"""The grid of a sweep: shapes, schemes, and settings of the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
        (width, depth) at which all schemes agree.
    widths, depths
        The widths and depths of the networks; those of the base by default.
    schemes
        As in :func:`largen.transfer.torch.scale`.
    seeds
        Number of networks at each setting, with seeds 0, 1, …; several if losses at neighbouring
        rates differ by less than those of two seeds.
    weight_decays, momenta
        Values of λ₀ and of the momentum; the momentum is 0.9 by default, and can be given for
        ``optimizer="momentum"`` only.
    names
        The model builder's keywords for width and depth.

    Examples
    --------
    >>> grid = Grid(lrs=[0.1, 0.2], base=(16, 2), widths=[16, 32, 64], schemes=["mup"])
    >>> [(cell.width, cell.depth, len(cell.replicas)) for cell in grid.cells()]
    [(16, 2, 2), (32, 2, 2), (64, 2, 2)]
    """

    lrs: Rates
    base: tuple[int, int]
    widths: Sequence[int] = ()
    depths: Sequence[int] = ()
    schemes: Sequence[Any] = ("standard", "mup", "depth_mup")
    seeds: int = 1
    weight_decays: Sequence[float] = (0.0,)
    momenta: Sequence[float] | None = None
    names: tuple[str, str] = ("width", "depth")

    def __post_init__(self) -> None:
        if callable(self.lrs):
            takes("lrs", self.lrs, ("width", "depth"))
        checked = {
            "lrs": self.lrs if callable(self.lrs) else _numbers("lrs", self.lrs),
            "base": _base(self.base),
            "widths": sorted(set(integers("widths", self.widths, 1))),
            "depths": sorted(set(integers("depths", self.depths, 1))),
            "schemes": list(sequence("schemes", self.schemes, "a list of schemes")),
            "seeds": integer("seeds", self.seeds, at_least=1),
            "weight_decays": _numbers("weight_decays", self.weight_decays),
            "momenta": None if self.momenta is None else _numbers("momenta", self.momenta),
            "names": _names(self.names),
        }
        if not checked["schemes"]:
            raise InvalidInput("schemes: is empty; wanted at least one.")
        for scheme in checked["schemes"]:
            scheme_of(scheme)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def cells(self) -> list[Cell]:
        """Return the networks of each shape and scheme that are trained together."""
        cells = [
            Cell(scheme, width, depth, replicas)
            for scheme, width, depth in product(
                self.schemes, self.widths or self.base[:1], self.depths or self.base[1:]
            )
            if (replicas := tuple(self._replicas(width, depth)))
        ]
        if not cells:
            raise InvalidInput("lrs: there is no rate at any shape.")
        return cells

    def _replicas(self, width: int, depth: int) -> Iterator[Replica]:
        lrs = self.lrs
        if callable(lrs):
            wanted = "a function of width and depth that returns a list of rates ≥ 0"
            lrs = [real("lrs", lr, at_least=0) for lr in sequence("lrs", lrs(width, depth), wanted)]
        momenta = (0.9,) if self.momenta is None else self.momenta
        for settings in product(lrs, range(self.seeds), self.weight_decays, momenta):
            yield Replica(*settings)


def _base(base: Any) -> tuple[int, int]:
    wanted = "a pair (width, depth) of integers"
    sizes = integers("base", sequence("base", base, wanted), 1)
    if len(sizes) != 2:
        raise InvalidInput(f"base: wanted {wanted}, got {shown(base)}.")
    return sizes[0], sizes[1]


def _names(names: Any) -> tuple[str, str]:
    wanted = "the builder's two names, of width and depth"
    pair = sequence("names", names, wanted)
    if len(pair) != 2 or not all(isinstance(name, str) for name in pair) or pair[0] == pair[1]:
        raise InvalidInput(f"names: wanted {wanted}, got {shown(names)}.")
    return pair[0], pair[1]


def _numbers(name: str, values: Any) -> list[float]:
    wanted = "a list of numbers ≥ 0" + (name == "lrs") * ", or a function of width and depth"
    numbers = [real(name, v, at_least=0) for v in sequence(name, values, wanted)]
    if not numbers:
        raise InvalidInput(f"{name}: is empty; wanted at least one number.")
    return numbers
