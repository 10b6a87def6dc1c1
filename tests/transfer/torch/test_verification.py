"""Plans are verified: faults are seen and repaired, right plans give no alarm."""

import copy
import pickle
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.transfer.faulty_models import FAULTS, Distance, Looped
from tests.transfer.mixtures import Fused, Mixture, Net
from tests.transfer.read_models import READ
from tests.transfer.torch_models import SmallNet
from tests.transfer.verified_models import (
    GPT,
    PAIR,
    RIGHT,
    ROWS,
    SETS,
    LearnedQueries,
    ResidualMLP,
    mlp,
)
from torch import nn

from largen.errors import InvalidInput, WrongPlan
from largen.transfer import Hints, repair, verifying
from largen.transfer.coordinates import slope_with_margin
from largen.transfer.corrections import Correction
from largen.transfer.plan import plan_from_json
from largen.transfer.torch import TorchPlan, scale, surveys
from largen.transfer.torch.effects import as_in_training, forward, measured
from largen.transfer.torch.facts import Facts
from largen.transfer.verdicts import effects_of, in_the_bases_names, in_the_first_copy
from largen.transfer.verified import Effect, Verification

SIZES = {"width": 32}, {"width": 256}
LARGE = ("resnet", "vit", "encoder", "tied gpt", "gru", "residual mlp")


def plan_of(make, example, optimizer="adam", sizes=SIZES, scheme="mup", **options):
    """Return a plan without its warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WrongPlan)
        return scale(make, *sizes, scheme=scheme, optimizer=optimizer, example=example, **options)


def cases(names, slow):
    """Return names as parameters; those that take longest are slow."""
    return [pytest.param(n, marks=pytest.mark.slow if n in slow else ()) for n in names]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_seen_and_named(name):
    make, example, kind, where = FAULTS[name]
    with pytest.warns(WrongPlan, match=r"(?s)^wrong in width .*\n  try "):
        plan = scale(make, *SIZES, scheme="mup", optimizer="adam", example=example)
    (record,) = plan.verified
    assert not record.passed
    assert (record.culprit.kind, record.culprit.where) == (kind, where)
    assert abs(record.culprit.slope) > 0.2
    assert str(record) in str(plan)


@pytest.mark.parametrize("name", cases(FAULTS, set(FAULTS) - {"distance", "unit rows"}))
def test_faults_are_repaired(name):
    make, example, *_ = FAULTS[name]
    plan = plan_of(make, example).repaired()
    assert plan.verified[0].passed
    assert plan.notes[-1].startswith("measured in width: ")
    assert TorchPlan.from_json(plan.to_json()) == plan
    assert plan.build(seed=0)(*example).isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(RIGHT, LARGE))
def test_right_plans_give_no_alarm(name, recwarn):
    make, example = RIGHT[name]
    plan = scale(make, *SIZES, scheme="mup", optimizer="adam", example=example)
    assert plan.verified[0].passed, plan.verified[0]
    assert not [w for w in recwarn if w.category is WrongPlan]
    assert "verified in width (base × 1, 2, 4" in str(plan)
    assert plan.repaired().weights == plan.weights


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_sums_over_the_width_are_found_in_the_forward_pass(name, recwarn):
    make, example = READ[name]
    plan = scale(make, *SIZES, scheme="mup", optimizer="adam", example=example)
    assert plan.verified[0].passed, plan.verified[0]
    assert not [w for w in recwarn if w.category is WrongPlan]


@pytest.mark.parametrize(
    ("name", "power"),
    [("towers", "n⁻¹"), ("divided towers", "n⁻¹ᐟ²"), ("in batch", "n⁻¹"), ("prototypes", "n⁻¹")],
)
def test_sums_of_products_are_multiplied_as_tied_read_outs(name, power):
    (factor,) = plan_of(*READ[name], verify=False).multipliers
    assert (factor.module, factor.kind, factor.power) == ("", "output", power)


def test_normalised_signals_and_means_have_no_factor():
    class Cosines(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.a, self.b = nn.Linear(6, width), nn.Linear(6, width)

        def forward(self, x, y):
            a, b = (nn.functional.normalize(z, dim=-1) for z in (self.a(x), self.b(y)))
            return 5.0 * a @ b.T

    class LearnedScale(nn.Module):
        """The lengths of what is compared are a weight's."""

        def __init__(self, width):
            super().__init__()
            self.pa, self.pb = (nn.Parameter(width**-0.5 * torch.randn(width, width)) for _ in "ab")
            self.scale = nn.Parameter(torch.tensor(2.66))
            self.a, self.b = nn.Linear(6, width), nn.Linear(6, width)

        def forward(self, x, y):
            a, b = self.a(x) @ self.pa, self.b(y) @ self.pb
            a, b = (z / z.norm(dim=-1, keepdim=True) for z in (a, b))
            return self.scale.exp() * a @ b.t()

    class Mean(nn.Sequential):
        def forward(self, x):
            return super().forward(x).mean(-1)

    for make, example in (
        (Cosines, PAIR),
        (LearnedScale, PAIR),
        (lambda width: Mean(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width)), (ROWS,)),
    ):
        plan = plan_of(make, example)
        assert plan.multipliers == ()
        assert plan.verified[0].passed


