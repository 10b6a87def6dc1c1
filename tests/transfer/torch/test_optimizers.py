"""Every optimizer of PyTorch has its rule, or is refused by name."""

import pytest
import torch
from tests.transfer.torch_models import SmallNet
from torch import nn

from largen.errors import InvalidInput
from largen.transfer.torch import check_optimizer, scale
from largen.transfer.updates import REFUSED, UPDATES, update

SIZES = {"width": 8, "depth": 2}, {"width": 16, "depth": 4}
EVERY = [
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and kind is not torch.optim.Optimizer
]


@pytest.mark.parametrize("name", EVERY)
def test_there_is_a_rule_or_a_reason(name):
    if name.lower() in REFUSED:
        with pytest.raises(InvalidInput, match=f"no rule for {name.lower()}: "):
            update(name)
    elif name != "SparseAdam":
        assert update(name).name in UPDATES


@pytest.mark.parametrize(
    ("plan", "make", "message"),
    [
        ({"optimizer": "adamw"}, torch.optim.AdamW, None),
        ({"optimizer": "adam", "decay": "decoupled"}, torch.optim.AdamW, None),
        ({"optimizer": "momentum"}, lambda g: torch.optim.SGD(g, momentum=0.9), None),
        ({"optimizer": "nadam"}, torch.optim.NAdam, None),
        ({"optimizer": "adamw"}, torch.optim.SGD, "plan for 'adamw'; plan for 'sgd'"),
        ({"optimizer": "adamw"}, torch.optim.Adafactor, "Adafactor has groups .* cut off at"),
        ({"optimizer": "adam"}, torch.optim.AdamW, "for coupled weight decay, .* is decoupled"),
        ({"optimizer": "adamw"}, torch.optim.Adam, "for decoupled weight decay, .* is coupled"),
        (
            {"optimizer": "sgd", "decay": "independent"},
            torch.optim.SGD,
            "for independent weight decay, and that of SGD is coupled",
        ),
    ],
)
def test_groups_get_the_optimizer_that_they_were_planned_for(plan, make, message):
    planned = scale(SmallNet, *SIZES, **plan)
    optimizer = make(planned.param_groups(planned.build(seed=0), lr=0.1, weight_decay=0.1))
    if message is None:
        assert check_optimizer(optimizer) is optimizer
    else:
        with pytest.raises(InvalidInput, match=message):
            check_optimizer(optimizer)


@pytest.mark.parametrize("wrong", [None, 3, "adamw", torch.optim.AdamW, SmallNet, [{"params": []}]])
def test_what_is_no_optimizer_is_refused(wrong):
    with pytest.raises(InvalidInput, match="optimizer: wanted one made from a plan's groups"):
        check_optimizer(wrong)


class Rectangular(nn.Module):
    """A square matrix, a wide one and a tall one."""

    def __init__(self, width):
        super().__init__()
        self.same = nn.Linear(width, width, bias=False)
        self.up, self.down = (
            nn.Linear(*s, bias=False) for s in ((width, 2 * width), (2 * width, width))
        )


