"""Mixtures of experts of several numbers and sizes, by plans and by training.

The loss is linear in the output, so that its gradient is the same at every size. Only the mixture
is trained, and the choice of active experts is held: what another expert makes is unlike it,
however small the rate. What is measured is the change of the mixture's output by a few steps, whose
power of the size is 0 if the rules are right.
"""

from functools import partial

import numpy as np
import pytest
import torch
from tests.transfer.mixtures import Fused, Mixture, Net
from torch.nn import functional as F

from largen.errors import InvalidInput
from largen.transfer import Hints
from largen.transfer.torch import coordinate_check, scale
from tools.audit import audit

SEEDS = 6
OPTIMIZERS = {"sgd": (torch.optim.SGD, 0.02), "adam": (torch.optim.Adam, 1e-3)}


# Gradient descent moves a router's logits by (E_k − f)·∂L/∂f, which fades as n^(−½) at
# initialisation, from √n times the experts' share at equal rates: a small rate leaves it out.
ROUTER = 1 / 64


def change(plan, optimizer, seed, broken=None, eps=None, part="", steps=3):
    """Return the size of the change of the mixture's output, or that of one of its parts."""
    generator = torch.Generator().manual_seed(0)
    x, g = torch.randn(32, 16, generator=generator), torch.randn(32, 4, generator=generator)
    model = plan.build(seed=seed)
    mixture = model.blocks[0]
    for own in (model.inp, model.out):
        own.requires_grad_(False)
    with torch.no_grad():
        inside = F.rms_norm(model.inp(x), model.inp(x).shape[-1:])
        mixture.held = mixture.gate(inside).topk(mixture.active, -1).indices
    make, lr = OPTIMIZERS[optimizer]
    groups = plan.param_groups(model, lr=lr if eps is None else 30 * lr, eps=eps)
    for group in groups:
        if broken:
            group[broken[0]] *= broken[1]
    if optimizer == "sgd":
        mixture.gate.weight.register_hook(lambda gradient: ROUTER * gradient)
    moved, found = make(groups), []
    mixture.get_submodule(part).register_forward_hook(lambda m, i, out: found.append(out.detach()))
    for _ in range(steps + 1):
        moved.zero_grad()
        (model(x) * g).sum(1).mean().backward()
        moved.step()
    return float((found[-1] - found[0]).square().mean().sqrt())


def slope(
    kind, optimizer, base, keys, ratios=(1, 2, 4), broken=None, eps=None, roles=None, part=""
):
    """Return the power of the ratio, and its error from the scatter between seeds.

    ``broken`` is a setting and the power of the ratio by which it is multiplied.
    """
    logs = []
    for r in ratios:
        grown = {k: v * r if k in keys else v for k, v in base.items()}
        plan = scale(
            partial(Net, kind=kind),
            base,
            grown,
            scheme="mup",
            optimizer=optimizer,
            hints=Hints(roles=roles),
        )
        wrong = broken and (broken[0], float(r) ** broken[1])
        own = [change(plan, optimizer, seed, wrong, eps, part) for seed in range(SEEDS)]
        logs.append(np.log2(own))
    own = np.polyfit(np.log2(ratios), np.array(logs), 1)[0]
    return own.mean(), own.std(ddof=1) / SEEDS**0.5


MANY = {"width": 32, "experts": 32, "size": 32}
WIDE = {"width": 64, "experts": 4, "size": 64}
NARROW = {"width": 16, "experts": 4, "size": 256}
CASES = {
    "experts in a list": (Mixture, {**MANY, "experts": 8}, ("experts",)),
    "experts in arrays": (Fused, MANY, ("experts",)),
    "width and size": (Mixture, WIDE, ("width", "size")),
    "all": (Fused, {"width": 48, "experts": 16, "size": 48}, ("width", "size", "experts")),
}


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("case", [*[*CASES][:-1], pytest.param("all", marks=pytest.mark.slow)])
def test_changes_do_not_depend_on_numbers_and_sizes(case, optimizer):
    power, error = slope(CASES[case][0], optimizer, *CASES[case][1:])
    assert abs(power) < 0.1
    assert error < 0.06


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_experts_that_grow_by_themselves_end_in_read_outs(optimizer):
    sizes = (Mixture, optimizer, NARROW, ("size",), (1, 4, 16))
    power, error = slope(*sizes)
    assert abs(power) < 0.1
    assert error < 0.06
    wrong, error = slope(*sizes[:4], (1, 16, 64), roles={"*.down.weight": "shared"})
    assert wrong > 0.1 + 3 * error


@pytest.mark.parametrize(
    ("optimizer", "broken", "eps", "power"),
    [("sgd", ("lr", -1), None, -1), ("adam", ("lr", 1), None, 1), ("adam", ("eps", 1), 0.1, -1)],
)
def test_without_a_power_of_the_number_the_rules_are_wrong(optimizer, broken, eps, power):
    wrong, _ = slope(Fused, optimizer, MANY, ("experts",), broken=broken, eps=eps)
    assert wrong == pytest.approx(power, abs=0.2)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_changes_of_logits_do_not_depend_on_the_number(optimizer):
    power, error = slope(Fused, optimizer, MANY, ("experts",), part="gate")
    assert abs(power) < 0.1
    assert error < 0.06