def alarms(make, example, optimizer, draws):
    """Return in how many of several draws of networks a plan is flagged."""
    plan = plan_of(make, example, optimizer, verify=False)
    facts = Facts(make, plan.request.sizes)
    plan.request.plan(facts)
    specimens = surveys.Specimens.of(plan.request, facts, "width")
    found = 0
    for draw in range(draws):
        specimens.first = 4 * draw
        survey = specimens.survey()
        kind = plan.update.kind
        found += any(e.flag for e in effects_of(survey.fits, survey.layout, "width", kind))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "sgd", "muon"])
def test_alarms_are_rare_and_faults_certain_over_many_draws(optimizer):
    draws = 6
    wrong = {name: alarms(*case, optimizer, draws) for name, case in RIGHT.items()}
    assert sum(wrong.values()) <= 1, wrong  # of 72: at most two of a hundred
    seen = {name: alarms(*case[:2], optimizer, 2) for name, case in FAULTS.items()}
    assert set(seen.values()) == {2}, seen


def learned(make, example, repaired, lr=1e-3):
    """Return the slope of the coherent part of the output's change by four steps of Adam."""
    widths, rows = (32, 64, 128, 256), []
    for width in widths:
        plan, row = plan_of(make, example, sizes=({"width": 32}, {"width": width})), []
        plan = plan.repaired() if repaired else plan
        for seed in range(4):
            model = plan.build(seed=seed)
            optimizer = torch.optim.Adam(plan.param_groups(model, lr=lr, eps=1e-14))
            start = model(*example).detach()
            direction = torch.randn(start.shape, generator=torch.Generator().manual_seed(5))
            for _ in range(4):
                optimizer.zero_grad()
                (model(*example) * direction).mean().backward()
                optimizer.step()
            row.append(float(((start - model(*example).detach()) * direction).mean()))
        rows.append(row)
    return slope_with_margin(np.array(widths), np.array(rows), 0.975)


