"""Golikov's figures: their parts against definitions, and their claims on data made for them."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import xarray

import largen as lg
from largen.experiments.power_law import PowerLaw
from papers import FIGURES, Images, figure, produce
from papers.golikov import checks, figure_2, figure_5, rows
from papers.golikov.figure_1 import Settings
from papers.golikov.parts import curves, ladder
from papers.golikov.series import series
from papers.golikov.setups import LIMITS, Ladder, Setup, run_of
from papers.golikov.terms import Final, split_outputs, term_names

TINY = Setup(train=20, test=10, steps=3)
# Predicted powers of f_∅, f_a, f_w, f_aw, δa, δw in the NTK scaling.
FIRST = (0, 0, 0, -1, -0.5, -0.5)


def synthetic(shape=(32, 32, 3), labels=2, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(60) % labels
    x = rng.integers(0, 200, (60, *shape)) + 20 * y.reshape(-1, *[1] * len(shape))
    x = x.astype(np.uint8)
    return Images("cifar10", "made here", x[:40], y[:40], x[40:], y[40:])


IMAGES = {"cifar10": synthetic()}


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_terms_add_up_to_the_outputs(layers):
    network = lg.networks.finite_network(lg.mlp(layers, "leaky_relu"), lg.mup(), width=12, inputs=4)
    start, end = network.init(0, np.float64), network.init(1, np.float64)
    x = np.random.default_rng(0).normal(size=(5, 4))
    parts = split_outputs(network, start, end, x)
    assert sorted(parts) == sorted(term_names(layers))
    assert len(parts) == 2 ** (layers + 1)
    whole = np.sum(list(parts.values()), 0)[:, 0]
    np.testing.assert_allclose(whole, network.apply(end, x), rtol=1e-5)
    # Nothing has moved: one term is left.
    still = split_outputs(network, end, end, x)
    np.testing.assert_allclose(still["∅"][:, 0], network.apply(end, x), rtol=1e-5)
    assert all(np.abs(v).max() == 0 for name, v in still.items() if name != "∅")


def test_reference_network_is_that_of_the_appendix():
    """App. A: standard deviations of weights uniform within ±1/√fan_in, rates 0.02, width 128."""
    for name in ("mean field", "NTK", "intermediate", "default"):
        run = run_of(TINY, IMAGES, name)
        table = run.param.table(run.net, run.optimizer, width=128, inputs=run.data.inputs)
        assert table["0.weight"].init_std == pytest.approx((3 * 3072) ** -0.5)
        assert table["2.weight"].init_std == pytest.approx((3 * 128) ** -0.5)
        assert table["0.weight"].multiplier == table["2.weight"].multiplier == 1
        assert table["0.weight"].lr == pytest.approx(1) == pytest.approx(table["2.weight"].lr)
        assert run.optimizer.lr == 0.02
    # The span of 30 images, with the same inner products as pixels.
    assert run.data.x_train.shape == (20, 30)
    x, _, z, _ = IMAGES["cifar10"].choose((0, 1), 20, 10)
    assert x.mean() == pytest.approx(0, abs=1e-12)
    assert x.std() == pytest.approx(1)
    np.testing.assert_allclose(run.data.x_train @ run.data.x_test.T, x @ z.T, rtol=1e-3, atol=1)


@pytest.mark.parametrize("name", ["mean field", "default"])
def test_rmsprop_scales_rates_as_it_should(name):
    """§4.1: η̂ = η/σ ∝ 1 in the mean-field scaling; raw rates constant by default."""
    deep = Setup(train=20, test=10, hidden_layers=3, optimizer="rmsprop", rate=2e-4)
    run = run_of(deep, IMAGES, name)
    for place in ("0", "2", "4", "6"):
        small, large = (
            run.param.table(run.net, run.optimizer, width=n, inputs=3072)[f"{place}.weight"]
            for n in (128, 512)
        )
        assert small.lr == pytest.approx(1)
        if name == "default":
            assert large.lr == pytest.approx(1)
        else:
            ratio = large.lr / large.init_std / (small.lr / small.init_std)
            assert ratio == pytest.approx(1)


@pytest.mark.slow
def test_what_is_measured_of_a_network():
    """Loss, variances and increments, against the definitions of App. C."""
    run = run_of(TINY, IMAGES, "NTK")
    measured = lg.networks.train_and_measure(run, 128, Final(run), seeds=2, key=0)
    start, end = lg.networks.train_and_measure(
        run, 128, lambda network, start, end, x: (start, end), seeds=2, key=0
    )
    nets = lg.train(run, 128, 2, 0)
    np.testing.assert_allclose(measured["loss"], nets.loss_test[:, -1], rtol=1e-5)
    moved = [(end[i]["weight"] - start[i]["weight"])[0] for i in (0, 2)]
    increments = [
        np.linalg.norm(moved[0], axis=0).mean() * (3 * 3072) ** 0.5,
        np.abs(moved[1]).mean() * (3 * 128) ** 0.5,
    ]
    np.testing.assert_allclose(measured["increment"][0], increments, rtol=1e-4)
    h = run.data.x_test @ end[0]["weight"][0]
    gates = np.where(h > 0, 1, 0.01)
    f_w = (gates * (run.data.x_test @ moved[0])) @ start[2]["weight"][0]
    assert measured["variance"][0][term_names(1).index("w")] == pytest.approx(f_w.var(), rel=1e-4)


def made(power, prefix="gd", scalings=("NTK",), loss=lambda n: 0.4 + 1 / n):
    """Parts as they would be found if every variance were a power of the width."""
    rng, found, seeds, widths = np.random.default_rng(0), {}, 16, (128, 256, 512, 1024)
    for n in widths:
        for title in scalings if n != 128 else ("reference",):
            noise = np.exp(0.05 * rng.normal(size=(seeds, 4)))
            found[f"{prefix}/{title} N={n}"] = xarray.Dataset(
                {
                    "loss": ("seed", loss(n) + 0.001 * rng.normal(size=seeds)),
                    "variance": (("seed", "term"), n ** (2 * np.array(power)) * noise),
                    "increment": (("seed", "weight"), n**-0.5 * noise[:, :2]),
                },
                {"term": term_names(1), "weight": ["w", "a"]},
            )
    return found, Ladder(widths, seeds)


# One term comes from a single network of sixteen.
UNRESOLVED = xarray.DataArray(
    np.where((np.arange(16) > 0)[:, None], [1, 1, 0, 1], 1), dims=("seed", "term")
)


def test_claims_hold_for_what_is_predicted_and_fail_for_what_is_not():
    found, how = made([0.0, 0.0, 0.0, -1.0])
    seen = series(found, "gd", "NTK", how)
    laws = seen.term_laws(50) | seen.increment_laws(50)
    right = checks.exponents(seen, laws)
    assert len(right) == 6
    assert sum(claim.agrees for claim in right) >= 5  # intervals of 95 %
    assert max(abs(claim.value - q) for claim, q in zip(right, FIRST, strict=True)) < 0.05
    assert checks.convergence(seen).agrees
    assert checks.straight(seen, "a").agrees
    bent = {n: d.assign(increment=d["increment"] - 0.02) for n, d in found.items()}
    assert checks.straight(series(bent, "gd", "NTK", how), "a").agrees is False
    wrong = series(*made([0.0, 0.5, 0.0, -1.0])[:1], "gd", "NTK", how)
    verdicts = {
        c.measured.partition(",")[0]: c.agrees for c in checks.exponents(wrong, wrong.term_laws(50))
    }
    assert verdicts["exponent of f_∅"]
    assert not verdicts["exponent of f_a"]


@pytest.mark.parametrize(
    ("law", "verdict"),
    [
        (PowerLaw(), None),
        (PowerLaw(-0.9, 0.1), True),
        (PowerLaw(-0.9, 0.03), False),
        (PowerLaw(-0.9, 0.2), None),  # −3/4 is inside, too
        (PowerLaw(0.0, 0.2), False),
    ],
)
def test_what_is_not_resolved_is_unclear(law, verdict):
    found, how = made([0.0, 0.0, 0.0, -1.0])
    seen = series(found, "gd", "NTK", how)
    (claim,) = checks.exponents(seen, {"f_aw": (law, -1.0)})
    assert all(abs(each + 1) < 0.05 for each in seen.local("f_aw"))
    assert claim.agrees is verdict
    assert json.loads(json.dumps(claim.summary(), allow_nan=False))["agrees"] is verdict


@pytest.mark.parametrize(("limit", "verdict"), [(1e-3, True), (0.0, None), (-5e-4, False)])
def test_term_with_fluctuations_keeps_its_limit_or_not(limit, verdict):
    """c² + b²/N is told from b²/N alone, and from what falls faster; another power is given up."""
    found, how = made([0.0] * 4)
    for n, part in found.items():
        size = limit + 1 / int(n.rsplit("=")[-1])
        found[n] = part.assign(variance=part["variance"] * size)
    claim = checks.remains(series(found, "gd", "NTK", how), "∅")
    assert claim.agrees is verdict
    if verdict is not None:
        assert claim.low < limit / (limit + 1 / 1024) < claim.high
    steep = series(made([-2.0] * 4)[0], "gd", "NTK", how)
    assert checks.remains(steep, "∅").agrees is None


def test_rank_of_a_term():
    """f_aw among four terms: below or above its neighbours, or at one of them."""
    found, how = made([0.0] * 4)
    seen = series(found, "gd", "NTK", how)
    for place in (2, 4):
        for sizes, rank in (([9, 4, 3, 5], 2), ([9, 4, 3, 1], 4), ([4, 3, 2, 9], 1)):
            variance = np.array(sizes) * np.ones((1, 16, 1)) * seen.variance[:1]
            assert figure_5._rank(replace(seen, variance=variance), place, "").agrees == (
                rank == place
            )
    tied = replace(seen, variance=np.array([9, 4, 3, 4]) * seen.variance[:1])
    assert figure_5._rank(tied, 2, "").agrees is None


def test_what_falls_and_what_does_not():
    """Figure 2: terms of exponents 0 … −1, and outputs that fall as 1/N or not at all."""
    found, how = made([-0.5, -1.0, -0.5, -1.0])
    seen = series(found, "gd", "NTK", how)
    assert figure_2._extreme("", seen, "largest", falls=True).agrees
    assert figure_2._extreme("", seen, "largest", falls=False).agrees is False
    assert figure_2._extreme("", seen, "smallest", falls=True).agrees
    lost = {name: d.assign(variance=d["variance"] * UNRESOLVED) for name, d in found.items()}
    seen = series(lost, "gd", "NTK", how)
    assert figure_2._extreme("", seen, "largest", falls=True).agrees is None
    assert figure_2._extreme("", seen, "largest", falls=False).agrees is None
    assert figure_2._extreme("", seen, "smallest", falls=True).agrees
    for loss, agrees in ((lambda n: np.log(2) - 20 / n, True), (lambda n: 0.6, False)):
        found, how = made([0.0] * 4, scalings=["mean field"], loss=loss)
        falling = figure_2._to_zero("", 3, series(found, "gd", "mean field", how))
        assert falling.agrees is agrees
        assert "predicted: 0.125" in falling.measured


@pytest.mark.parametrize(("power", "agrees"), [(-1.0, True), (-0.75, False)])
def test_exponents_of_another_setup(power, agrees):
    """Figures 6 and 7: one exponent of twelve is another multiple of a quarter."""
    first, how = made([0.0, 0.0, 0.0, -1.0], "one", LIMITS)
    second, _ = made([0.0, 0.0, 0.0, power], "two", LIMITS)
    one, two = (rows.Row(name, TINY, how, alike=True) for name in ("one", "two"))
    claim = rows.alike((one, two), first | second, two)
    assert claim.agrees == agrees
    assert agrees or "f_aw" in claim.measured
    lost = {name: d.assign(variance=d["variance"] * UNRESOLVED) for name, d in second.items()}
    assert rows.alike((one, two), first | lost, two).agrees is (None if agrees else False)


def test_distances_of_limits():
    """Wasserstein's distance: a shift, and the spread about a point."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 3))
    assert checks.distance(z, z + 0.3) == pytest.approx(0.3)
    assert checks.distance(z, np.zeros((1, 3))) == pytest.approx((2 / np.pi) ** 0.5, rel=0.1)
    reference, steps = 0.5 + 0.02 * rng.normal(size=(32, 1)), np.ones((1, 5))
    sets = {
        "curves": reference * steps,
        "limit mean field": 0.51 * steps,
        "limit NTK": (0.5 + 0.02 * rng.normal(size=(64, 1))) * steps,
        "limit intermediate": 0.55 * steps,
    }
    found = {
        f"gd/{name}": xarray.Dataset({"loss": (("sample", "step"), loss)})
        for name, loss in sets.items()
    }
    assert checks.closer(found, "gd", "NTK", "mean field", 0.1).agrees
    assert checks.closer(found, "gd", "mean field", "NTK", 0.1).agrees is False
    assert checks.closer(found, "gd", "mean field", "intermediate", 0.1).agrees
    assert checks.scatter(found, "gd").agrees
    found["gd/limit NTK"] = found["gd/limit NTK"] * 0.1 + 0.45
    assert checks.scatter(found, "gd").agrees is False


