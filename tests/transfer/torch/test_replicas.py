"""Replicas trained together against the same networks trained one by one by ``torch.optim``."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from largen.errors import InvalidInput
from largen.transfer.replicas import Replica
from largen.transfer.schedules import warmup_cosine
from largen.transfer.torch import scale
from largen.transfer.torch.models import ResidualMLP
from largen.transfer.torch.optimizers import OPTIMIZERS
from largen.transfer.torch.replicas import Stack, cross_entropy, tensors, train_replicas

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(48, 64)).astype("float32")
Y = DRAW.integers(0, 10, 48)
STEPS = 6
BASE = {"width": 8, "depth": 2}
TARGET = {"width": 16, "depth": 4}


def batch(t):
    at = np.arange(8) + 8 * (t % 6)
    return X[at], Y[at]


class SignSGD(torch.optim.Optimizer):
    def __init__(self, groups):
        super().__init__(groups, {"lr": 0.0, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * p.grad.sign())


class Lion(SignSGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * (0.9 * m + 0.1 * p.grad).sign())
                m.mul_(0.99).add_(0.01 * p.grad)


ALONE = OPTIMIZERS | {
    "momentum": partial(torch.optim.SGD, momentum=0.8),
    "signsgd": SignSGD,
    "lion": Lion,
}


def alone(plan, replica, optimizer, schedule=None):
    model = plan.build(seed=replica.seed)
    step = ALONE[optimizer](
        plan.param_groups(model, lr=replica.lr, weight_decay=replica.weight_decay)
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(step, schedule) if schedule else None
    losses = []
    for t in range(STEPS):
        x, y = map(torch.as_tensor, batch(t))
        step.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        step.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.item())
    with torch.no_grad():
        final = nn.functional.cross_entropy(model(torch.as_tensor(X)), torch.as_tensor(Y))
    return losses, final.item()


@pytest.mark.parametrize("optimizer", ALONE)
@pytest.mark.parametrize("multipliers", ["weights", "forward"])
def test_each_replica_is_trained_as_it_is_alone(optimizer, multipliers):
    plan = scale(
        ResidualMLP, BASE, TARGET, scheme="depth_mup", optimizer=optimizer, multipliers=multipliers
    )
    small = 0.1 if optimizer in ("sgd", "momentum") else 0.003
    replicas = [
        Replica(small, 0, 0.0, 0.8), Replica(small / 2, 1, 0.1, 0.8), Replica(small, 1, 0.2, 0.8),
    ]  # fmt: skip
    schedule = warmup_cosine(STEPS, warmup=2)
    found = train_replicas(
        plan, replicas, batch, "cross_entropy", steps=STEPS, evaluation=[(X, Y)], schedule=schedule
    )
    for i, replica in enumerate(replicas):
        losses, final = alone(plan, replica, optimizer, schedule)
        np.testing.assert_allclose(found.losses[i], losses, rtol=2e-5)
        np.testing.assert_allclose(found.final[i], final, rtol=2e-5)


class Shared(nn.Module):
    """One layer that is used twice, others with biases, and one that is frozen."""

    def __init__(self, width):
        super().__init__()
        self.frozen = nn.Linear(64, width).requires_grad_(False)
        self.shared, self.hidden = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        h = self.shared(torch.relu(self.frozen(x)))
        return self.out(torch.relu(self.hidden(h + self.shared(torch.relu(h)))))


class Convolutional(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, width, 3), nn.Linear(36 * width, 10)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x.reshape(-1, 1, 8, 8))).flatten(1))


@pytest.mark.parametrize("make", [ResidualMLP, Shared, Convolutional])
def test_gradient_descent_moves_weights_in_the_backward_pass_where_it_may(make):
    deep = make is ResidualMLP
    base, target = (BASE, TARGET) if deep else ({"width": 8}, {"width": 12})
    plan = scale(make, base, target, scheme="depth_mup" if deep else "mup", optimizer="sgd")
    replicas = [Replica(0.3, 0), Replica(0.05, 1), Replica(0.0, 1)]
    schedule = warmup_cosine(STEPS, warmup=2)
    found = train_replicas(
        plan, replicas, batch, "cross_entropy", steps=STEPS, evaluation=[(X, Y)], schedule=schedule
    )
    for i, replica in enumerate(replicas):
        losses, final = alone(plan, replica, "sgd", schedule)
        np.testing.assert_allclose(found.losses[i], losses, rtol=2e-5)
        np.testing.assert_allclose(found.final[i], final, rtol=2e-5)
    stack = Stack(plan, replicas, None)
    stack.step(*tensors(batch(0)), cross_entropy, 1.0, 1)
    moving = {w.name for w in plan.weights} if deep else {"hidden.weight", "out.weight"}
    assert set(stack.moving) == (set() if make is Convolutional else moving)


def test_a_diverged_replica_is_dropped_and_disturbs_no_other():
    plan = scale(ResidualMLP, BASE, TARGET, scheme="mup", optimizer="momentum")
    together = train_replicas(
        plan, [Replica(0.05), Replica(1e4), Replica(0.1)], batch, "cross_entropy",
        steps=25, evaluation=[(X, Y)],
    )  # fmt: skip
    assert together.diverged.tolist() == [False, True, False]
    assert np.isinf(together.losses[1, -1])
    for i, lr in ((0, 0.05), (2, 0.1)):
        apart = train_replicas(
            plan, [Replica(lr)], batch, "cross_entropy", steps=25, evaluation=[(X, Y)]
        )
        np.testing.assert_allclose(together.losses[i], apart.losses[0], rtol=1e-4)


def test_all_diverge():
    plan = scale(ResidualMLP, BASE, TARGET, scheme="mup", optimizer="sgd")
    found = train_replicas(
        plan, [Replica(1e6), Replica(1e7)], batch, "cross_entropy", steps=30, evaluation=[(X, Y)]
    )
    assert found.diverged.all()


class WithBuffersAndFrozen(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.frozen = nn.Linear(64, width)
        self.frozen.requires_grad_(False)
        self.norm = nn.BatchNorm1d(width)
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.frozen(x))))


def test_frozen_weights_and_buffers():
    plan = scale(WithBuffersAndFrozen, {"width": 8}, {"width": 12}, scheme="mup", optimizer="adam")
    replicas = [Replica(0.01), Replica(0.02)]
    found = train_replicas(plan, replicas, batch, "cross_entropy", steps=STEPS, evaluation=[(X, Y)])
    for i, replica in enumerate(replicas):
        np.testing.assert_allclose(found.losses[i], alone(plan, replica, "adam")[0], rtol=2e-5)


def test_doors():
    plan = scale(ResidualMLP, BASE, TARGET, scheme="mup", optimizer="muon")
    with pytest.raises(InvalidInput, match="muon"):
        train_replicas(plan, [Replica(1.0)], batch, "mse", steps=1, evaluation=[(X, Y)])
    with pytest.raises(InvalidInput, match="replicas"):
        train_replicas(plan, [], batch, "mse", steps=1, evaluation=[(X, Y)])
    with pytest.raises(InvalidInput, match="Did you mean 'mse'"):
        train_replicas(plan, [Replica(1.0)], batch, "mes", steps=1, evaluation=[(X, Y)])
    plan = scale(ResidualMLP, BASE, TARGET, scheme="mup", optimizer="sgd")
    with pytest.raises(InvalidInput, match="absolute rates"):
        train_replicas(plan, [Replica(1.0)], batch, "mse", steps=2, evaluation=[(X, Y)],
                       schedule=[1e-3, 5e-4].__getitem__)  # fmt: skip
    with pytest.raises(InvalidInput, match="targets of the outputs' shape"):
        train_replicas(plan, [Replica(1.0)], batch, "mse", steps=1, evaluation=[(X, Y)])


class Linear3(nn.Module):
    """Linear layers with biases, and something in between that decides about the direct way."""

    def __init__(self, between, width):
        super().__init__()
        self.first, self.second = nn.Linear(64, width), nn.Linear(width, width)
        self.out, self.between = nn.Linear(width, 10), between
        nn.init.zeros_(self.second.weight)  # hides what is between, until training has moved it

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.out(h + self.second(self.between(h)))


BETWEEN = {
    "nothing": (lambda h: h, True),
    "positions": (lambda h: h.unflatten(-1, (2, -1)).sin().flatten(-2), True),
    "over the samples": (lambda h: h - h.mean(0), False),
    "by number of axes": (lambda h: h.flatten(1), False),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_models_are_called_on_stacks_where_that_is_the_same(name):
    between, direct = BETWEEN[name]
    plan = scale(partial(Linear3, between), {"width": 8}, {"width": 12}, scheme="mup",
                 optimizer="sgd")  # fmt: skip
    replicas = [Replica(0.05, 0), Replica(0.1, 1)]
    stack = Stack(plan, replicas, None)
    stack.step(*tensors(batch(0)), cross_entropy, 1.0, 1)
    assert (stack.direct is not None) == direct
    found = train_replicas(plan, replicas, batch, "cross_entropy", steps=STEPS, evaluation=[(X, Y)])
    for i, replica in enumerate(replicas):
        np.testing.assert_allclose(found.losses[i], alone(plan, replica, "sgd")[0], rtol=2e-5)


def test_a_loss_of_the_user_is_the_named_one():
    plan = scale(ResidualMLP, BASE, TARGET, scheme="mup", optimizer="sgd")
    own = lambda f, y: nn.functional.cross_entropy(f, y)  # noqa: E731
    both = [
        train_replicas(
            plan, [Replica(0.1), Replica(0.2)], batch, loss, steps=3, evaluation=[(X, Y)]
        )
        for loss in (own, "cross_entropy")
    ]
    np.testing.assert_allclose(both[0].losses, both[1].losses, rtol=1e-6)
    np.testing.assert_allclose(both[0].each, both[1].each, rtol=1e-5)
    np.testing.assert_allclose(both[0].final, both[0].each.mean(1))