BEFORE = {  # slopes of the plan before it is repaired
    "distance": 0.5, "unit rows": 0.5, "unit features": -0.5, "unit rows of graphs": -0.65,
    "hypernetwork": 1.3,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_repaired_plans_train_alike_beyond_the_sizes_measured(name):
    make, example, *_ = FAULTS[name]
    slope, margin = learned(make, example, repaired=False)
    assert slope == pytest.approx(BEFORE[name], abs=0.15)
    slope, margin = learned(make, example, repaired=True)
    assert abs(slope) < min(0.1 + margin, 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_plans_of_sums_over_the_width_train_alike(name):
    slope, margin = learned(*READ[name], repaired=False)
    assert abs(slope) < min(0.1 + margin, 0.2)


def test_logits_without_their_factor_are_seen_and_repaired():
    plan = plan_of(LearnedQueries, (SETS,), hints=Hints(attention={}))
    culprit = plan.verified[0].culprit
    assert (culprit.kind, culprit.where) == ("logits", "x")
    assert plan.repaired().multipliers[0].power == "n⁻¹ᐟ²"


def test_learned_queries_have_their_factor():
    plan = plan_of(RIGHT["pooled"][0], (SETS,))
    assert plan["q"].folded == ("attention × n⁻¹ᐟ²",)
    for name in ("learned queries", "latents"):
        (factor,) = plan_of(*RIGHT[name]).multipliers
        assert (factor.module, factor.where, factor.power) == ("x", "key", "n⁻¹ᐟ²")


def test_models_and_lazy_layers_are_refused_by_name():
    for model, example in (
        (mlp(32), r"lambda width: YourModel\(width\), got a model \(Sequential\)"),
        (ResidualMLP(32), r"the class ResidualMLP itself, or lambda width: ResidualMLP\(width\)"),
    ):
        with pytest.raises(InvalidInput, match=f"wanted the function that builds .*{example}"):
            scale(model, *SIZES)

    def lazy(width, called=False):
        model = nn.Sequential(nn.LazyLinear(width), nn.ReLU(), nn.Linear(width, 3))
        if called:
            model(torch.zeros(1, 8))
        return model

    with pytest.raises(InvalidInput, match=r"0\.weight has no shape before the model is called"):
        scale(lazy, *SIZES)
    with pytest.warns(WrongPlan, match=r"no weight is larger at \{'width': 64\}.*use its argum"):
        plan = scale(lambda width: mlp(32), *SIZES, scheme="mup")
    assert plan.verified[0].reason == "no weight of the model grows"
    plan = scale(partial(lazy, called=True), *SIZES, scheme="mup")
    assert plan["0.weight"].shape == (256, 8)
    assert plan.verified[0].passed


@pytest.mark.parametrize("listed", [False, True])
def test_a_block_applied_again_and_again_has_the_rate_of_its_sum(listed):
    """Whether it is called by a loop, or is in a list several times."""
    sizes = {"depth": 4}, {"depth": 32}
    plan = plan_of(lambda depth: Looped(depth, listed), (ROWS,), "sgd", sizes, "complete_p")
    assert plan.verified[0].along == "depth"
    assert plan.verified[0].passed
    block = "blocks.0" if listed else "block"
    assert plan[f"{block}.1.weight"].lr == 1.0  # l^0 by itself; each of l copies has l
    for optimizer in ("sgd", "adam"):  # equal branches add up to l times one of them
        made = partial(Looped, listed=listed)
        equal = plan_of(made, (ROWS,), optimizer, sizes, "depth_mup")
        assert equal.verified[0].passed
        assert [w.fold for w in equal.weights] == [w.fold for w in plan.weights]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_right_plans_give_no_alarm_in_depth(optimizer):
    sizes = {"width": 32, "depth": 2}, {"width": 64, "depth": 8}
    plan = plan_of(ResidualMLP, (ROWS,), optimizer, sizes, "depth_mup")
    assert [record.along for record in plan.verified] == ["width", "depth"]
    assert all(record.passed for record in plan.verified), plan


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 1e-6), ("adam", 1e-6), ("muon", 1e-6)])
def test_effects_are_the_change_of_the_output_by_one_step(optimizer, lr):
    """Against a step of PyTorch's optimizers along the same direction."""
    plan = plan_of(mlp, (ROWS,), optimizer, verify=False)
    model = plan.build(seed=3).double()
    x = (ROWS[:1] if optimizer == "muon" else ROWS).double()  # Muon's are those of rank one
    with as_in_training(model):
        f = forward(model, (x,), {}).output.detach()
    direction = torch.randn(f.shape, generator=torch.Generator().manual_seed(1)).double()
    for name in ("0.weight", "2.weight", "4.weight"):
        effects, _ = measured(model, plan, partial(model, x), "width")
        own = copy.deepcopy(model)
        moved_by = plan[name].moved_by
        groups = plan.param_groups(own, lr=lr, weight_decay=0.0, moved_by="all")
        weight = dict(own.named_parameters())[name]
        (group,) = [g for g in groups if any(p is weight for p in g["params"])]
        kind = {"sgd": torch.optim.SGD, "muon": torch.optim.Muon}.get(moved_by, torch.optim.Adam)
        more = {"eps": 1e-18} if kind is torch.optim.Adam else {}
        moving = kind([weight], lr=group["lr"], weight_decay=0.0, **more)
        (own(x) * direction).mean().backward()
        moving.step()
        change = float(((f - own(x).detach()) * direction).mean()) / lr
        # Five iterations make singular values of 1 into 0.7.
        rel = 0.4 if moved_by == "muon" else 1e-3
        assert change == pytest.approx(effects["output", "", name], rel=rel)


