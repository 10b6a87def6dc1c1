"""The result of a search at the base: its settings, their losses, and the choice among them."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from largen.errors import InvalidInput, instance_of
from largen.results import DataResult
from largen.sweeps.ranges import RATE, at_end, constants_named
from largen.text import aligned
from largen.transfer.constants import Constants

if TYPE_CHECKING:
    import xarray

VARIABLES = {"factor", "loss", "loss_at_twice", "low", "high"}


@dataclass(frozen=True)
class Tuned(DataResult):
    """The result of :func:`largen.sweeps.tune`.

    Attributes
    ----------
    data
        ``factor (draw, name)``, the rate and the factors of every draw; ``loss (draw, seed)`` and
        ``loss_at_twice (draw, seed)``, at twice the rate: infinite where training diverged, NaN
        where nothing was trained. ``low`` and ``high (name)`` are the ranges. The first draws have
        a rate alone.
    """

    data: xarray.Dataset

    def __post_init__(self) -> None:
        import xarray

        instance_of("data", self.data, xarray.Dataset, "a data set of a search")
        missing = VARIABLES - set(self.data)
        if missing:
            raise InvalidInput(f"data: wanted the result of a search, without {sorted(missing)}.")

    @classmethod
    def from_xarray(cls, dataset: xarray.Dataset) -> Tuned:
        """Return the result that :meth:`to_xarray` turned into a data set."""
        return cls(dataset)

    @property
    def finalists(self) -> list[int]:
        """The draws that were trained with all seeds, best first."""
        loss = self._mean("loss", skip=False)
        order = np.argsort(np.where(np.isnan(loss), np.inf, loss), kind="stable")
        return [int(draw) for draw in order if not np.isnan(loss[draw])]

    @property
    def chosen(self) -> int:
        """The best finalist that is not at its edge; the one with the smallest loss beyond it."""
        for draw in self.finalists:
            if self._sound(draw):
                return draw
        twice = self._mean("loss_at_twice", skip=False)
        return min(self.finalists, key=lambda draw: (np.isnan(twice[draw]), twice[draw]))

    @property
    def at_edge(self) -> bool:
        """Whether every finalist is at its edge: twice its rate loses what the search gained."""
        return not self._sound(self.chosen)

    @property
    def lr(self) -> float:
        """The rate η₀ of the chosen draw."""
        return float(self._factors(self.chosen)[RATE])

    @property
    def constants(self) -> Constants:
        """The constants of the chosen draw, for ``scale(…, constants=…)``."""
        found = self._factors(self.chosen)
        return constants_named(found, found.values())

    @property
    def cut(self) -> float:
        """The larger of two losses with the first seed: of the best rate alone, and the median of
        the draws that were then kept.
        """
        first = self.data["loss"].values[:, 0]
        alone = first[: self.data.attrs["plain"]].min(initial=np.inf)
        median = np.sort(first)[ceil(self.data.attrs["kept"] / 2)]
        return float(max(median, alone))

    def _sound(self, draw: int) -> bool:
        return bool(self._mean("loss_at_twice", skip=False)[draw] < self.cut)

    def _factors(self, draw: int) -> dict[str, float]:
        names = [str(name) for name in self.data["name"].values]
        return dict(zip(names, self.data["factor"].values[draw].tolist(), strict=True))

    def _mean(self, name: str, skip: bool) -> np.ndarray:
        return self.data[name].mean("seed", skipna=skip).values

    def _words(self, draw: int) -> str:
        """Return a draw's loss with its standard error over seeds."""
        from scipy.stats import sem  # slow to import

        own = self.data["loss"].values[draw]
        own = own[~np.isnan(own)]
        error = f" ± {sem(own):.2g}" if len(own) > 1 else ""
        return f"{own.mean():.4g}{error} ({len(own)} seed{'s' * (len(own) > 1)})"

    def __str__(self) -> str:
        data, chosen, best = self.data, self.chosen, self.finalists
        plain = int(data.attrs["plain"])
        runs = int(data["loss"].notnull().sum() + data["loss_at_twice"].notnull().sum())
        lines = [
            f"{data.sizes['draw']} draws, {runs} trainings at the base: loss {self._words(chosen)}"
        ]
        if plain:
            alone = self._mean("loss", skip=True)[:plain]
            first = int(np.argmin(np.where(np.isnan(alone), np.inf, alone)))
            lines.append(f"with a rate alone: {self._words(first)}")
        cells = [["factor", "chosen", f"best {len(best)}", "searched", ""]]
        own, factors = self._factors(chosen), data["factor"].values[best]
        for i, (name, factor) in enumerate(own.items()):
            low, high = (float(data[end].values[i]) for end in ("low", "high"))
            near = f"{factors[:, i].min():.3g} … {factors[:, i].max():.3g}"
            edge = "near an end" if factor != 1.0 and at_end((low, high), factor) else ""
            cells.append([name, f"{factor:.3g}", near, f"{low:.3g} … {high:.3g}", edge])
        lines += aligned(cells)
        twice = self._mean("loss_at_twice", skip=False)[chosen]
        found = (
            f"{'above' if self.at_edge else 'below'} {self.cut:.4g}, that of a rate alone or the "
            "median of the draws kept first"
        )
        lines.append(f"at twice the rate: {twice:.4g}, {found}")
        if self.at_edge:
            lines.append("every finalist is at its edge of stability: search smaller rates")
        return "\n".join(lines)
