"""Products of two signals over an axis that grows are attention logits, whatever reads them."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from tests.transfer.attention_models import ATTENTIONS, EXAMPLE, Model, differential
from tests.transfer.faulty_models import Hypernetwork
from tests.transfer.verified_models import ROWS
from torch import nn

from largen.errors import WrongPlan
from largen.transfer import Hints
from largen.transfer.torch import scale

SIZES = {"width": 32}, {"width": 128}
CANCELS = ("linear", "linear, memory", "linear, einsum")
GIVEN = [name for name in ATTENTIONS if name not in CANCELS]
QUICK = ("sigmoid", "retention", "linear, memory")


def gauss(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def plan_of(make, example, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WrongPlan)
        options = {"scheme": "mup", "optimizer": "adam", "example": example, **options}
        return scale(make, *SIZES, **options)


def cases(names):
    return [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in names]


def factors(plan):
    """Return the folded factors but those of read-outs, and the rates."""
    own = [(w.name, w.folded) for w in plan.weights if w.folded and w.role != "output"]
    return own, [(w.name, w.lr, w.init) for w in plan.weights], plan.multipliers


@pytest.mark.parametrize("name", cases(ATTENTIONS))
def test_the_factor_does_not_depend_on_the_number_of_samples_or_tokens(name):
    plans = [
        plan_of(ATTENTIONS[name], (gauss(*shape, 6),), verify=False)
        for shape in ((1, 2), (2, 5), (8, 12))
    ]
    assert factors(plans[0]) == factors(plans[1]) == factors(plans[2])
    wanted = ("attention × n⁻¹ᐟ²",)
    named = [] if name in CANCELS else [("a.0.q.weight", wanted), ("a.1.q.weight", wanted)]
    assert factors(plans[0])[0] == named
    assert any("divided by their own sum" in note for note in plans[0].notes) == (name in CANCELS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTIONS)
def test_products_are_judged_as_logits_are(name):
    plan = plan_of(ATTENTIONS[name], EXAMPLE)
    assert plan.verified[0].passed, plan.verified[0]
    without = plan_of(ATTENTIONS[name], EXAMPLE, hints=Hints(attention={})).verified[0]
    flags = [(e.kind, e.where, e.flag) for e in without.flags]
    wrong = [("logits", "a.0", "grows"), ("logits", "a.1", "grows")]
    assert flags == ([] if name in CANCELS else wrong)
    assert all(abs(e.slope - 0.5) < 0.25 for e in without.flags)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sigmoid", "relu", "by hand", "sparsemax", "retention", "mlstm"])
def test_four_steps_change_products_alike_at_all_widths(name):
    slope = partial(_slope_of_change, ATTENTIONS[name])
    assert slope(None) < 0.0
    assert slope(Hints(attention={})) > 0.25


def _slope_of_change(make, hints):
    """Return the slope of the change of q·k/√d by four steps of Adam, over widths 32 to 512."""
    x, y, widths, rows = gauss(8, 12, 6), gauss(8, 3), (32, 64, 128, 256, 512), []
    for width in widths:
        plan = scale(
            make, {"width": 32}, {"width": width}, scheme="mup", optimizer="adam", example=(x,),
            hints=hints, verify=False,
        )  # fmt: skip
        row = []
        for seed in range(3):
            model = plan.build(seed=seed)
            optimizer = torch.optim.Adam(plan.param_groups(model, lr=3e-3))
            model(x)
            before = model.a[-1].z.detach().clone()
            for _ in range(4):
                optimizer.zero_grad()
                (model(x) - y).square().mean().backward()
                optimizer.step()
            model(x)
            row.append(float((model.a[-1].z.detach() - before).square().mean().sqrt()))
        rows.append(np.mean(np.log2(row)))
    return np.polyfit(np.log2(widths), rows, 1)[0]


def test_a_number_made_of_two_vectors_has_the_factor_of_their_size():
    plan = plan_of(differential, EXAMPLE, verify=False)
    folded = {w.name: w.folded for w in plan.weights}
    for layer in (0, 1):
        assert folded[f"a.{layer}.lambda_q"] == ("attention × n⁻¹",)
        assert folded[f"a.{layer}.lambda_k"] == ()
        assert folded[f"a.{layer}.q.weight"] == ("attention × n⁻¹ᐟ²",)


@pytest.mark.slow
def test_a_number_made_of_two_vectors_is_judged():
    assert plan_of(differential, EXAMPLE).verified[0].passed
    found = plan_of(differential, EXAMPLE, hints=Hints(attention={})).verified[0]
    slopes = {e.where: e.slope for e in found.flags if e.kind == "logits"}
    assert slopes == {"a.0": pytest.approx(1, abs=0.25), "a.1": pytest.approx(1, abs=0.25)}


class Gates(nn.Module):
    """Gates, a norm by hand, and cosines: products that have the right size as they are."""

    def __init__(self, width):
        super().__init__()
        self.i, self.g, self.h = nn.Linear(6, width), nn.Linear(width, width), nn.Linear(6, width)
        self.o = nn.Linear(width, 3)

    def forward(self, x):
        h, other = self.i(x), self.h(x.flip(-1))
        h = h / (h * h).mean(-1, keepdim=True).add(1e-6).sqrt()
        h = h * torch.sigmoid(self.g(h))
        one, two = (z / (z * z).sum(-1, keepdim=True).sqrt() for z in (h, other))
        weights = torch.sigmoid(one @ two.mT)
        shares = other.softmax(-1)
        return self.o(weights @ h + (shares * h).sum(-1, keepdim=True) * h)


def test_gates_norms_cosines_and_means_have_no_factor():
    plan = plan_of(Gates, (gauss(4, 5, 6),))
    assert [w.name for w in plan.weights if w.folded] == ["o.weight"]
    assert not plan.multipliers
    assert plan.verified[0].passed, plan.verified[0]


def test_a_matrix_that_a_layer_makes_is_no_memory():
    plan = plan_of(Hypernetwork, (ROWS,), verify=False)
    assert {w.name: w.folded for w in plan.weights if w.folded} == {
        "o.weight": ("output × n⁻¹",),
        "h.weight": ("built × n¹ᐟ²",),
        "h.bias": ("built × n¹ᐟ²",),
    }


class Unused(Model):
    """Scores that are kept for a picture and that nothing reads."""

    def forward(self, x):
        h = self.i(x)
        self.seen = h @ h.mT / h.shape[-1] ** 0.5
        return self.out(self.n(h).mean(1))


def test_products_that_nothing_reads_are_left_alone():
    plan = plan_of(lambda width: Unused(width, None, 0), EXAMPLE)
    assert [w.name for w in plan.weights if w.folded] == ["out.weight"]
    assert plan.verified[0].passed, plan.verified[0]
