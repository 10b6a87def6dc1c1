"""The scripts in ``examples/``, each at its smallest: they run, print and draw."""

import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

ROOT = Path(__file__).parent.parent
NAMES = [
    "characters",
    "edge_of_stability",
    "features_that_learn",
    "images_by_kernels",
    "small_gpt",
    "transfer_demo",
    "transformer_rates",
    "tuned_base",
]
SHARED = {"__init__", "tasks"}


def example(name):
    """The module of an example, whose main is not run by importing it."""
    return import_module(f"examples.{name}")


def test_every_example_is_tested_here():
    names = {path.stem for path in (ROOT / "examples").glob("*.py")} - SHARED
    assert sorted(names) == NAMES


@pytest.mark.parametrize(
    "title", ["fully connected", pytest.param("convolutional", marks=pytest.mark.slow)]
)
def test_images_by_kernels(title, tmp_path, monkeypatch, capsys):
    x, y = load_digits(return_X_y=True)
    x = np.round(x.reshape(-1, 8, 8) * 15).astype(np.uint8)
    np.savez(
        tmp_path / "mnist.npz", x_train=x[:100], y_train=y[:100], x_test=x[100:], y_test=y[100:]
    )
    images = example("images_by_kernels")
    assert set(images.NETWORKS) == {"fully connected", "convolutional"}
    monkeypatch.setattr(images, "NETWORKS", {title: images.NETWORKS[title]})
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path), "--train", "60", "--test", "20"])
    images.main()
    out = capsys.readouterr().out
    rows = re.findall(rf"mnist +{title} +(nngp|ntk) +(\d\.\d+) ±", out)
    assert [kind for kind, _ in rows] == ["nngp", "ntk"]
    assert min(float(share) for _, share in rows) > 0.5  # of ten classes
    assert "cifar10         not found" in out