@pytest.mark.parametrize("optimizer", ["muon", "shampoo"])
def test_ranks_limited_by_the_width_give_no_alarm(optimizer):
    """Widths 8 to 32 with 8 samples."""
    sizes = {"width": 8, "depth": 2}, {"width": 16, "depth": 4}
    plan = plan_of(SmallNet, None, optimizer, sizes, "depth_mup")
    assert all(record.passed for record in plan.verified), plan.verified


@pytest.mark.parametrize("kind", [Mixture, Fused])
def test_mixtures_give_no_alarm(kind):
    """Experts' matrices that one module holds act on a tensor inside of it first."""
    sizes = {"width": 16, "experts": 4}, {"width": 32, "experts": 4}
    plan = plan_of(partial(Net, kind=kind), None, sizes=sizes)
    assert plan.verified[0].passed, plan


def test_logits_of_all_attentions_are_seen():
    """PyTorch's layer, its function, and softmax as a function or a method."""

    class Attention(nn.Module):
        def __init__(self, way):
            super().__init__()
            self.way, self.q, self.k = way, nn.Linear(6, 8), nn.Linear(6, 8)
            self.layer = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            q, k = self.q(x), self.k(x)
            if self.way == "layer":
                return self.layer(q, k, k, need_weights=False)[0]
            if self.way == "fused":
                return nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True)
            logits = q @ k.mT / 8**0.5
            return (logits.softmax(-1) if self.way == "method" else torch.softmax(logits, -1)) @ k

    for way in ("layer", "fused", "method", "function"):
        torch.manual_seed(0)
        model = Attention(way)
        passed = forward(model, (SETS,), {})
        assert [path for path, _ in passed.logits] == ["layer" if way == "layer" else ""]
        assert torch.allclose(passed.output, model(SETS), atol=1e-6)


@pytest.mark.slow
def test_what_is_not_verified_says_why():
    plan = plan_of(mlp, (ROWS,), verify=False)
    assert plan.verified == ()
    assert "verified" not in str(plan)
    for scheme in ("standard", "ntk"):
        (record,) = plan_of(mlp, (ROWS,), scheme=scheme).verified
        assert not record.passed
        assert "does not keep updates" in record.reason
    sizes = {"width": 32, "depth": 2}, {"width": 64, "depth": 4}
    plan = plan_of(ResidualMLP, (ROWS,), sizes=sizes)
    assert "mup has no powers of depth" in plan.verified[1].reason
    assert f"not verified in depth: {plan.verified[1].reason}" in str(plan)

    class Uncallable(nn.Sequential):
        def forward(self, a, b, c):
            raise RuntimeError("not like this")

    def uncallable(width):
        return Uncallable(nn.Linear(8, width), nn.Linear(width, 3))

    plan = scale(uncallable, *SIZES, scheme="mup", hints=Hints(attention={}))
    assert "could not be called" in plan.verified[0].reason

    class NoGradient(nn.Sequential):
        def forward(self, x):
            return super().forward(x).detach()

    def detached(width):
        return NoGradient(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))

    plan = scale(detached, *SIZES, scheme="mup", example=ROWS)
    assert "backward pass failed" in plan.verified[0].reason


def test_a_model_too_large_is_left_out(monkeypatch):
    monkeypatch.setattr(verifying, "MOST_WEIGHTS", 1000)
    assert "more than 1e+03" in plan_of(mlp, (ROWS,)).verified[0].reason
    monkeypatch.undo()
    monkeypatch.setattr(surveys, "MOST_OPERATIONS", 1000)
    assert "pass a smaller example" in plan_of(mlp, (ROWS,)).verified[0].reason


