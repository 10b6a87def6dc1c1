"""Constants of the base: the same factors at the base and at the target, in both frameworks."""

import jax
import numpy as np
import pytest
import torch
from tests.transfer.verified_models import GPT, IDS, mlp

from largen.errors import InvalidInput
from largen.transfer import Constants, Hints, plan_from_json
from largen.transfer import jax as in_jax
from largen.transfer.torch import TorchPlan, scale

BETTER = Constants(output=2, init={"embedding": 4, "2.*": 0.5}, lr={"hidden": 3})
BASE = {"width": 16}


def planned(width, optimizer="adamw", make=mlp, constants=BETTER, **options):
    return scale(
        make, BASE, {"width": width}, scheme="mup", optimizer=optimizer, constants=constants,
        **options,
    )  # fmt: skip


@pytest.mark.parametrize(("optimizer", "power"), [("adamw", 1), ("sgd", 2), ("muon", 1)])
@pytest.mark.parametrize("width", [16, 64])
def test_constants_stand_in_front_of_the_powers(optimizer, power, width):
    constants = Constants(output=2, init={"2.*": 0.5}, lr={"hidden": 3})
    plan = planned(width, optimizer, constants=constants)
    plain = planned(width, optimizer, constants=None)
    factors = {w.name: (w.init / plain[w.name].init, w.lr / plain[w.name].lr) for w in plan.weights}
    assert factors == {
        "0.weight": (1, 1), "0.bias": (1, 1), "2.weight": (0.5, 3), "2.bias": (0.5, 1),
        "4.weight": (2, 2**power), "4.bias": (1, 1),
    }  # fmt: skip
    assert plan["2.weight"].lr * plan["2.weight"].weight_decay == pytest.approx(
        plain["2.weight"].lr * plain["2.weight"].weight_decay
    )
    assert plan.notes[-1] == (
        "constants of the base: output × 2, initial values of 2.* × 0.5, rate of hidden × 3"
    )
    assert plan_from_json(plan.to_json()).weights == plan.weights
    assert plan.verified == () or all(not record.flags for record in plan.verified)


def losses(model, groups, c=1.0):
    optimizer, found = torch.optim.Adam(groups, eps=1e-12), []
    for _ in range(5):
        optimizer.zero_grad()
        logits = c * model(IDS)[:, :-1].flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, IDS[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("tied", [False, True])
def test_the_factor_of_the_output_is_that_of_the_logits(tied, width):
    """Against training of the same networks with logits times 4, by hand."""

    def make(width):
        return GPT(width, tied=tied)

    plan = planned(width, "adam", make, Constants(output=4), verify=False)
    plain = planned(width, "adam", make, None, verify=False)
    model, other = plan.build(seed=0), plain.build(seed=0)
    expected = losses(other, plain.param_groups(other, lr=0.01, eps=1e-12), 4.0)
    found = losses(model, plan.param_groups(model, lr=0.01, eps=1e-12))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert TorchPlan.from_json(plan.to_json()).multipliers == plan.multipliers


class Attends(torch.nn.Module):
    """One attention, with queries in a layer of their own or fused, and a factor of its logits."""

    def __init__(self, width, gain, fused):
        super().__init__()
        self.gain, self.e, self.o = gain, torch.nn.Embedding(32, width), torch.nn.Linear(width, 32)
        parts = [3 * width] if fused else [width] * 3
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(width, size) for size in parts)

    def forward(self, ids):
        h = self.e(ids)
        made = [part(h) for part in self.qkv]
        q, k, v = made if len(made) > 1 else made[0].chunk(3, -1)
        a = torch.nn.functional.scaled_dot_product_attention(q * self.gain, k, v, is_causal=True)
        return self.o(h + a)


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("scheme", ["mup", "standard"])
def test_the_factor_of_attention_is_that_of_its_logits(fused, width, scheme):
    """Against training of networks whose own forward pass has the factor."""
    found = []
    for gain, constants in ((1.0, Constants(attention=5)), (5.0, None)):

        def make(width, gain=gain):
            return Attends(width, gain, fused)

        plan = scale(make, BASE, {"width": width}, scheme=scheme, optimizer="adam",
                     constants=constants, verify=False)  # fmt: skip
        model = plan.build(seed=0)
        found.append(losses(model, plan.param_groups(model, lr=0.01, eps=1e-12)))
        if constants is not None and not fused:
            power = -0.5 if scheme == "mup" else 0.0
            assert plan["qkv.0.weight"].fold == pytest.approx(5 * (width / 16) ** power)
    np.testing.assert_allclose(*found, rtol=1e-4)


def test_both_frameworks_have_the_same_constants():
    def init(key, width):
        sizes = {"0": (8, width), "2": (width, width), "4": (width, 3)}
        return {
            name: {"weight": jax.random.normal(key, s) / s[0] ** 0.5} for name, s in sizes.items()
        }

    constants = Constants(output=2, init={"2.*": 0.5}, lr={"hidden": 3})
    tree = in_jax.scale(
        init, BASE, {"width": 64}, scheme="mup", layout="in_out", constants=constants
    )
    module = planned(64, constants=constants)
    for name in ("0.weight", "2.weight", "4.weight"):
        numbers = ("lr", "weight_decay", "init_std", "fold", "powers")
        assert [getattr(tree[name], k) for k in numbers] == [
            getattr(module[name], k) for k in numbers
        ]
    heads = in_jax.scale(
        lambda key, width: {"q": jax.random.normal(key, (width, width)) / width**0.5}, BASE,
        {"width": 64}, scheme="mup", layout="in_out", constants=Constants(attention=3),
        hints=Hints(attention={"q": 4}),
    )  # fmt: skip
    assert heads["q"].fold == 3 / 2
    tied = in_jax.scale(
        lambda key, width: {"wte": jax.random.normal(key, (7, width))}, BASE, BASE, scheme="mup",
        layout="in_out", tied=["wte"], constants=Constants(output=3),
    )  # fmt: skip
    assert tied.factor("wte") == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Constants(output=0), "output: wanted a finite number > 0"),
        (lambda: Constants(lr={"hidden": -1}), r"lr\['hidden'\]: wanted"),
        (lambda: Constants(attention=0), "attention: wanted a finite number > 0"),
        (lambda: planned(32, constants=Constants(attention=2)), "no attention logits were found"),
        (
            lambda: planned(32),
            r"init\['embedding'\] is neither a role nor a pattern of a weight; roles: bias",
        ),
    ],
)
def test_wrong_constants_are_refused(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