def test_characters(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    words = f"{ROOT / 'README.md'} --output {tmp_path / 'out'} --steps 10 --rates -9 -7"
    monkeypatch.setattr(sys, "argv", ["", *f"{words} --widths 8 16 --depths 1 2".split()])
    example("characters").main()
    out = capsys.readouterr().out
    assert "complete_p" in out
    assert "the best constant answer" in out
    assert (tmp_path / "out" / "rates.png").stat().st_size > 10_000
    assert len(list((tmp_path / "out" / "cells").glob("*.npz"))) == 6


@pytest.mark.slow
def test_tuned_base(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    words = f"gpt vit mlp --text {ROOT / 'README.md'} --output {tmp_path} --steps 3 --draws 4"
    monkeypatch.setattr(sys, "argv", ["", *f"{words} --seeds 2".split()])
    example("tuned_base").main()
    assert capsys.readouterr().out.count("4 draws, 7 trainings") == 3
    rows = (tmp_path / "tuned_base.csv").read_text().splitlines()[1:]
    recipes = [row.partition(":")[0] for row in rows]
    assert recipes == [
        f"{m},{s}" for m in ("gpt", "vit", "mlp") for s in 4 * ["mup"] + ["standard"]
    ]


@pytest.mark.slow
def test_transfer_demo(tmp_path, monkeypatch, capsys):
    """Its numbers are those of its sweeps, and only the wrong scheme's slopes grow."""
    pytest.importorskip("torch")
    demo = example("transfer_demo")
    small = demo.Settings(
        base=(16, 2), target=(32, 4), lrs=(2.0**-6, 2.0**-4), around=(0.5, 1.0), steps=20,
        batch_size=32, check_widths=(16, 64), check_depths=(2, 8),
    )  # fmt: skip
    seen = []
    found = demo.transfer_demo(small, lambda text, done: seen.append((text, done)))
    assert found.lr == 2.0**-4  # the larger of two small rates
    for scheme, (here, best, lr) in found.losses().items():
        assert best <= here
        loss = found.large.data["loss"].sel(scheme=scheme).squeeze()
        assert float(loss.sel(lr=found.lr)) == here
        assert float(loss.sel(lr=lr)) == best
    assert found.plan.depth_ratio == 2.0
    slopes = {scheme: layers["output"] for scheme, layers in found.slopes().items()}
    assert slopes["standard"][0] > slopes["depth_mup"][0] + 0.3
    assert slopes["standard"][1] > slopes["depth_mup"][1] + 0.3
    done = [part for _, part in seen]
    assert done == sorted(done)
    assert np.isclose(done[-1], 0.9)

    monkeypatch.setattr(demo, "FAST", small)
    monkeypatch.setattr(demo, "transfer_demo", lambda *given: found)
    monkeypatch.setattr(sys, "argv", ["", "--fast", "--output", str(tmp_path)])
    demo.main()
    out = capsys.readouterr().out
    assert f"The best is {found.lr:g}" in out
    assert "slope in depth" in out
    assert (tmp_path / "large.png").stat().st_size > 10_000


@pytest.mark.slow
def test_small_gpt(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", "--steps", "3", "--out", str(tmp_path)])
    example("small_gpt").main()
    out = capsys.readouterr().out
    before, after = map(float, re.search(r"character (\S+) → (\S+);", out).groups())
    assert before == round(np.log(19), 3)  # 19 different characters
    assert after < before - 0.2
    assert len(re.findall(r"'y' 0\.\d+", out)) == 2
    assert (tmp_path / "limit.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["large keys", "heads"])
def test_transformer_rates(kind, tmp_path, monkeypatch, capsys):
    words = f"--samples 4 --steps 2 --rates 1 3 9 --widths 16 --depths 1 --out {tmp_path}"
    heads = [] if kind == "large keys" else ["--key-size", "4"]
    monkeypatch.setattr(sys, "argv", ["", *words.split(), *heads])
    example("transformer_rates").main()
    out = capsys.readouterr().out
    (limit,) = re.findall(r"1 block: best rate of the limit (\S+)", out)
    assert 1 < float(limit) < 9
    assert "width 16, 4 heads: best rate" in out
    assert ("width 16, 1 head: " in out) == (kind == "large keys")
    assert (tmp_path / "1_blocks.png").stat().st_size > 10_000


@pytest.mark.slow
def test_transformer_rates_over_key_sizes(tmp_path, monkeypatch, capsys):
    words = f"--samples 4 --steps 2 --rates 1 3 9 --depths 1 --key-sizes 4 --out {tmp_path}"
    monkeypatch.setattr(sys, "argv", ["", *words.split()])
    example("transformer_rates").main()
    large, finite = re.findall(r"best rate (\S+),", capsys.readouterr().out)
    assert 1 < float(large) < 9
    assert 0.5 < float(finite) / float(large) < 2
    assert (tmp_path / "key_sizes.png").stat().st_size > 10_000


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("kernels", "depth")]


@pytest.mark.slow
@pytest.mark.parametrize("drawing", ["richness", *SLOW])
def test_features_that_learn(drawing, tmp_path, capsys):
    features = example("features_that_learn")
    match drawing:
        case "kernels":
            features.kernels(tmp_path, width=32, seeds=2, steps=2, samples=(4, 1))
            assert "mean field" in capsys.readouterr().out
        case "richness":
            features.richness(tmp_path, gammas=(0.5, 1.0), steps=2, samples=(4, 1))
        case "depth":
            features.depth(tmp_path, depths=(1, 2, 4), steps=2, particles=2**10)
            assert "linear, L =  1 and  2" in capsys.readouterr().out
    assert (tmp_path / f"{drawing}.png").stat().st_size > 10_000


@pytest.mark.slow
def test_edge_of_stability(tmp_path, monkeypatch, capsys):
    """The sharpness rises to the edge and stays there, at infinite width and at a finite one."""
    words = f"--out {tmp_path} --samples 20 --steps 100 --width 256 --particles 32"
    monkeypatch.setattr(sys, "argv", ["", *words.split(), "--fractions", "0.1", "0.3"])
    example("edge_of_stability").main()
    out = capsys.readouterr().out
    ends = dict(re.findall(r"(\S+) of the critical rate +η₀λ/P from \S+ to (\S+), loss", out))
    assert 0.9 < float(ends["0.1"]) < 1.2  # five times what it was, and below the edge
    assert 1.8 < float(ends["0.3"]) < 2.0  # at the edge: five times would be 3
    (at_width,) = re.findall(r"at width 256 to (\S+)", out)
    assert abs(float(at_width) - float(ends["0.1"])) < 0.1
    assert (tmp_path / "edge.png").stat().st_size > 10_000
