"""Replicas trained together against the same networks trained one by one by ``torch.optim``."""

from functools import partial
from itertools import cycle

import numpy as np
import pytest
import torch
from torch import nn

from examples.models import ResidualMLP
from largen.errors import InvalidInput
from largen.transfer.replicas import Replica
from largen.transfer.schedules import warmup_cosine
from largen.transfer.torch import scale
from largen.transfer.torch.gradients import Batched, OneByOne
from largen.transfer.torch.optimizers import OPTIMIZERS
from largen.transfer.torch.replicas import Stack, cross_entropy, train_replicas

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
        final = nn.functional.cross_entropy(model.eval()(torch.as_tensor(X)), torch.as_tensor(Y))
    return losses, final.item()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "multipliers"),
    [*zip(ALONE, cycle(["weights", "forward"])), ("sgd", "forward"), ("adam", "forward")],
)
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


def assert_trained_as_alone(plan, replicas, optimizer="sgd", batched=True):
    schedule = warmup_cosine(STEPS, warmup=2)
    found = train_replicas(
        plan, replicas, batch, "cross_entropy", steps=STEPS, evaluation=[(X, Y)], schedule=schedule
    )
    for i, replica in enumerate(replicas):
        losses, final = alone(plan, replica, optimizer, schedule)
        np.testing.assert_allclose(found.losses[i], losses, rtol=2e-5)
        np.testing.assert_allclose(found.final[i], final, rtol=2e-5)
    stack = Stack(plan, replicas, None)
    stack.step(*stack.tensors(batch(0)), cross_entropy, 1.0, 1)
    assert isinstance(stack.gradients.way, Batched if batched else OneByOne)


@pytest.mark.parametrize("make", [Shared, Convolutional])
def test_shared_frozen_and_convolutional_layers(make):
    plan = scale(make, {"width": 8}, {"width": 12}, scheme="mup", optimizer="sgd")
    assert_trained_as_alone(plan, [Replica(0.3, 0), Replica(0.05, 1), Replica(0.0, 1)])


def limited(g):
    return g / (1e-9 + 300 * g.norm())  # another thing for a stack than for each replica


def limit(weight):
    weight.grad = limited(weight.grad)


class Hooked(nn.Module):
    """Two layers, with a hook that changes gradients in one of several places."""

    def __init__(self, where, width):
        super().__init__()
        self.first, self.second = nn.Linear(64, width), nn.Linear(width, width)
        self.out, self.where = nn.Linear(width, 10), where
        if where == "weight":
            self.second.weight.register_hook(limited)
        if where == "accumulated weight":
            self.second.weight.register_post_accumulate_grad_hook(limit)
        if where == "module":
            self.second.register_full_backward_hook(lambda m, g, _: tuple(map(limited, g)))

    def forward(self, x):
        h = torch.tanh(self.first(x))
        if self.where == "activation" and h.requires_grad:
            h.register_hook(limited)
        if self.where == "value" and h.abs().max() > 0.5:
            h = 2 * h
        return self.out(torch.tanh(self.second(h)))


HOOKS = {"activation": True, "weight": False, "accumulated weight": False, "module": False,
         "value": False}  # fmt: skip


