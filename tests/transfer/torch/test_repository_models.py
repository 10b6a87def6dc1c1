"""Plans of models from repositories: right ones train alike, the others are warned of by name."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from tests.transfer.repository_models import ALIKE, NAMED, Stacked, mixer
from tests.transfer.verified_models import IMAGES, ROWS

from largen.errors import InvalidInput, WrongPlan
from largen.transfer.coordinates import slope_with_margin
from largen.transfer.schemes import scheme_of
from largen.transfer.torch import scale
from largen.transfer.torch.causes import _vanishing_branches
from largen.transfer.torch.surveys import Specimens

STEPPERS = {
    "adam": lambda groups: torch.optim.Adam(groups, eps=1e-14),
    "sgd": torch.optim.SGD,
}


def learned(make, example, optimizer, widths, lr, seeds=4):
    """Return the slope of the coherent part of the output's change by four steps."""
    rows = []
    for width in widths:
        plan = scale(
            make, {"width": widths[0]}, {"width": width}, scheme="mup", optimizer=optimizer,
            example=example, verify=False,
        )  # fmt: skip
        row = []
        for seed in range(seeds):
            model = plan.build(seed=seed)
            groups = plan.param_groups(model, lr=lr)
            stepper = STEPPERS[optimizer]([{"params": g["params"], "lr": g["lr"]} for g in groups])
            start = model(*example).detach()
            direction = torch.randn(start.shape, generator=torch.Generator().manual_seed(5))
            for _ in range(4):
                stepper.zero_grad()
                (model(*example) * direction).mean().backward()
                stepper.step()
            row.append(float(((start - model(*example).detach()) * direction).mean()))
        rows.append(row)
    return slope_with_margin(np.array(widths), np.array(rows), 0.975)


class Towers(torch.nn.Module):
    """Normalised features of a fixed number, which start as small as read-outs do."""

    def __init__(self, width):
        super().__init__()
        self.a, self.b = (
            torch.nn.Sequential(
                torch.nn.Linear(inputs, width), torch.nn.ReLU(), torch.nn.Linear(width, 4)
            )
            for inputs in (5, 3)
        )
        self.logit_scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, a, b):
        a, b = (torch.nn.functional.normalize(z, dim=-1) for z in (self.a(a), self.b(b)))
        return self.logit_scale.exp() * a @ b.t()


def test_a_wrong_plan_of_a_model_with_a_scalar_is_warned_of():
    draw = np.random.default_rng(0).standard_normal
    example = tuple(torch.tensor(draw((6, k)), dtype=torch.float32) for k in (5, 3))
    with pytest.warns(WrongPlan, match="output"):
        scale(Towers, {"width": 64}, {"width": 256}, scheme="mup", optimizer="sgd", example=example)


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "lr"), [("adam", 1e-3), ("sgd", 3e-3)])
@pytest.mark.parametrize("name", ALIKE)
def test_models_of_repositories_train_alike(name, optimizer, lr, recwarn):
    make, example = ALIKE[name]
    widths = (16, 32, 64) if name == "diffusion u-net" else (32, 64, 128, 256)
    sizes = {"width": widths[0]}, {"width": widths[-1]}
    plan = scale(make, *sizes, scheme="mup", optimizer=optimizer, example=example)
    assert plan.verified[0].passed, plan.verified[0]
    assert not [w for w in recwarn if w.category is WrongPlan]
    slope, margin = learned(make, example, optimizer, widths, lr)
    assert abs(slope) < min(0.1 + margin, 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_what_no_plan_makes_alike_is_named(name):
    key, make, example, optimizer, words = NAMED[name]
    base = 2 if name == "decoder" else 4 if key == "depth" else 32
    scheme = "mup" if key == "width" else "complete_p"
    with pytest.warns(WrongPlan, match=words):
        plan = scale(
            make, {key: base}, {key: 8 * base}, scheme=scheme, optimizer=optimizer, example=example
        )
    if plan.verified[0].cause:
        with pytest.raises(InvalidInput, match=f"(?s)no power of a setting.*{words}"):
            plan.repaired()


@pytest.mark.slow
def test_a_drift_below_the_threshold_of_few_networks_takes_more():
    """Stacked blocks under gradient descent fade by l^(-0.5), as an update of four networks may."""
    sizes = {"depth": 4}, {"depth": 32}
    with pytest.warns(WrongPlan, match="32 networks each"):
        plan = scale(Stacked, *sizes, scheme="complete_p", optimizer="sgd", example=(ROWS,))
    (effect,) = plan.verified[0].flags
    assert (effect.kind, effect.where, effect.flag) == ("output", "", "fades")
    assert effect.slope == pytest.approx(-0.47, abs=0.1)
    adam = scale(Stacked, *sizes, scheme="complete_p", optimizer="adam", example=(ROWS,))
    assert adam.verified[0].passed


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["complete_p", "depth_mup"])
def test_parts_behind_blocks_are_compared_by_the_bases_names(scheme, recwarn):
    plan = scale(mixer, {"depth": 2}, {"depth": 8}, scheme=scheme, example=(IMAGES,))
    assert plan.verified[0].passed, plan.verified[0]
    assert not [w for w in recwarn if w.category is WrongPlan]


def test_a_fading_stream_is_no_cause_where_the_scheme_keeps_its_sum():
    fits = {("start", "input of out", ""): (-0.5, 0.1)}
    for scheme, found in (("depth_mup", False), ("complete_p", True)):
        specimens = Mock(spec=Specimens)
        specimens.facts = [Mock(blocks=(), names={})]
        specimens.request = Mock(scheme=scheme_of(scheme))
        words = _vanishing_branches(specimens, fits)
        assert ("scheme='depth_mup'" in words) == found
