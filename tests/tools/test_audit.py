"""Audits of models: what is flat, what is not, and what is refused."""

import contextlib
import csv
import time
from functools import partial

import pytest
import torch
from tests.transfer.torch_models import ResidualMLP
from torch import nn
from typer.testing import CliRunner

from largen.errors import InvalidInput
from largen.transfer.torch.survey import initial_moments
from tools.audit import audit, audit_stock, auditing
from tools.audit.__main__ import app
from tools.audit.fields import fields_at
from tools.audit.stock import StockModel
from tools.audit.table import Audit, Audited, Slope

BASE = {"width": 32, "depth": 2}


class Sizeless(nn.Module):
    """Adds what no weight and no module multiplies."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.out = nn.Linear(3, width), nn.Linear(width, 2)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = h + torch.tanh(block(h))
        return self.out(h)


class Silent(ResidualMLP):
    """A read-out that starts at zero: no transient of the initial output."""

    def __init__(self, width, depth):
        super().__init__(width, depth)
        nn.init.zeros_(self.out.weight)


def test_right_plans_are_flat():
    row = audit(Silent, {"width": 64, "depth": 4}, growth=(1, 4), seeds=3)
    assert row.verdict == "flat", row
    assert row.width is not None
    assert row.depth is not None


def test_undecided_slopes_are_measured_again_with_more_networks():
    make, base = partial(Silent, depth=2), {"width": 16}
    options = {"growth": (1, 2), "steps": 1, "seeds": 2, "scheme": "mup"}
    first = audit(make, base, most_seeds=2, **options)
    again = audit(make, base, most_seeds=8, **options)
    decided = audit(make, base, most_seeds=8, tolerance=9.0, **options)
    assert first.verdict == "undecided"
    eight = audit(make, base, most_seeds=8, **options | {"seeds": 8})
    assert str(again.width) == str(eight.width)
    assert str(again.width) != str(first.width) == str(decided.width)
    with pytest.raises(InvalidInput, match="most_seeds"):
        audit(make, base, most_seeds=1, **options)


def test_the_standard_scheme_is_not_flat():
    row = audit(ResidualMLP, BASE, growth=(1, 4), seeds=3, scheme="standard")
    assert row.verdict == "not flat"
    assert row.width is not None
    assert row.width.value > 0.5
    assert "changes" in row.width.worst


def test_what_has_no_plan_is_refused_and_what_cannot_be_built_is_no_refusal():
    refused = audit(Sizeless, BASE, growth=(1, 2), seeds=2)
    assert refused.verdict == "refused"
    assert "which no weight and no module multiplies" in refused.refusal

    def broken(width, depth):
        raise KeyError("nothing")

    found = audit(broken, BASE, growth=(1, 2), seeds=2)
    assert (found.verdict, found.failure) == ("not built", "KeyError: 'nothing'")


def test_verdicts_and_tables(tmp_path):
    rows = (
        Audited("a", width=Slope(0.1, 0.1), depth=Slope(0.0, 0.1)),
        Audited("b | c", width=Slope(0.25, 0.1), depth=Slope(0.0, 0.1), notes=("one", "two")),
        Audited("d", width=Slope(0.25, 0.1), depth=Slope(-0.6, 0.1, "h changes -0.70, is +0.00")),
        Audited("e", refusal="name the queries"),
        Audited("f", failure="KeyError"),
    )
    verdicts = ["flat", "undecided", "not flat", "refused", "not built"]
    assert [row.verdict for row in rows] == verdicts
    table = Audit(rows, "mup, adam")
    wanted = "1 flat, 1 undecided, 1 not flat, 1 refused of 4 that can be built"
    assert table.summary() == wanted
    table.save(tmp_path / "a.md")
    text = (tmp_path / "a.md").read_text()
    assert text.startswith(f"mup, adam: {wanted}.")
    assert "| b \\| c |" in text
    table.save(tmp_path / "a.csv")
    read = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert [row["verdict"] for row in read] == verdicts
    assert read[2]["inside"] == "depth: h changes -0.70, is +0.00"
    with pytest.raises(InvalidInput, match="path"):
        table.save(tmp_path / "a.txt")


def test_the_command(tmp_path):
    path = tmp_path / "table.md"
    arguments = ["tests.tools.test_audit:Silent"]
    sizes = ["--base", "width=16", "--base", "depth=2", "--seeds", "2"]
    result = CliRunner().invoke(app, [*arguments, *sizes, "-o", str(path)])
    assert result.exit_code == 0, result.output
    assert "| Silent |" in path.read_text()
    for wrong in (["nothing"], ["largen:nothing"], [arguments[-1], "--base", "width"]):
        result = CliRunner().invoke(app, wrong)
        assert result.exit_code == 2
        assert "wanted" in result.output or "not found" in result.output


def test_fields_of_stages():
    class Config:
        def __init__(self):
            self.depths, self.hidden_sizes, self.num_hidden_layers = [3, 3], [8, 16], 12
            self.num_labels = 2

    assert fields_at(Config(), 64, 2, {}) == {
        "depths": [2, 2], "hidden_sizes": [32, 64], "num_labels": 10, "image_size": 64,
        "patch_size": 4,
    }  # fmt: skip


class Rejected(nn.Module):
    """Draws a large tensor until all of it is within bounds, beside a small one."""

    def __init__(self, width):
        super().__init__()
        self.large = nn.Parameter(torch.empty(500, 600))
        self.small = nn.Parameter(torch.randn(2))
        while True:
            self.large.data.normal_()
            if bool((self.large.abs() < 8).all()) and bool((self.large != 0).any()):
                break


def test_initialisations_that_draw_until_they_like_it_end():
    moments = initial_moments(Rejected, {"width": 1}, {n: n for n in ("large", "small")}, 20)
    assert moments["small"].count >= 20


def test_rows_are_kept_as_they_are_found_and_slow_models_are_left(tmp_path, monkeypatch):
    def waits(width, depth):
        time.sleep(30)

    def swallows(width, depth):  # as a callback of the garbage collection does
        with contextlib.suppress(BaseException):
            time.sleep(30)
        time.sleep(30)

    def fails(width, depth):
        raise ValueError("no such model")

    monkeypatch.setattr(auditing, "AGAIN", 0.1)
    models = [StockModel(f.__name__, "of mine", "text", f) for f in (fails, waits, swallows)]
    monkeypatch.setattr(auditing, "stock_models", lambda which: models)
    table, seen = tmp_path / "table.csv", []
    begin = time.monotonic()
    found = audit_stock(
        save=table, limit=0.2, progress=lambda row: seen.append(len(table.read_text().splitlines()))
    )
    assert time.monotonic() - begin < 10
    assert [row.verdict for row in found] == ["not built", "refused", "refused"]
    assert {row.refusal for row in found.rows[1:]} == {"it takes longer than 0.2 s"}
    assert seen == [2, 3, 4]
    assert table.read_text() == found.to_csv()
    with pytest.raises(InvalidInput, match=r"path: '.txt' is not known"):
        audit_stock(save="table.txt")


def test_stock_models_of_transformers():
    pytest.importorskip("transformers")
    found = audit_stock(["Llama, one head", "T5"], growth=(1, 2), seeds=2, steps=2)
    assert [row.model for row in found] == ["Llama, one head of keys", "T5"]
    assert all(row.verdict in ("flat", "undecided") for row in found), str(found)
    assert "shared" in found.rows[0].notes[0]


def test_stock_models_of_timm():
    pytest.importorskip("timm")
    found = audit_stock(["ViT (timm)"], growth=(1, 2), seeds=2, steps=2)
    assert found.rows[0].verdict in ("flat", "undecided"), str(found)