def test_eps_is_in_units_of_an_experts_gradient():
    power, error = slope(Fused, "adam", MANY, ("experts",), eps=0.1)
    assert abs(power) < 0.1
    assert error < 0.06


# Powers of n = 2 and e = 4: rate, weight decay, ε.
WANTED = {
    "adamw": {"gate": (1 / 2, 2, 1 / 4), "experts": (1 / 2, 2, 1 / 8)},
    "adam": {"gate": (1 / 2, 1 / 2, 1 / 4), "experts": (1 / 2, 2**-0.5 / 4, 1 / 8)},
    "sgd": {"gate": (4 / 2, 2 / 4, None), "experts": (4, 1 / 4, None)},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Mixture, Fused])
@pytest.mark.parametrize("optimizer", WANTED)
def test_the_table(kind, optimizer):
    base = {"width": 16, "experts": 4, "size": 16, "depth": 2}
    target = {"width": 32, "experts": 16, "size": 32, "depth": 8}
    plan = scale(partial(Net, kind=kind), base, target, scheme="mup", optimizer=optimizer)
    assert plan.depth_ratio == 4
    for weight in plan.weights:
        if not weight.name.startswith("blocks"):
            assert "e" not in "".join(weight.powers.values())
            continue
        part = "gate" if "gate" in weight.name else "experts"
        lr, decay, eps = WANTED[optimizer][part]
        assert (weight.lr, weight.weight_decay) == pytest.approx((lr, decay))
        assert eps is None or weight.eps == pytest.approx(eps)
        assert weight.role == ("router" if part == "gate" else "hidden")
    assert any("means over active experts" in note for note in plan.notes)
    assert sum(group["params"] != [] for group in plan.param_groups(plan.build(seed=0), lr=0.1))


def test_the_number_is_no_width_and_does_not_shrink():
    base, target = {"width": 16, "experts": 4}, {"width": 32, "experts": 4}
    plan = scale(Net, base, target)
    assert plan["blocks.0.gate.weight"].lr == 0.5
    assert not any("number of experts" in note for note in plan.notes)
    with pytest.raises(InvalidInput, match=r"target\['experts'\]: wanted at least"):
        scale(Net, base, {**target, "experts": 2})


def check_in_number(scheme, lr, tolerance=None):
    generator = torch.Generator().manual_seed(0)
    x, g = torch.randn(64, 16, generator=generator), torch.randn(64, 4, generator=generator)
    sizes = [{"width": 32, "experts": e, "size": 32} for e in (8, 16, 32)]
    return coordinate_check(
        partial(Net, kind=Fused), sizes[0], sizes, [(x, g)],
        lambda model, batch: (model(batch[0]) * batch[1]).sum(1).mean(),
        lr=lr, optimizer="sgd", seeds=12, scheme=scheme, tolerance=tolerance,
    )  # fmt: skip


@pytest.mark.slow
def test_the_coordinate_check_in_the_number():
    # At a large rate the mixture's change is what its experts learn, at a small one another choice.
    right = check_in_number("mup", 0.4, 0.35)
    assert right.along == "experts"
    assert list(right.ratios) == [1, 2, 4]
    assert right.passed, str(right)
    assert {"blocks.0", "blocks.0.gate"} <= {row.layer for row in right.slopes if row.judged}
    assert check_in_number("standard", 0.4, 0.35).guilty == "blocks.0"
    small = check_in_number("mup", 0.02)
    assert small.passed, str(small)
    assert small["blocks.0"].change == pytest.approx(-0.5, abs=small["blocks.0"].change_margin)


@pytest.mark.slow
def test_logits_of_shared_routers_change_alike_where_the_choice_is_free():
    generator = torch.Generator().manual_seed(0)
    x, g = torch.randn(64, 16, generator=generator), torch.randn(64, 4, generator=generator)
    sizes = [{"width": n, "experts": 8, "size": n} for n in (32, 64, 128)]

    def power(roles):
        check = coordinate_check(
            partial(Net, kind=Fused), sizes[0], sizes, [(x, g)],
            lambda model, batch: (model(batch[0]) * batch[1]).sum(1).mean(),
            lr=0.02, optimizer="sgd", seeds=4, scheme="mup", hints=Hints(roles=roles),
        )  # fmt: skip
        return check["blocks.0.gate"].change

    assert power({"*.gate.weight": "shared"}) == pytest.approx(0, abs=0.2)
    assert power(None) == pytest.approx(-0.5, abs=0.2)


@pytest.mark.slow
def test_the_audit_in_the_number():
    row = audit(partial(Net, kind=Mixture), WIDE, growth=(1, 2), seeds=3, steps=2, scheme="mup")
    assert row.width is not None
    assert row.depth is None
    assert abs(row.experts.value) - row.experts.margin < 0.1
    assert row.experts.margin < 0.3
    assert row.cells()[5] == str(row.experts)
