"""Figures of depthwise transfer: every one is computed at its smallest; claims on made-up data."""

from dataclasses import replace

import numpy as np
import pytest
import xarray

from largen.sweeps import Sweep
from papers import FIGURES, Images, figure, produce
from papers.bordelon import claims, dynamics, table_1

# Of infinite depth, which are no sweeps of images, elsewhere (test_infinite_depth.py).
DEPTH = ("001-5", "001-6", "001-7", "001-B7", "001-H", "001-I", "001-M1", "001-T1")
NAMES = [name for name in FIGURES if name.startswith("001-") and name not in DEPTH]


def images():
    draw = np.random.default_rng(0)
    y = np.arange(48) % 10
    x = (draw.integers(0, 100, (48, 32, 32, 3)) + 10 * y[:, None, None, None]).astype(np.uint8)
    return {"cifar10": Images("cifar10", "made here", x, y, x[:4], y[:4])}


def tiny(panel):
    grid = replace(
        panel.grid,
        widths=(8, 16)[: len(panel.grid.widths)],
        depths=(4, 8, 12)[: len(panel.grid.depths)],
        log2_lrs=panel.grid.log2_lrs[2:4] or panel.grid.log2_lrs,
        steps=10,
        batch_size=8,
    )
    return replace(panel, grid=grid)


@pytest.mark.parametrize(
    "name", [n if n == "001-B3" else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)
def test_figures_are_produced(name, tmp_path):
    wanted = figure(name)
    fast = tuple(tiny(panel) for panel in wanted.fast)
    done = produce(replace(wanted, fast=fast), images(), tmp_path, fast=True)
    assert done.claims
    assert "computed fast" in done.notes[0]
    assert done.notes[1:] == wanted.notes
    assert all(path.stat().st_size for path in done.files)


def made_up(centres, chance=2.0):
    """Losses with minima of given log₂ rates, over width and depth."""
    x = np.arange(-6.0, 1.0)
    loss = np.exp((x - np.array(centres, float)[..., None]) ** 2 / 4) * 0.1
    data = xarray.DataArray(loss, dims=("width", "depth", "lr")).expand_dims(scheme=["s"], seed=[0])
    return Sweep(
        xarray.Dataset(
            {"loss": data, "margin_error": 0 * data},
            {"width": [8, 16], "depth": [4, 8], "lr": 2.0**x},
            {"chance": chance},
        )
    )


def test_drifts():
    swept = made_up([[-3, -5], [-3, -4]])
    assert claims.transfers("s", swept, "width").value == pytest.approx(0)
    assert claims.transfers("s", swept, "width").agrees
    depth = claims.transfers("s", swept, "depth", wanted=False)
    assert depth.value == pytest.approx(2)
    assert depth.agrees
    half = np.hypot(0.5, 0.5)  # half a step of the grid for each of the two optima
    assert (depth.low, depth.high) == pytest.approx((2 - half, 2 + half))
    both = claims.transfers("s", made_up([[-3, -3], [-3, -4.5]]), "both")
    assert both.value == pytest.approx(1.5)
    assert both.agrees is None  # within its interval of one step
    assert "width 16, depth 8" in both.measured
    assert claims.transfers("s", made_up([[-3, -3], [-3, -5]]), "both").agrees is False
    gap = claims.less_drift("s", made_up([[-3, -3], [-3, -4.3]]), "t", swept)
    assert gap.value == pytest.approx(0.7)
    assert gap.agrees is None
    assert claims.less_drift("s", made_up([[-3, -3], [-3, -3]]), "t", swept).agrees
    along = claims.less_drift("s", made_up([[-3, -3], [-1, -1]]), "t", swept, "depth")
    assert along.agrees  # its drift is over the width alone
    assert "less over depth than" in along.says
    assert claims.less_drift("s", swept, "t", made_up([[-3, -3], [-3, -3]])).agrees is False


def test_intervals_of_drifts_contain_the_drift():
    """Seeds that scatter more than neighbouring rates differ; on a grid of half octaves."""
    x, rng, covered, widths = np.arange(-6.0, 1.0, 0.5), np.random.default_rng(0), 0, []
    centres = np.array([[-3.2, -3.9]])
    clean = np.exp((x - centres[..., None]) ** 2 / 20)[:, :, None]
    for _ in range(20):
        own = 0.05 * rng.standard_normal((1, 2, 8, 1)) + 0.02 * rng.standard_normal((1, 2, 8, 14))
        data = xarray.DataArray(clean + own, dims=("width", "depth", "seed", "lr"))
        data = data.expand_dims(scheme=["s"])
        swept = Sweep(
            xarray.Dataset(
                {"loss": data, "margin_error": 0 * data},
                {"width": [8], "depth": [4, 8], "lr": 2.0**x, "seed": np.arange(8)},
                {"chance": 9.0},
            )
        )
        claim = claims.transfers("s", swept, "depth")
        covered += claim.low <= 0.7 <= claim.high
        widths.append(claim.high - claim.low)
    assert covered >= 18
    assert 0.5 < np.median(widths) < 1.5  # at least the grid's, and of use


def test_what_does_not_train_has_no_best_rate():
    found = claims.transfers("s", made_up([[-3, -3], [-3, -3]], chance=0.1), "both", wanted=False)
    assert np.isinf(found.value)
    assert found.agrees


def test_curves_alike_at_all_depths():
    time = np.arange(1, 50.0)
    curves = {str(a): {d: np.exp(-a * time / 50) * (1 + 0.001 * d) for d in (4, 8)} for a in (1, 2)}
    assert dynamics.consistent("a", curves).agrees
    turned = {str(d): {a: curves[str(a)][d] for a in (1, 2)} for d in (4, 8)}
    assert not dynamics.consistent("a", turned).agrees
    # What diverges at all depths says nothing; what diverges at some of them is not alike.
    gone = np.where(time < 9, curves["1"][4], 1e9)
    both = {**curves, "3": {4: gone, 8: gone}}
    assert dynamics.consistent("a", both) == dynamics.consistent("a", curves)
    assert np.isinf(dynamics.consistent("a", {**curves, "3": {**curves["1"], 8: gone}}).value)


@pytest.mark.slow
def test_rows_of_the_table(tmp_path):
    """Fields of the last row move alike at all sizes; SP's first step and μP's features do not."""
    settings = table_1.Settings((32, 64, 128), (4, 8, 16), 8)
    done = produce(replace(figure("001-T1"), fast=settings), {}, tmp_path, fast=True)
    verdicts = {claim.says.partition(":")[0]: claim.agrees for claim in done.claims}
    assert verdicts["SP"]
    grown = next(claim for claim in done.claims if "exponentially" in claim.says)
    assert grown.agrees
    assert grown.value == pytest.approx(np.log(1.5), abs=0.05)
    assert False not in [claim.agrees for claim in done.claims]
