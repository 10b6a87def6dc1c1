"""Figure 2: two and three hidden layers, by gradient descent and by RMSProp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from largen.parameterizations import plane_scheme
from largen.parameterizations.classification import classify
from largen.parameterizations.classification.plane import NAMED
from papers.claims import Claim, above, below
from papers.golikov import checks
from papers.golikov.parts import ladder
from papers.golikov.series import Series, by_scaling
from papers.golikov.setups import SOURCE, Ladder, Setup
from papers.images import Images
from papers.record import Figure, Found, Part

SCALINGS = ("mean field", "NTK", "default")
# Predicted exponents of this figure are multiples of ½; the threshold is half way from 0 to −½.
FALLS = -0.25


@dataclass(frozen=True)
class Settings:
    """The setups by name, and the numbers of networks."""

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
    """Return claims on which terms fall with the width, and on the mean-field loss."""
    made = []
    for prefix, setup in settings.setups:
        seen = by_scaling(found, prefix, SCALINGS, settings.how)
        vanishing = setup.hidden_layers == 3 and setup.optimizer == "gd"
        made.append(_extreme(prefix, seen["mean field"], "largest", falls=vanishing))
        if vanishing:
            made.append(_to_zero(prefix, setup.hidden_layers, seen["mean field"]))
        made.append(_extreme(prefix, seen["NTK"], "largest", falls=False))
        made.append(_extreme(prefix, seen["NTK"], "smallest", falls=True))
    return made


def _extreme(prefix: str, one: Series, which: str, *, falls: bool) -> Claim:
    """Check whether the largest, or the smallest, exponent of the terms is 0 or negative.

    A claim on all terms is open if the exponent of one of them is not resolved.
    """
    laws = {name: law for name, (law, _) in one.term_laws().items()}
    resolved = [name for name, law in laws.items() if law.resolved]
    pick = max if which == "largest" else min
    name = pick(resolved or laws, key=lambda term: laws[term].value)
    low, high = checks.interval(laws[name])
    words = {
        ("largest", True): "all terms vanish",
        ("largest", False): "not all terms vanish",
        ("smallest", True): "some terms vanish",
    }
    claim = (below if falls else above)(
        f"{prefix}, {one.scaling}: {words[which, falls]}",
        f"{which} exponent of a term ({name})",
        laws[name].value,
        low,
        high,
        FALLS,
    )
    of_all = which == "largest" and falls
    open_yet = claim.agrees is of_all and len(resolved) < len(laws)
    return replace(claim, agrees=None) if open_yet else claim


def _to_zero(prefix: str, hidden_layers: int, one: Series) -> Claim:
    """Check that outputs vanish with the width: log 2 minus the test loss is linear in small ones.

    Between the smallest and the largest width, log 2 minus the test loss is predicted to change by
    the ratio of the widths to the power of the outputs' order. The claim is confirmed if the
    measured change is nearer to this factor than to 1, on a logarithmic scale.
    """
    order = classify(plane_scheme(*NAMED[one.scaling]), hidden_layers).moved[-1]
    assert order is not None
    wanted = float(one.widths[-1] / one.widths[0]) ** float(order)
    gap = np.log(2) - one.loss[[0, -1]]
    first, last = gap.mean(1)
    errors = gap.std(1, ddof=1) / np.sqrt(gap.shape[1])
    value = float(abs(last / first))
    half = 2 * float(np.hypot(errors[1], value * errors[0]) / abs(first))
    return below(
        f"{prefix}, mean field: the output vanishes, so that the test loss is that of f = 0",
        f"log 2 minus the test loss, at N = {one.widths[-1]} over {one.widths[0]} (predicted: "
        f"{wanted:.3g})",
        value,
        value - half,
        value + half,
        wanted**0.5,
    )


def draw(settings: Settings, found: Found) -> Any:
    """Draw final losses in the upper row, exponents of the terms in the lower row."""
    from papers.golikov import panels

    above, below = [], []
    for prefix, _ in settings.setups:
        seen = by_scaling(found, prefix, SCALINGS, settings.how)
        above.append(panels.final_losses(seen, prefix))
        below.append(panels.exponents({name: one.term_laws() for name, one in seen.items()}))
    return panels.row(FIGURE.title, above, below)


FIGURE = Figure(
    name="004-2",
    title="Deep networks: the inverse-width scaling of gradient descent, and of RMSProp",
    source=SOURCE.format(2),
    images=("cifar10",),
    settings=Settings(_setups(500, 400), Ladder((128, 256, 512, 1024), 3)),
    fast=Settings(_setups(200, 100), Ladder((128, 256, 512), 16)),
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