@pytest.mark.slow
def test_a_figure_from_images_to_files(tmp_path):
    """Figure 3 on made-up images: data, picture, claims; the second time, all is on disk."""
    wanted = replace(figure("004-3"), fast=Settings(TINY, Ladder((128, 160), 2)))
    said = []
    done = produce(wanted, IMAGES, tmp_path, fast=True, report=lambda *s: said.append(s))
    assert len(done.claims) == 12
    assert all(path.stat().st_size > 1000 for path in done.files)
    assert said[-1][1] == 1.0
    assert [part for _, part in said] == sorted(part for _, part in said)
    again = produce(wanted, IMAGES, tmp_path, fast=True)
    assert again.resumed == len(again.found) == 4
    assert [c.value for c in again.claims] == [c.value for c in done.claims]
    assert synthetic(seed=1).digest != IMAGES["cifar10"].digest


@pytest.mark.slow
def test_limits_of_a_setup():
    how = Ladder((128,), 2, 4, 64, 8)
    found = {part.name: part.compute(lambda a, b: None) for part in curves("x", TINY, IMAGES, how)}
    start = {name: data["loss"].values[:, 0] for name, data in found.items()}
    assert start["x/limit mean field"] == pytest.approx(np.log(2), rel=1e-3)
    assert start["x/limit intermediate"] == pytest.approx(np.log(2), rel=1e-6)
    assert len(start["x/limit NTK"]) == 8
    assert start["x/limit NTK"].std() > 0.003
    assert len(ladder("x", TINY, IMAGES, ("NTK", "default"), Ladder((128, 256)))) == 3


def test_every_figure_is_described():
    for name in FIGURES:
        one = figure(name)
        assert one.name == name
        if name.startswith(("001-", "004-")):
            number = re.sub(r"^([A-Z])(\d)", r"\1.\2", name.split("-")[1])
            kind = "Appendix" if number.isalpha() else "Table" if number[0] == "T" else "Figure"
            number = number.removeprefix("T.")
            assert one.source.endswith(f"{kind} {number}")
            endless = ("001-5", "001-6", "001-7", "001-B7", "001-H", "001-I", "001-M1", "001-T1")
            assert one.images or name in endless  # of infinite depth, without data