@pytest.mark.parametrize("where", HOOKS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_gradients_are_moved_along_as_hooks_leave_them(where, optimizer):
    plan = scale(partial(Hooked, where), {"width": 8}, {"width": 12}, scheme="mup",
                 optimizer=optimizer)  # fmt: skip
    replicas = [Replica(0.3, 0), Replica(0.1, 1, 0.01)]
    assert_trained_as_alone(plan, replicas, optimizer, batched=HOOKS[where])


class Counting(nn.Module):
    """What it computes depends on how often it was called, which is counted outside of it."""

    def __init__(self, width):
        super().__init__()
        self.first, self.out, self.calls = nn.Linear(64, width), nn.Linear(width, 10), {"n": 0}

    def forward(self, x):
        self.calls["n"] += self.training
        h = torch.relu(self.first(x))
        return self.out(h if self.calls["n"] < 4 else -h)


def test_a_model_and_a_loss_that_count_their_calls():
    plan = scale(Counting, {"width": 8}, {"width": 12}, scheme="mup", optimizer="sgd")
    replicas = [Replica(0.3, 0), Replica(0.1, 1)]
    found = train_replicas(plan, replicas, batch, "cross_entropy", steps=STEPS,
                           evaluation=[(X, Y)])  # fmt: skip
    for i, replica in enumerate(replicas):
        losses, final = alone(plan, replica, "sgd")
        np.testing.assert_allclose(found.losses[i], losses, rtol=2e-5)
        np.testing.assert_allclose(found.final[i], final, rtol=2e-5)

    calls = []

    def later_more(outputs, targets):
        calls.append(None)
        more = (len(calls) > 4) * outputs.square().mean()
        return nn.functional.cross_entropy(outputs, targets) + more

    plain, more = (
        train_replicas(plan, replicas, batch, loss, steps=STEPS, evaluation=[(X, Y)])
        for loss in ("cross_entropy", later_more)
    )
    assert len(calls) == STEPS + 1
    np.testing.assert_array_equal(plain.losses[:, :4], more.losses[:, :4])
    assert (more.losses[:, 4] > plain.losses[:, 4]).all()


class Dropped(nn.Module):
    """Everything is dropped while training, so that the loss is log 10, and nothing after it."""

    def __init__(self, width):
        super().__init__()
        self.first, self.norm = nn.Linear(64, width), nn.BatchNorm1d(width)
        self.drop, self.out = nn.Dropout(1.0), nn.Linear(width, 10, bias=False)

    def forward(self, x):
        return self.out(self.drop(torch.relu(self.norm(self.first(x)))))


def test_losses_after_training_are_those_of_evaluation():
    plan = scale(Dropped, {"width": 8}, {"width": 12}, scheme="mup", optimizer="sgd")
    found = train_replicas(plan, [Replica(0.1, 0), Replica(0.1, 3)], batch, "cross_entropy",
                           steps=STEPS, evaluation=[(X, Y)])  # fmt: skip
    np.testing.assert_allclose(found.losses, np.log(10), rtol=1e-6)
    for i, seed in enumerate((0, 3)):
        _, final = alone(plan, Replica(0.1, seed), "sgd")
        assert abs(final - np.log(10)) > 1e-3
        np.testing.assert_allclose(found.final[i], final, rtol=2e-5)


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
    with pytest.raises(InvalidInput, match="evaluation: is empty"):
        train_replicas(plan, [Replica(1.0)], batch, "mse", steps=1, evaluation=[])
    with pytest.raises(InvalidInput, match="Did you mean 'mse'"):
        train_replicas(plan, [Replica(1.0)], batch, "mes", steps=1, evaluation=[(X, Y)])
    plan = scale(ResidualMLP, BASE, TARGET, scheme="mup", optimizer="sgd")
    with pytest.raises(InvalidInput, match="absolute rates"):
        train_replicas(plan, [Replica(1.0)], batch, "mse", steps=2, evaluation=[(X, Y)],
                       schedule=[1e-3, 5e-4].__getitem__)  # fmt: skip
    with pytest.raises(InvalidInput, match="targets of the outputs' shape"):
        train_replicas(plan, [Replica(1.0)], batch, "mse", steps=1, evaluation=[(X, Y)])


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


def test_inputs_in_another_precision_and_labels_out_of_range():
    plan = scale(ResidualMLP, BASE, TARGET, scheme="mup", optimizer="sgd")
    train = partial(train_replicas, plan, [Replica(0.1)], loss="cross_entropy", steps=2)
    found = train(batches=lambda t: (X.astype(float), Y), evaluation=[(X.astype(float), Y)])
    np.testing.assert_array_equal(found.losses, train(lambda t: (X, Y), evaluation=[(X, Y)]).losses)
    for labels in (Y + 1, Y - 1, Y.astype("float32")):
        with pytest.raises(InvalidInput, match="classes from 0 to 9"):
            train(batches=lambda t, labels=labels: (X, labels), evaluation=[(X, Y)])
