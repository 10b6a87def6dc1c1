"""Diagnoses: a cause that was put in is named, and intervals are Student's."""

from math import inf, sqrt

import numpy as np
import pytest
import torch
from tests.transfer.torch_models import ResidualMLP

from largen.errors import InvalidInput
from largen.transfer import Change, Diagnosis
from largen.transfer.diagnoses import change
from largen.transfer.torch import TorchPlan, diagnose, scale

SIZES = {"width": 8, "depth": 2}, {"width": 32, "depth": 2}


def batches():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 64, generator=generator)
    y = torch.tanh(x @ torch.randn(64, 10, generator=generator) / 8)
    return [(x[i : i + 16], y[i : i + 16]) for i in range(0, 64, 16)]


def loss(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()


@pytest.fixture(scope="module")
def plan():
    return scale(ResidualMLP, *SIZES, scheme="mup", optimizer="adamw")


@pytest.mark.parametrize(
    ("given", "cause"),
    [({"weight_decay": 20.0}, "no weight decay"), ({"weight_decay": 0.0, "eps": 10.0}, "ε = 0")],
)
def test_the_cause_that_was_put_in_is_named_first(plan, given, cause):
    found = diagnose(plan, batches(), loss, lrs=[3e-3, 1e-2], steps=40, seeds=3, **given)
    assert found.reasons[0].name == cause, str(found)
    tried = {row.name for row in found.changes}
    assert ("no weight decay" in tried) == bool(given["weight_decay"])
    assert "hidden × n^½" in tried
    assert cause in str(found)


def test_what_changes_nothing_gains_nothing(plan):
    # ε = 1e-30 instead of 1e-29: the same training.
    found = diagnose(
        plan, batches(), loss, lrs=[3e-3], steps=5, seeds=2, weight_decay=0.0, eps=1e-29
    )
    row = next(row for row in found.changes if row.name == "ε = 0")
    assert row.gain == pytest.approx(0, abs=1e-9)
    assert not row.helps


def test_intervals_and_verdicts():
    plan = np.array([1.0, 1.2, 1.1])
    own = change("a", "", {0.1: plan - [0.3, 0.2, 0.1], 0.2: plan + 1}, plan, 1)
    # Student's 0.975 quantile with two degrees of freedom is 4.302653.
    assert (own.lr, own.gain) == (0.1, pytest.approx(0.2))
    assert own.margin == pytest.approx(4.302653 * 0.1 / sqrt(3), rel=1e-6)
    assert not own.helps
    diverged = change("b", "", {0.1: np.array([1.0, inf, 1.0])}, plan, 1)
    assert (diverged.loss, diverged.helps) == (inf, False)
    helps = Change("c", "", 0.1, 0.6, 0.5, 0.1)
    standard = Change("standard scheme", "", 0.1, 0.1, 1.0, 0.1)
    table = Diagnosis("mup", 0.1, 1.1, standard, (own, diverged, helps), "adam")
    assert table.reasons == (helps,)
    assert table.verdict == "mup loses by 1; what makes up for it: c (50% of the gap)"
    assert "diverges" in str(table)
    assert "no change that was tried" in Diagnosis("mup", 0.1, 1.1, standard, (own,)).verdict
    assert "does not lose" in Diagnosis("mup", 0.1, 1.1, own, (helps,)).verdict


def test_plans_that_cannot_be_trained_are_refused(plan):
    for wrong, message in (
        (TorchPlan.from_json(plan.to_json()), "read from JSON"),
        (scale(ResidualMLP, *SIZES, scheme="standard"), "not for the standard"),
        (scale(ResidualMLP, *SIZES, optimizer="lion"), "no single optimizer"),
    ):
        with pytest.raises(InvalidInput, match=message):
            diagnose(wrong, batches(), loss, lrs=[0.1])
    with pytest.raises(InvalidInput, match="lrs"):
        diagnose(plan, batches(), loss, lrs=[])
