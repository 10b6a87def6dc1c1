"""Figure 2: two and three hidden layers, by gradient descent and by RMSProp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from largen.experiments.figures.golikov import checks
from largen.experiments.figures.golikov.parts import ladder
from largen.experiments.figures.golikov.series import Series, series
from largen.experiments.figures.golikov.setups import SOURCE, Ladder, Setup
from largen.experiments.figures.images import Images
from largen.experiments.figures.record import Claim, Figure, Found, Part

SCALINGS = ("mean field", "NTK", "default")
# Exponents below count as falling; those of the paper are multiples of ½ here.
FALLS = -0.25


@dataclass(frozen=True)
class Settings:
    """The setups, by what they are called, and how many networks."""

    setups: tuple[tuple[str, Setup], ...]
    how: Ladder


def _setups(train: int, test: int) -> tuple[tuple[str, Setup], ...]:
    def setup(layers: int, **options: Any) -> Setup:
        return Setup(train=train, test=test, hidden_layers=layers, **options)

    return (
        ("two hidden layers", setup(2)),
        ("three hidden layers", setup(3)),
        ("three hidden layers, RMSProp", setup(3, optimizer="rmsprop", rate=0.0002)),
    )


def parts(settings: Settings, images: Mapping[str, Images]) -> list[Part]:
    """Return networks of all setups, scalings and widths."""
    found = []
    for prefix, setup in settings.setups:
        found += ladder(prefix, setup, images, SCALINGS, settings.how)
    return found


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return which terms fall with the width, and what becomes of the mean-field loss."""
    made = []
    for prefix, setup in settings.setups:
        seen = {name: series(found, prefix, name, settings.how) for name in SCALINGS}
        vanishing = setup.hidden_layers == 3 and setup.optimizer == "gd"
        made.append(_largest(prefix, seen["mean field"], vanishing))
        if vanishing:
            made.append(_to_zero(prefix, seen["mean field"]))
        made += _some(prefix, seen["NTK"])
    return made


def _largest(prefix: str, one: Series, vanishing: bool) -> Claim:
    laws = {term: one.term_exponent(term) for term in one.terms}
    term = max(laws, key=lambda t: laws[t].value)
    law = laws[term]
    low, high = checks.interval(law)
    return Claim(
        f"{prefix}, mean field: {'all terms vanish' if vanishing else 'not all terms vanish'}",
        f"largest exponent of a term (f_{term})",
        law.value,
        low,
        high,
        bool(high < 0 if vanishing else law.value > FALLS),
    )


def _some(prefix: str, one: Series) -> list[Claim]:
    laws = {term: one.term_exponent(term) for term in one.terms}
    made = []
    for pick, says in ((max, "not all terms vanish"), (min, "some terms vanish")):
        term = pick(laws, key=lambda t: laws[t].value)
        law = laws[term]
        low, high = checks.interval(law)
        agrees = law.value > FALLS if pick is max else high < 0
        what = "largest" if pick is max else "smallest"
        measured = f"{what} exponent of a term (f_{term})"
        made.append(Claim(f"{prefix}, NTK: {says}", measured, law.value, low, high, bool(agrees)))
    return made


def _to_zero(prefix: str, one: Series) -> Claim:
    gap = np.log(2) - one.loss
    value, half = gap[-1].mean(), 2 * gap[-1].std(ddof=1) / np.sqrt(gap.shape[1])
    return Claim(
        f"{prefix}, mean field: the output vanishes, so that the test loss is that of f = 0",
        f"log 2 minus the test loss at N = {one.widths[-1]} (at {one.widths[0]}: "
        f"{gap[0].mean():.3f})",
        float(value),
        float(value - half),
        float(value + half),
        bool(abs(value) < 0.1 * abs(gap[0].mean())),
    )


def draw(settings: Settings, found: Found) -> Any:
    """Draw final losses above, exponents of the terms below."""
    from largen.plots.widths import exponents_panel, loss_panel, row

    above, below = [], []
    for prefix, _ in settings.setups:
        seen = [series(found, prefix, name, settings.how) for name in SCALINGS]
        losses = {s.scaling: [*zip(s.widths, s.loss, strict=True)] for s in seen}
        laws = {one.scaling: {t: (one.term_exponent(t), None) for t in one.terms} for one in seen}
        above.append(lambda ax, a=losses, t=prefix: loss_panel(ax, a, title=t))
        below.append(lambda ax, a=laws: exponents_panel(ax, a))
    return row(FIGURE.title, above, below)


FIGURE = Figure(
    name="004-2",
    title="Deep networks: the inverse-width scaling of gradient descent, and of RMSProp",
    source=SOURCE.format(2),
    images=("cifar10",),
    settings=Settings(_setups(500, 400), Ladder((128, 256, 512, 1024), 3)),
    fast=Settings(_setups(200, 100), Ladder((128, 256, 512), 3)),
    parts=parts,
    claims=claims,
    draw=draw,
    notes=(
        "500 training images, widths 128 … 1024, 3 networks each (paper: 1000, to 65536, 5)",
        "the NTK scaling of RMSProp has rates η̂ ∝ N^(−1/2) at both ends and N^(−1) between, "
        "without which it diverges (paper: η̂ ∝ 1, misprinted)",
        "RMSProp as in PyTorch, with 1 − β in its average: the paper's (21) leaves that out",
    ),
)
