"""Repairs end in plans that are right at other sizes too, or in refusals with what was measured.

Models that plans or repairs were wrong for are planned right by what their forward pass does.
"""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.transfer.faulty_models import FAULTS
from tests.transfer.repair_models import (
    MADE_RIGHT,
    REFUSED,
    REPAIRED,
    SPECTRAL,
    DeepFM,
    Hamiltonian,
    Memory,
    TiedAutoencoder,
    chebyshev,
    normed,
    scalar,
)
from tests.transfer.verified_models import IDS, ROWS, mlp
from torch import nn
from torch.nn import functional as F

from largen.errors import InvalidInput, WrongPlan
from largen.transfer import proposals, repair
from largen.transfer.coordinates import slope_with_margin
from largen.transfer.copies import equal_copies, of_all_copies
from largen.transfer.corrections import Correction
from largen.transfer.plan_entries import ScaledWeight
from largen.transfer.proposals import Networks
from largen.transfer.torch import scale
from largen.transfer.torch.surveys import settle
from largen.transfer.verdicts import Layout
from largen.transfer.verified import Effect, Verification
from largen.transfer.verifying import NotVerified, Slopes

BASE = {"width": 32}
OTHERS = (96, 192, 384)  # widths that no plan is verified at


def plan_at(make, example, width=256, optimizer="adam", **options):
    """Return a plan without its warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WrongPlan)
        sizes = BASE, {"width": width}
        return scale(make, *sizes, scheme="mup", optimizer=optimizer, example=example, **options)


def trained(make, example, repaired, optimizer="adam", lr=1e-3, widths=OTHERS, seeds=4):
    """Return the slopes of the coherent change of the output by four steps, and of its start."""
    changes, starts = [], []
    for width in widths:
        plan = plan_at(make, example, width, optimizer, verify=repaired)
        plan = plan.repaired() if repaired else plan
        for seed in range(seeds):
            model = plan.build(seed=seed).train()
            settle(model, partial(model, *example))
            groups = plan.param_groups(model.train(), lr=lr, eps=1e-14)
            moving = torch.optim.Adam(groups)
            start = model(*example).detach()
            direction = torch.randn(start.shape, generator=torch.Generator().manual_seed(5))
            for _ in range(4):
                moving.zero_grad()
                (model(*example) * direction).mean().backward()
                moving.step()
            changes.append(float(((start - model(*example).detach()) * direction).mean()))
            starts.append(float(start.square().mean().sqrt()))
    x = np.array(widths, float)
    return [slope_with_margin(x, np.reshape(own, (len(x), -1)), 0.975) for own in (changes, starts)]


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE_RIGHT)
def test_models_that_are_planned_right_train_alike_at_other_widths(name):
    case = MADE_RIGHT[name]
    assert plan_at(*case).verified[0].passed
    (change, margin), (start, more) = trained(*case, repaired=False)
    assert abs(change) < min(0.1 + margin, 0.2)
    assert start - more < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", [*REPAIRED, *FAULTS])
def test_repaired_plans_start_and_train_alike_at_other_widths(name):
    case = REPAIRED[name] if name in REPAIRED else FAULTS[name][:2]
    assert not plan_at(*case).verified[0].passed
    (change, margin), (start, more) = trained(*case, repaired=True)
    assert abs(change) < min(0.1 + margin, 0.2)
    assert start - more < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_what_no_repair_makes_right_is_refused_with_what_was_measured(name):
    plan = plan_at(*REFUSED[name])
    assert not plan.verified[0].passed
    with pytest.raises(InvalidInput, match=r"(?s)measured powers .*\nwrong in width .*n\^\("):
        plan.repaired()


class Constant(Networks):
    """Networks whose slopes are what they are, whatever is corrected."""

    along, kind, ratios, names, copies = "width", "normalised", (1.0, 2.0, 4.0), {}, {}

    def __init__(self, slope=1.0, margin=0.05):
        self.fit, self.surveys = (slope, margin), 0

    def survey(self, corrections=(), inputs=False, seeds=4):
        self.surveys += 1
        layout = Layout(("h", "o"), {"h.w": "h", "o.w": "o"}, frozenset("o"), frozenset({"o.w"}),
                        frozenset())  # fmt: skip
        fits = {("output", place, name): self.fit for place, name in
                (("", "h.w"), ("", "o.w"), ("all", ""), ("inner", ""))}  # fmt: skip
        rows = [[{("output", "", "h.w"): 1.0}] * seeds] * 3
        return Slopes(fits, layout, layout, rows)


WRONG = Verification("width", (1.0, 2.0, 4.0), 4, (Effect("output", "", 1.0, 0.1, "grows"),))


def test_a_repair_that_returns_to_settings_it_had_ends_there(monkeypatch):
    networks, signs = Constant(), iter([-1.0, 1.0] * 8)
    monkeypatch.setattr(
        repair, "next_corrections", lambda *a: [Correction("output", "", next(signs))]
    )
    corrections, after = repair._corrections(networks, WRONG)
    assert corrections == [Correction("output", "", -1.0)]
    assert after.flags
    assert networks.surveys == 3


def test_no_power_follows_from_a_slope_that_is_not_known():
    known, unknown = Constant(margin=0.19), Constant(margin=0.21)
    (found,) = proposals.next_corrections(known, known.survey(), [], [])
    assert found == Correction("output", "", -1.0)
    assert proposals.next_corrections(unknown, unknown.survey(), [], []) == []
    corrections, after = repair._corrections(unknown, WRONG)
    assert (corrections, after.seeds) == ([], 59)  # until too many would be needed
    hopeless = Constant(1.5, margin=0.9)
    assert repair._corrections(hopeless, WRONG)[1].seeds == 4


def test_what_passes_at_the_sizes_used_alone_is_refused(monkeypatch):
    right, wrong = Constant(0.0), Constant(0.6)
    plan = plan_at(mlp, (ROWS,), verify=False)
    plan = replace(plan, verified=(WRONG,))
    used = []

    def networks_of(along, steps):
        used.append(steps)
        if steps == repair.OTHER_STEPS[0]:
            raise NotVerified("no such sizes")
        return right if steps == repair.STEPS else wrong

    with pytest.raises(InvalidInput, match=r"(?s)and not at others.*all +\+0\.60 ± 0\.05"):
        repair.repaired(plan, plan.request.hints, networks_of)
    assert used == [repair.STEPS, *repair.OTHER_STEPS[:2]]
    monkeypatch.setattr(repair, "OTHER_STEPS", repair.OTHER_STEPS[:1])
    with pytest.raises(InvalidInput, match="not measured again, no such sizes"):
        repair.repaired(plan, plan.request.hints, networks_of)


def test_wide_intervals_decide_nothing():
    wide = Verification("width", (1.0, 2.0), 32, (Effect("output", "", 0.1, 0.4),))
    assert not wide.passed
    assert str(wide).startswith("not decided in width (base × 1, 2, 32 networks each): wide")
    assert replace(wide, effects=(Effect("output", "", 0.1, 0.2),)).passed


def test_copies_of_a_block_get_equal_powers():
    def row(name, shape=(8, 8), role="hidden"):
        weight = object.__new__(ScaledWeight)  # with what copies are told by alone
        weight.__dict__.update(name=name, base_shape=shape, role=role)
        return weight

    inner = [f"b.{i}.{leaf}" for i in range(3) for leaf in ("g", "a.weight")]
    rows = [*map(row, inner), row("c.0.a.weight", (8, 3)), row("c.1.a.weight")]
    rows += [row("0.weight"), row("2.weight")]  # layers are no blocks
    copies = equal_copies(rows)
    assert list(copies) == inner
    assert copies["b.0.g"] == copies["b.2.g"] != copies["b.0.a.weight"]
    found = [Correction("lr", "b.0.g", -1.0), Correction("lr", "b.1.g", -0.5)]
    found += [Correction("init", "c.1.a.weight", 1.0)]
    assert of_all_copies(found, copies) == [
        *(Correction("lr", f"b.{i}.g", -1.0) for i in range(3)), found[-1]
    ]  # fmt: skip


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("all_layers", [False, True])
def test_weight_normalised_models_start_as_others_do(old, all_layers):
    """And their directions have the rates of weights, their lengths the same relative rates."""
    norm = nn.utils.weight_norm if old else nn.utils.parametrizations.weight_norm
    own = plan_at(partial(normed, norm=norm, all_layers=all_layers), (ROWS,), verify=False)
    other = plan_at(mlp, (ROWS,), verify=False)
    v, g = ("weight_v", "weight_g") if old else (
        f"parametrizations.weight.original{i}" for i in (1, 0)
    )  # fmt: skip
    assert torch.allclose(own.build(seed=0)(ROWS), other.build(seed=0)(ROWS), atol=1e-6)
    for layer, power in (("0", 0), ("2", 0), ("4", -0.5)) if all_layers else (("4", -0.5),):
        rows = own[f"{layer}.{v}"], other[f"{layer}.weight"]
        assert len({(row.role, row.init, row.lr, row.eps) for row in rows}) == 1
        assert own[f"{layer}.{g}"].init == pytest.approx(8**power)
        assert own[f"{layer}.{g}"].lr == pytest.approx(8**power)
    sgd = plan_at(partial(normed, norm=norm), (ROWS,), optimizer="sgd", verify=False)
    assert sgd[f"4.{g}"].lr == pytest.approx(1 / 8)


@pytest.mark.parametrize("way", SPECTRAL)
def test_weights_divided_by_their_norm_have_the_entries_of_their_role(way):
    """The factor is that of the finite sides: (√n + √8) for n × 8, and not √n."""
    make, example = SPECTRAL[way]
    entries: dict[str, list[float]] = {"0": [], "2": [], "4": []}
    for width in (32, 256):
        plan, other = (plan_at(m, example, width, verify=False) for m in (make, mlp))
        model = plan.build(seed=0)
        settle(model, partial(model, ROWS))
        for layer, found in entries.items():
            factor = next((m.factor for m in plan.multipliers if m.module == layer), 1.0)
            bias = other[f"{layer}.bias"]
            assert plan[f"{layer}.bias"].init * factor == pytest.approx(bias.init)
            assert plan[f"{layer}.bias"].lr * factor == pytest.approx(bias.lr)
            weight = model.get_submodule(layer).weight.detach()
            found.append(factor * float(weight.square().mean().sqrt()))
    for layer, power in (("0", 0), ("2", -0.5), ("4", -1)):
        small, large = entries[layer]
        assert np.log2(large / small) / 3 == pytest.approx(power, abs=0.05)


def test_networks_of_energies_have_the_plan_of_the_scalar():
    own = plan_at(Hamiltonian, (ROWS[:, :4],), verify=False)
    other = plan_at(scalar, (ROWS[:, :4],), verify=False)
    for row in other.weights:
        same = own[f"h.{row.name}"]
        assert (same.role, same.lr, same.init) == (row.role, row.lr, row.init)
    assert own.multipliers == other.multipliers == ()


def test_tied_autoencoders_have_the_factor_of_tied_read_outs():
    plan = plan_at(TiedAutoencoder, (ROWS,), verify=False)
    (factor,) = plan.multipliers
    assert (factor.module, factor.power, plan["e.weight"].role) == ("", "n⁻¹", "input")
    model = plan.build(seed=0)
    expected = F.linear(torch.relu(model.e(ROWS)), model.e.weight.T) / 8 + 1.0
    assert torch.allclose(model(ROWS), expected, atol=1e-6)
    assert plan["b"].lr == pytest.approx(8)

    class Squashed(TiedAutoencoder):
        def forward(self, x):
            return torch.sigmoid(super().forward(x))

    with pytest.raises(InvalidInput, match=r"e\.weight, which reads the inputs, is the read-out"):
        plan_at(Squashed, (ROWS,), verify=False)


def test_sums_over_the_width_beside_others_have_their_factor():
    """In the embeddings and, inverted, in the layer that reads them too."""
    plan = plan_at(DeepFM, (IDS,), verify=False)
    assert plan.multipliers == ()
    assert plan["e.weight"].fold == pytest.approx(8**-0.5)
    assert plan["m.0.weight"].fold == pytest.approx(8**0.5)
    assert plan["w.weight"].lr == 1.0


def test_axes_of_weights_are_followed_through_copies():
    plan = plan_at(chebyshev, (ROWS,), verify=False)
    assert [row.role for row in plan.weights] == ["input", "hidden", "output"]


def test_weights_that_are_read_twice_keep_the_numbers_in_front_of_a_softmax():
    assert plan_at(Memory, (ROWS,), verify=False)["m"].folded == ()
