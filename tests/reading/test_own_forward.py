"""Forward passes as they are written in repositories: products with numbers, ids, frozen layers."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.reading.test_population import largest_z
from torch import nn

import largen as lg
from largen.errors import NoRule
from largen.reading import Population

SMALL = (8, 16)
FEW = Population(neurons=256, replicates=8)
NODES = np.random.default_rng(0).standard_normal((3, 4, 6))
VECTORS = np.random.default_rng(1).standard_normal((3, 5))
MEAN = torch.full((4, 4), 0.25)

PRODUCTS = {
    "left": lambda a, h: a @ h,
    "named": lambda a, h: torch.matmul(a, other=h),
    "right": lambda a, h: (h.mT @ a.T).mT,
    "bmm": lambda a, h: torch.bmm(a.expand(len(h), -1, -1), h),
    "baddbmm": lambda a, h: torch.baddbmm(torch.zeros_like(h), a.expand(len(h), -1, -1), h),
    "einsum": lambda a, h: torch.einsum("ij,bjc->bic", a, h),
    "dots": lambda a, h: torch.einsum("ij, ...jc -> ...ic", a, h),
    "implicit": lambda a, h: torch.einsum("bj,ajc", a, h),
    "listed": lambda a, h: torch.einsum("ij,bjc->bic", [a, h]),
}


class Nodes(nn.Module):
    """Features of nodes, and their means over neighbours."""

    def __init__(self, n, product):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(6, n), nn.Linear(n, n), nn.Linear(n, 2)
        self.product = product

    def forward(self, x):
        return self.head(F.relu(self.b(self.product(MEAN.to(x.dtype), self.a(x)))).mean(1))


class Averaged(nn.Module):
    """The same by a mean over nodes."""

    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(6, n), nn.Linear(n, n), nn.Linear(n, 2)

    def forward(self, x):
        return self.head(F.relu(self.b(self.a(x).mean(1))))


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_numbers_sum_over_positions(name):
    found = lg.read(lambda n: Nodes(n, PRODUCTS[name]), NODES, SMALL).kernel(NODES, method=FEW)
    exact = lg.read(lambda n: Averaged(n), NODES, SMALL)
    assert not exact.unread
    assert largest_z(found, exact.kernel(NODES)) < 4
    assert found.nngp_error.max() < 0.1 * found.nngp.max()


@pytest.mark.parametrize(
    ("product", "said"),
    [
        (lambda a, h: h @ h.new_ones(h.shape[-1], h.shape[-1]), "a sum over channels that grow"),
        (lambda a, h: torch.einsum("bic,bjc->bij", h, h).softmax(-1) @ h, "einsum.*that grow"),
    ],
)
def test_products_over_neurons_are_refused(product, said):
    with pytest.raises(NoRule, match=said):
        lg.read(lambda n: Nodes(n, product), NODES, SMALL)


class Tokens(nn.Module):
    """Tokens without an embedding layer."""

    def __init__(self, n, how):
        super().__init__()
        self.how, self.read_in = how, nn.Linear(10, n)
        self.table = nn.Parameter(torch.randn(5, n))
        self.b, self.head = nn.Linear(n, n), nn.Linear(n, 1)

    def forward(self, ids):
        if self.how == "one-hot":
            h = self.read_in(F.one_hot(ids, 5).flatten(1).float())
        else:
            h = (self.table[ids] if self.how == "rows" else F.embedding(ids, self.table)).mean(1)
        return self.head(F.relu(self.b(F.relu(h))))


def test_whole_numbers_that_a_forward_pass_needs():
    ids = np.array([[0, 1], [2, 1], [4, 4]])
    found = lg.read(lambda n: Tokens(n, "one-hot"), ids, SMALL)
    vectors = np.eye(5)[ids].reshape(3, 10)
    exact = lg.read(
        lambda n: nn.Sequential(
            nn.Linear(10, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 1)
        ), vectors, SMALL,
    )  # fmt: skip
    assert largest_z(found.kernel(ids, method=FEW), exact.kernel(vectors)) < 4
    rows, table = (
        lg.read(lambda n, how=how: Tokens(n, how), ids, SMALL).kernel(ids, method=FEW)
        for how in ("rows", "table")
    )
    error = np.hypot(rows.ntk_error, table.ntk_error)
    assert (np.abs(rows.ntk - table.ntk) < 4 * error).all()


@pytest.mark.slow
def test_draws_of_a_model_that_reads_whole_numbers():
    ids = np.array([[0, 1], [2, 1], [4, 4]])
    check = lg.read(lambda n: Tokens(n, "one-hot"), ids, SMALL).check(widths=(16, 32), seeds=32)
    assert check.agrees, check


class Weighed(nn.Module):
    """Features times means over neurons of two factors."""

    def __init__(self, n, weigh):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(5, n), nn.Linear(n, n), nn.Linear(n, 1)
        self.queries, self.weigh = nn.Parameter(torch.randn(3, n)), weigh

    def forward(self, x):
        u = F.relu(self.a(x))
        h = F.relu(self.b(u))
        return self.head(h * (1 + self.weigh(self, u, h)[:, :1]))


def cosine(_, u, h):
    return F.cosine_similarity(u, h, dim=-1)[:, None]


def cosine_by_hand(_, u, h):
    sizes = u.square().mean(-1, keepdim=True) * h.square().mean(-1, keepdim=True)
    return (u * h).mean(-1, keepdim=True) / sizes.sqrt()


def queried(model, _, h):
    return (h @ (3 * model.queries.square()).T / h.shape[-1]).sigmoid()


def queried_by_hand(model, _, h):
    return (h[:, None] * (3 * model.queries.square())).mean(-1).sigmoid()


@pytest.mark.parametrize(
    ("weigh", "by_hand"), [(cosine, cosine_by_hand), (queried, queried_by_hand)]
)
def test_functions_of_means_over_neurons(weigh, by_hand):
    found, expected = (
        lg.read(lambda n, each=each: Weighed(n, each), VECTORS, SMALL).kernel(VECTORS, method=FEW)
        for each in (weigh, by_hand)
    )
    np.testing.assert_allclose(found.nngp, expected.nngp, rtol=1e-6)
    np.testing.assert_allclose(found.ntk, expected.ntk, rtol=1e-6)


def test_frozen_parameters_have_no_rate():
    def make(n, frozen=True):
        net = nn.Sequential(nn.Linear(5, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 1))
        net[0].requires_grad_(not frozen)
        net[2].requires_grad_(not frozen)
        return net

    net, whole = lg.read(make, VECTORS, SMALL), lg.read(lambda n: make(n, False), VECTORS, SMALL)
    features = net.kernel(VECTORS, width=64, rates=1.0)
    # K sums over weights of the variance 1/192, which move at the rate 1, and so does the bias.
    np.testing.assert_allclose(features.ntk, 192 * features.nngp, rtol=1e-5)
    named = dict.fromkeys(("0.weight", "0.bias", "2.weight", "2.bias"), 0.0)
    np.testing.assert_allclose(
        features.ntk, whole.kernel(VECTORS, width=64, rates=named).ntk, rtol=1e-6
    )
    drawn = net.kernel(VECTORS, width=64, rates=1.0, method=FEW)
    assert np.abs((drawn.ntk - features.ntk) / drawn.ntk_error).max() < 4
    assert net.critical_rate(width=64) > 1.3 * whole.critical_rate(width=64)
    again = net.kernel(VECTORS, width=64, rates=dict.fromkeys(named, 1.0)).ntk
    np.testing.assert_allclose(again, whole.kernel(VECTORS, width=64, rates=1.0).ntk, rtol=1e-6)
    assert "frozen: 0.weight, 2.weight" in str(net)
    assert "frozen" not in str(whole)