def test_records_are_kept_in_text_and_warnings_may_be_errors():
    plan = plan_of(Distance, PAIR)
    read = plan_from_json(plan.to_json())
    assert read.verified == plan.verified
    assert pickle.loads(pickle.dumps(plan.verified)) == plan.verified
    with pytest.raises(InvalidInput, match="read from text"):
        type(plan).from_json(plan.to_json(), Distance).repaired()
    with warnings.catch_warnings():
        warnings.simplefilter("error", WrongPlan)
        with pytest.raises(WrongPlan, match="the output grows by"):
            scale(Distance, *SIZES, scheme="mup", optimizer="adam", example=PAIR)


def test_sizes_of_deeper_models_have_the_bases_names():
    """Blocks 1 and 2, and a norm that has the number 3 in the base and 5 in the deeper model."""
    names = {"1": "1", "2": "2", "3": "2", "4": "2", "5": "3"}
    sizes = {("start", f"input of {i}", ""): float(i) for i in range(1, 6)}
    found = in_the_bases_names({**sizes, ("output", "", "5.weight"): 7.0}, names)
    wanted = {1: 1.0, 2: 2.0, 3: 5.0}
    assert {key[1]: value for key, value in found.items() if key[0] == "start"} == {
        f"input of {i}": value for i, value in wanted.items()
    }
    assert found["output", "", "5.weight"] == 7.0
    assert in_the_first_copy("3", names, names) == "5"
    assert in_the_first_copy("2", names, names) == "2"


def test_warnings_are_short():
    effects = tuple(Effect("output", f"w{i}", 1.0, 0.1, "grows") for i in range(40))
    many = tuple(Correction("lr", f"w{i}", -1.0) for i in range(40))
    record = Verification("width", (1.0, 2.0, 4.0), 4, effects, many)
    assert str(record).endswith("try rate of w11 × n⁻¹\n  and 28 more corrections")
    assert len(str(record).splitlines()) == 1 + 2 + 13 + 12 + 1
    assert str(replace(record, cause="because")).splitlines()[-1] == "  because"


def test_what_cannot_be_repaired_is_refused(monkeypatch):
    plan = plan_of(Distance, PAIR)
    monkeypatch.setattr(repair, "next_corrections", lambda *a: [])
    with pytest.raises(InvalidInput, match="measured powers do not make every slope 0"):
        plan.repaired()


def test_generated_inputs_and_the_random_state():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    plan = scale(mlp, *SIZES, scheme="mup")
    assert torch.equal(torch.rand(3), expected)
    assert plan.verified[0].passed
    assert scale(mlp, *SIZES, scheme="mup").verified == plan.verified


@pytest.mark.parametrize("target", [16, 64, 256])
def test_the_networks_of_a_verification_have_the_plans_of_their_sizes(target):
    """Whatever the target, logits have the factors of networks of 1, 2 and 4 times the base."""
    request = scale(GPT, {"width": 16}, {"width": target}, scheme="mup", verify=False).request
    facts = Facts(GPT, request.sizes)
    request.plan(facts)
    plans = surveys.Specimens.of(request, facts, "width").plans
    factors = [[m.factor for m in p.multipliers if m.kind == "attention"] for p in plans]
    assert factors == [[], [pytest.approx(2**-0.5)] * 2, [pytest.approx(0.5)] * 2]


def test_named_queries_have_the_ratios_of_every_size():
    """What is said of the target's heads is a power of the width in smaller networks."""
    hints = Hints(attention={"b.*.qkv": 8})
    request = scale(GPT, *SIZES, scheme="mup", hints=hints, verify=False).request
    facts = Facts(GPT, request.sizes)
    request.plan(facts)
    plans = surveys.Specimens.of(request, facts, "width").plans
    assert [p["b.0.qkv.weight"].fold for p in plans] == pytest.approx([1, 2**-0.5, 0.5])
