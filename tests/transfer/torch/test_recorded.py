"""Steps that are recorded and repeated, against the steps themselves: equal but for rounding."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from largen.transfer.replicas import Replica
from largen.transfer.schedules import warmup_cosine
from largen.transfer.torch import recorded, scale
from largen.transfer.torch.models import CharacterGPT, ConvResNet, ResidualMLP
from largen.transfer.torch.recorded import Changed, Repeated
from largen.transfer.torch.replicas import Stack, cross_entropy, tensors, train_replicas

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(48, 64)).astype("float32")
Y = DRAW.integers(0, 10, 48)
REPLICAS = [Replica(0.01, 0), Replica(0.003, 1)]


def batch(t):
    at = np.arange(8) + 8 * (t % 6)
    return X[at], Y[at]


class Normalised(nn.Module):
    """What has weights other than matrices, draws numbers, and looks at its shape."""

    def __init__(self, width):
        super().__init__()
        self.first, self.norm = nn.Linear(64, width), nn.LayerNorm(width)
        self.drop, self.out = nn.Dropout(0.2), nn.Linear(width, 10)

    def forward(self, x):
        h = self.drop(torch.nn.functional.gelu(self.norm(self.first(x))))
        left, right = h.chunk(2, -1)
        return self.out(torch.cat([left * right, left + right], -1))


def residual_mlp(optimizer):
    base, target = {"width": 8, "depth": 2}, {"width": 16, "depth": 4}
    return scale(ResidualMLP, base, target, scheme="depth_mup", optimizer=optimizer)


def images(t):
    x, y = batch(t)
    return x.reshape(-1, 1, 8, 8).repeat(3, 1), y


def letters(t):
    at = np.random.default_rng(t).integers(0, 10, (4, 9))
    return at[:, :-1], at[:, 1:]


CASES = {
    "gradient descent": (lambda: residual_mlp("sgd"), batch),
    "momentum": (lambda: residual_mlp("momentum"), batch),
    "adam": (lambda: residual_mlp("adam"), batch),
    "nadam": (lambda: residual_mlp("nadam"), batch),
    "dropout": (
        lambda: scale(Normalised, {"width": 8}, {"width": 12}, scheme="mup", optimizer="adamw"),
        batch,
    ),
    "convolutions": (
        lambda: scale(
            ConvResNet, {"width": 8, "depth": 4}, {"width": 16, "depth": 4},
            scheme="depth_mup", optimizer="sgd",
        ),
        images,
    ),
    "attention": (
        lambda: scale(
            CharacterGPT, {"width": 8, "depth": 2}, {"width": 16, "depth": 3},
            scheme="depth_mup", optimizer="adam",
        ),
        letters,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_repeated_step_is_the_step_itself(name):
    make, batches = CASES[name]
    plan = make()
    schedule = warmup_cosine(12, warmup=3)
    losses = []
    for repeats in (True, False):
        torch.manual_seed(0)
        stack = Stack(plan, REPLICAS, None, repeats)
        losses.append([
            stack.step(*tensors(batches(t)), cross_entropy, schedule(t), t + 1).numpy()
            for t in range(12)
        ])  # fmt: skip
        times = [record.repeated for record in stack.repeated._records.values()]
        assert times == ([10] if repeats else [])
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert not np.array_equal(losses[0][0], losses[0][-1])


class Counting(ResidualMLP):
    """Halves its outputs from the twelfth step on."""

    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + torch.is_grad_enabled()
        return super().forward(x) * (1.0 if self.calls < 12 else 0.5)


class Told(ResidualMLP):
    """Does so when it is told, in a way that cannot be seen."""

    half = [False]  # noqa: RUF012

    def forward(self, x):
        return super().forward(x) * (0.5 if self.half[0] else 1.0)


@pytest.mark.parametrize("make", [Counting, Told])
def test_a_model_that_changes_its_mind_is_trained_by_its_own_code(make):
    plan = scale(make, {"width": 8, "depth": 2}, {"width": 16, "depth": 4}, scheme="depth_mup",
                 optimizer="sgd")  # fmt: skip

    def batches(t):
        Told.half[0] = t >= 11
        return batch(t)

    found = train_replicas(plan, REPLICAS, batches, "cross_entropy", steps=20, evaluation=[(X, Y)])
    stack = Stack(plan, REPLICAS, None, repeats=False)
    wanted = [stack.step(*tensors(batches(t)), cross_entropy, 1.0, t + 1) for t in range(20)]
    np.testing.assert_array_equal(found.losses, torch.stack(wanted, 1))
    same = scale(ResidualMLP, {"width": 8, "depth": 2}, {"width": 16, "depth": 4},
                 scheme="depth_mup", optimizer="sgd")  # fmt: skip
    never = train_replicas(same, REPLICAS, batch, "cross_entropy", steps=20, evaluation=[(X, Y)])
    np.testing.assert_allclose(found.losses[:, :11], never.losses[:, :11], rtol=1e-4)
    assert not np.isclose(found.losses[:, 11], never.losses[:, 11]).any()


def by_records(function, inputs, state=()):
    """Call a function four times by a record and by itself; return whether it was repeated."""
    repeated = Repeated(function, lambda: state)
    for x in inputs:
        wanted = function(*x)
        np.testing.assert_allclose(repeated(*x), wanted, rtol=1e-5, atol=1e-6)
    return not repeated.given_up


A = torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(0))
FOREIGN = torch.ones(3)
REFUSED = {
    "a number that is looked at": lambda x: x * 2 if x.sum().item() > 0 else x,
    "a mask": lambda x: x[x > 0].sum(),
    "which are not zero": lambda x: x * len(x.nonzero()),
    "numbers of Python's": lambda x: x + random.random() * 0,
    "numbers of NumPy's": lambda x: x + np.random.rand() * 0,  # noqa: NPY002
    "a tensor from elsewhere": lambda x: x + FOREIGN,
    "a sparse tensor": lambda x: (x.to_sparse() * 2).to_dense(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_repeated(name):
    assert not by_records(REFUSED[name], [(a,) for a in A])


def ends_in_a_view(x):
    a = x * 2
    view = a.T
    b = a + 1  # here a would end, but for its view
    return b * view


def added_to_its_transpose(x):
    a = x * 2
    return a + a.T


def several(x):
    (whole,) = x.split(3)
    first, second, third = (whole * 2).unbind()
    values, at = x.max(1)
    (alone,) = (x * 3)[:1].unbind()
    return first + second * third + values * at + alone


def in_and_out_of_place(x):
    a = x.clone()
    b = a * 3
    a.add_(b).mul_(x)
    b.fill_(1.0)
    return a[1:] + b[1:] * x[:-1].exp()


def conjugate(x):
    z = torch.complex(x, x * 2)
    return torch.view_as_real(z * z.conj() + z.conj()) + (z.conj().imag)[..., None]


def sums_of_products(x):
    a, b = (x * 2)[None], (x + 1)[None]
    c = a + a @ b  # a is a factor of what is added to it
    d = c + b @ b
    return d + torch.bmm(d, b) * 2 + torch.add(b, b @ b, alpha=3)


def returns_what_ends(x):
    a = x * 2
    return a[0] * 1 + a.view(-1)[:3]


@pytest.mark.parametrize(
    "function", [ends_in_a_view, added_to_its_transpose, several, conjugate, sums_of_products,
                 in_and_out_of_place, returns_what_ends, lambda x: x + x, lambda x: x],
)  # fmt: skip
def test_memory_is_written_into_only_if_nobody_needs_it(function):
    before = A.clone()
    assert by_records(function, [(a,) for a in A])
    assert torch.equal(A, before)


def test_state_is_changed_where_it_stands():
    state = torch.zeros(3, 3)

    def function(x):
        state.mT.add_(x)
        return state * 1.0

    repeated = Repeated(function, lambda: [state])
    total = torch.zeros(3, 3)
    for a in A:
        total = total + a.T
        assert torch.equal(repeated(a), total)
    assert not repeated.given_up


def test_inputs_that_are_one_tensor_have_a_record_of_their_own():
    same, other = [(a, a) for a in A], [(a, 2 * a) for a in A]
    assert by_records(lambda x, y: x - y.T, [*same, *other, *same])


def test_a_step_that_differs_from_its_program_is_reported():
    powers = iter([1, 1, 1, 2])
    repeated = Repeated(lambda x: x ** next(powers), list)
    for _ in range(3):
        repeated(A[0])  # recorded, recorded again, repeated: the iterator stands still
    repeated(A[0], compare=True)
    with pytest.raises(Changed):
        repeated(A[0], compare=True)


def test_a_program_is_compared_by_itself_every_so_often():
    power = 1
    repeated = Repeated(lambda x: x**power, list)
    for _ in range(3):
        repeated(A[0])
    power = 2
    for _ in range(recorded.COMPARED_AFTER - 1):
        assert torch.equal(repeated(A[0]), A[0])
    with pytest.raises(Changed):
        repeated(A[0])


def test_large_steps_are_not_kept(monkeypatch):
    monkeypatch.setattr(recorded, "LARGEST_BYTES", 3 * A[0].nbytes)
    assert not by_records(lambda x: x.exp() + x.sin() + x.cos(), [(a,) for a in A])
