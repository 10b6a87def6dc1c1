"""Golikov's figures: their parts against definitions, and their claims on data made for them."""

from dataclasses import replace

import numpy as np
import pytest
import xarray

import largen as lg
from largen.experiments.figures import FIGURES, Images, figure, produce
from largen.experiments.figures.golikov import checks
from largen.experiments.figures.golikov.figure_1 import Settings
from largen.experiments.figures.golikov.parts import curves, ladder
from largen.experiments.figures.golikov.series import series
from largen.experiments.figures.golikov.setups import Ladder, Setup, run_of
from largen.experiments.figures.golikov.terms import Final, split_outputs, term_names

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
    network = lg.finite_network(lg.mlp(layers, "leaky_relu"), lg.mup(), width=12, inputs=4)
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
    """App. A: deviations of uniform weights within ±1/√fan_in, raw rates 0.02, at width 128."""
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


def test_what_is_measured_of_a_network():
    """Loss, variances and increments, against the definitions of App. C."""
    run = run_of(TINY, IMAGES, "NTK")
    measured = lg.observe(run, 128, 2, 0, Final(run))
    start, end = lg.observe(run, 128, 2, 0, lambda network, start, end, x: (start, end))
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


def made(power, seeds=16, widths=(128, 256, 512, 1024), shift=0.0):
    """Parts as they would be found if every variance were a power of the width."""
    rng, found = np.random.default_rng(0), {}
    for n in widths:
        noise = np.exp(0.05 * rng.normal(size=(seeds, 4)))
        title = "reference" if n == 128 else "NTK"
        found[f"gd/{title} N={n}"] = xarray.Dataset(
            {
                "loss": ("seed", 0.4 + shift + 1 / n + 0.001 * rng.normal(size=seeds)),
                "variance": (("seed", "term"), n ** (2 * np.array(power)) * noise),
                "increment": (("seed", "weight"), n**-0.5 * noise[:, :2]),
            },
            {"term": term_names(1), "weight": ["w", "a"]},
        )
    return found, Ladder(widths, seeds)


def test_claims_hold_for_what_is_predicted_and_fail_for_what_is_not():
    found, how = made([0.0, 0.0, 0.0, -1.0])
    seen = series(found, "gd", "NTK", how)
    right = checks.exponents(seen, 50) + checks.exponents(seen, 50, "increments")
    assert len(right) == 6
    assert sum(claim.agrees for claim in right) >= 5  # intervals of 95 %
    assert max(abs(claim.value - q) for claim, q in zip(right, FIRST, strict=True)) < 0.05
    assert checks.convergence(seen).agrees
    assert checks.slowing(seen, "a").agrees is None  # it is a power law
    bent = {n: d.assign(variance=d["variance"] + 5 / d["loss"].size) for n, d in found.items()}
    assert checks.slowing(series(bent, "gd", "NTK", how), "aw").agrees
    wrong = series(*made([0.0, 0.5, 0.0, -1.0])[:1], "gd", "NTK", how)
    verdicts = {claim.measured: claim.agrees for claim in checks.exponents(wrong, 50)}
    assert verdicts["exponent of f_∅"]
    assert not verdicts["exponent of f_a"]


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
    assert checks.scatter(found, "gd")[0].agrees


def test_a_figure_from_images_to_files(tmp_path):
    """Figure 3 on made-up images: data, picture, claims; the second time, all is on disk."""
    wanted = replace(figure("004-3"), fast=Settings(TINY, Ladder((128, 160), 2)))
    said = []
    done = produce(wanted, IMAGES, tmp_path, fast=True, report=lambda *s: said.append(s))
    assert len(done.claims) == 8
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
        number = name.split("-")[1].replace("B", "B.")
        assert one.source.endswith(f"Figure {number}")
        assert one.images
