"""Batch size and horizon: against published rules, and against the trajectories of optimizers."""

from dataclasses import astuple
from math import sqrt

import numpy as np
import pytest
import torch
from tests.transfer.torch_models import ResidualMLP

from largen.errors import InvalidInput
from largen.transfer import Budget
from largen.transfer.horizon import horizon
from largen.transfer.torch import TorchPlan, scale
from largen.transfer.updates import UPDATES, update

ENTRIES = 4000


@pytest.mark.parametrize(
    ("optimizer", "decay", "batch", "samples", "lr", "weight_decay", "eps", "forgetting"),
    [
        # Malladi et al. 2022, the square-root rule: η√κ, (1 − β)κ, ε/√κ.
        ("adam", "coupled", 4, 1, 2, 1, 0.5, 4),
        # Wang and Aitchison 2024: the time scale 1/(ηλ) in steps is kept in proportion to D/B.
        ("adamw", "decoupled", 4, 1, 2, 2, 0.5, 4),
        ("adamw", "decoupled", 1, 16, 0.25, 0.25, 1, 1 / 16),
        ("adamw", "independent", 1, 16, 0.25, 1 / 16, 1, 1 / 16),
        ("adamw", "decoupled", 16, 16, 1, 1, 0.25, 1),
        ("sgd", "coupled", 4, 1, 4, 1, 1, 4),
        ("sgd", "decoupled", 4, 16, 1, 0.25, 1, 0.25),
    ],
)
def test_rules_as_published(optimizer, decay, batch, samples, lr, weight_decay, eps, forgetting):
    own = horizon(update(optimizer, decay), batch, samples)
    found = own.lr, own.weight_decay, own.eps, own.forgetting
    assert found == pytest.approx((lr, weight_decay, eps, forgetting))


def test_the_same_batch_and_horizon_change_nothing():
    assert set(astuple(horizon(update("adamw", "decoupled")))) == {1.0}


@pytest.mark.parametrize(
    "optimizer", sorted(set(UPDATES) - {"muon", "shampoo", "adagrad", "adamax"})
)
@pytest.mark.parametrize("decay", ["coupled", "decoupled", "independent"])
def test_decay_forgets_over_a_fixed_fraction_of_the_training(optimizer, decay):
    if decay == "coupled" and update(optimizer).decay == "decoupled":
        return
    moved = update(optimizer, decay)
    own = horizon(moved, 8, 50)
    steps = 50 / 8
    if decay == "independent":
        assert own.weight_decay * steps == pytest.approx(1)
    elif decay == "decoupled":
        assert own.lr * own.weight_decay * steps == pytest.approx(1)
    else:  # the decay is multiplied as the gradient is, by 1/√v ∝ √B under a normalised update
        gain = sqrt(8) if moved.kind == "normalised" else 1
        assert own.lr * own.weight_decay * steps * gain == pytest.approx(1)


def trained(optimizer, decay, batch=1, samples=1, curvature=0.0, scaled=True, own_eps=1e-8):
    """Train entries θ of the loss ½hθ² from θ = 1 with noise of variance 1/batch; return them.

    At the base they shrink to e^(−0.38) by the decay, and spread by 0.16.
    """
    generator = torch.Generator().manual_seed(int(10 * batch + samples))
    own = horizon(update(optimizer, decay), batch, samples)
    lr, weight_decay, eps = (own.lr, own.weight_decay, own.eps) if scaled else (1.0, 1.0, 1.0)
    theta = torch.ones(ENTRIES, dtype=torch.float64, requires_grad=True)
    group = {"params": [theta], "lr": 0.004 * lr, "weight_decay": 0.06 * weight_decay}
    if optimizer == "sgd":
        moved = torch.optim.SGD([group])
    else:
        group |= {"eps": own_eps * eps, "betas": own.betas((0.99, 0.999))}
        moved = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer]([group])
    for _ in range(round(1600 * samples / batch)):
        noise = torch.randn(ENTRIES, generator=generator, dtype=torch.float64) / sqrt(batch)
        theta.grad = curvature * theta.detach() + noise
        moved.step()
    return theta.detach().numpy()