def muon_moves(plan, **options):
    """Return what one step of Muon changes of each matrix, without weight decay."""
    model = plan.build(seed=0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
    groups = plan.param_groups(model, lr=0.1, weight_decay=0.0, moved_by="muon", **options)
    check_optimizer(torch.optim.Muon(groups)).step()
    return {name: p.detach() - before[name] for name, p in model.named_parameters()}


def test_muons_adjusted_rates_are_made_up_for():
    """Both of its adjustments are the user's own at the base, and grow alike from there."""
    ratios = []
    for width in (8, 32):
        plan = scale(Rectangular, {"width": 8}, {"width": width}, optimizer="muon", scheme="mup")
        own, matched = muon_moves(plan), muon_moves(plan, adjust_lr_fn="match_rms_adamw")
        ratios.append({name: float(matched[name].norm() / own[name].norm()) for name in own})
    at_base = {"same": 8**0.5, "up": 8**0.5, "down": 16**0.5}  # √max(a, b)/√max(1, a/b)
    expected = {f"{name}.weight": 0.2 * ratio for name, ratio in at_base.items()}
    assert ratios[0] == pytest.approx(expected, rel=1e-5)
    assert ratios[1] == pytest.approx(expected, rel=1e-5)


def test_muons_decay_is_the_same_with_adjusted_rates():
    plan = scale(Rectangular, {"width": 8}, {"width": 32}, optimizer="muon", scheme="mup")
    settings = {"lr": 0.1, "weight_decay": 0.3, "moved_by": "muon"}
    model = plan.build(seed=0)
    products = [
        {
            round(g["lr"] * g["weight_decay"], 12)
            for g in plan.param_groups(model, **settings, **own)
        }
        for own in ({}, {"adjust_lr_fn": "match_rms_adamw"})
    ]
    assert products[0] == products[1] == {0.03}


def test_muon_that_adjusts_its_rates_by_itself_is_refused():
    plan = scale(Rectangular, {"width": 8}, {"width": 32}, optimizer="muon", scheme="mup")
    model = plan.build(seed=0)
    groups = plan.param_groups(model, lr=0.1, moved_by="muon")
    check_optimizer(torch.optim.Muon(groups, adjust_lr_fn="original"))
    groups = plan.param_groups(model, lr=0.1, moved_by="muon")
    with pytest.raises(InvalidInput, match=r"adjust_lr_fn='match_rms_adamw', Muon's step grows"):
        check_optimizer(torch.optim.Muon(groups, adjust_lr_fn="match_rms_adamw"))


@pytest.mark.parametrize(
    "wrong",
    [
        float("nan"),
        float("inf"),
        -0.1,
        True,
        "0.1",
        None,
        torch.tensor(-1.0),
        torch.tensor(torch.nan),
    ],
)
def test_rates_that_are_none_are_refused(wrong):
    plan = scale(SmallNet, *SIZES)
    with pytest.raises(InvalidInput, match="lr: wanted a"):
        plan.param_groups(plan.build(seed=0), lr=wrong)


@pytest.mark.parametrize(
    ("optimizer", "options", "words"),
    [
        ("sgd", {"eps": 1e-8}, "eps: sgd has none"),
        ("lion", {"eps": 1e-8}, "eps: lion has none"),
        ("adam", {"moved_by": "muon"}, "moved_by: 'muon' is not known.*adam, all"),
        ("sgd", {"moved_by": "adamw"}, "moved_by: 'adamw' is not known"),
        ("muon", {"moved_by": "adam"}, "moved_by: 'adam' is not known"),
        (
            "sgd",
            {"adjust_lr_fn": "original"},
            "adjust_lr_fn: is an option of Muon, and the plan is for sgd",
        ),
    ],
)
def test_what_an_optimizer_does_not_have_is_refused(optimizer, options, words):
    plan = scale(SmallNet, *SIZES, optimizer=optimizer, scheme="mup")
    with pytest.raises(InvalidInput, match=words):
        plan.param_groups(plan.build(seed=0), lr=0.1, **options)


def test_independent_decay_wants_a_rate():
    plan = scale(SmallNet, *SIZES, decay="independent")
    model = plan.build(seed=0)
    with pytest.raises(InvalidInput, match="lr: wanted a rate > 0 for independent weight decay"):
        plan.param_groups(model, lr=0.0, weight_decay=0.1)
    assert {g["lr"] for g in plan.param_groups(model, lr=0.0, weight_decay=0.0)} == {0.0}


def test_an_optimizer_of_all_weights_at_one_rate_is_refused():
    with pytest.raises(InvalidInput, match=r"AdamW is of a plan.*plan\.param_groups"):
        check_optimizer(torch.optim.AdamW(torch.nn.Linear(2, 2).parameters()))


def test_optimizers_of_others_are_not_judged():
    class Own(torch.optim.SGD):
        pass

    own = Own([{"params": [torch.zeros(2)], "lr": 0.1, "moved_by": "lion"}])
    assert check_optimizer(own) is own