def distances(a, b):
    """Return z-scores of the differences of the means and of the standard deviations."""
    mean = (a.mean() - b.mean()) / sqrt((a.var() + b.var()) / ENTRIES)
    spread = np.log(a.std() / b.std()) * sqrt(ENTRIES)
    return np.abs([mean, spread])


@pytest.mark.parametrize(
    ("optimizer", "decay"),
    [("adamw", "decoupled"), ("adam", "coupled"), ("sgd", "coupled")],
)
def test_training_is_the_same_at_another_batch_size(optimizer, decay):
    base = trained(optimizer, decay, curvature=0.05)
    assert distances(trained(optimizer, decay, batch=4, curvature=0.05), base).max() < 3.5
    if optimizer != "sgd":
        unscaled = trained(optimizer, decay, batch=4, curvature=0.05, scaled=False)
        assert distances(unscaled, base).min() > 10


@pytest.mark.parametrize(
    ("optimizer", "decay"),
    [("adamw", "decoupled"), ("adam", "coupled"), ("sgd", "coupled")],
)
def test_noise_and_decay_are_the_same_at_another_horizon(optimizer, decay):
    base = trained(optimizer, decay)
    assert distances(trained(optimizer, decay, samples=0.25), base).max() < 3.5
    assert distances(trained(optimizer, decay, samples=0.25, scaled=False), base).min() > 10


def test_epsilon_does_not_depend_on_the_horizon():
    """√(D/B), as public tables of Complete(d)P have it, would be half at a quarter of the samples.

    Here ε is half the size of √v, so that it is seen.
    """
    base = trained("adamw", "decoupled", own_eps=0.5)
    assert distances(trained("adamw", "decoupled", samples=0.25, own_eps=0.5), base).max() < 3.5
    _, spread = distances(trained("adamw", "decoupled", samples=0.25, own_eps=0.25), base)
    assert spread > 8


SIZES = {"width": 8, "depth": 2}, {"width": 16, "depth": 2}


def test_plans_carry_the_factors():
    plain = scale(ResidualMLP, *SIZES)
    plan = scale(ResidualMLP, *SIZES, budget=Budget(batch=4, samples=16))
    model = plan.build(seed=0)
    given = {"lr": 0.1, "weight_decay": 0.3, "eps": 1e-6}
    both = [
        {id(p): group for group in own.param_groups(model, **given) for p in group["params"]}
        for own in (plain, plan)
    ]
    for name, parameter in model.named_parameters():
        before, after = (groups[id(parameter)] for groups in both)
        ratios = [after[key] / before[key] for key in ("lr", "weight_decay", "eps", "lr_factor")]
        assert ratios == pytest.approx([0.5, 0.5, 0.5, 1.0]), name
    groups = plan.param_groups(model, lr=0.1, betas=(0.9, 0.95))
    assert groups[0]["betas"] == pytest.approx((0.975, 0.9875))
    assert "batch × 4, samples × 16: lr × 0.5" in str(plan)
    again = TorchPlan.from_json(plan.to_json(), ResidualMLP)
    assert again.horizon == plan.horizon
    assert "samples" not in str(plain)


def test_what_has_no_rule_is_refused():
    for optimizer in ("adagrad", "adamax", "muon"):
        assert horizon(update(optimizer)).lr == 1.0
        with pytest.raises(InvalidInput, match="no rule of batch size"):
            horizon(update(optimizer), 2.0)
    with pytest.raises(InvalidInput, match="batch: wanted"):
        scale(ResidualMLP, *SIZES, budget=Budget(batch=0))
    plan = scale(ResidualMLP, *SIZES, optimizer="sgd")
    with pytest.raises(InvalidInput, match="betas: sgd has none"):
        plan.param_groups(plan.build(seed=0), lr=0.1, betas=(0.9, 0.99))
    with pytest.raises(InvalidInput, match="betas"):
        horizon(update("adamw"), 16).betas((0.9, 0.99))
