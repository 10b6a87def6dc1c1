"""PyTorch modules as functions in JAX: their laws, outputs, gradients, ensembles and training."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy import stats
from tests.reading.population_models import batch_statistics
from tests.traces.zoo import GPT, TOKENS, Controlled, Fourier, ViT
from torch import nn

import largen as lg
from largen.errors import InvalidInput, NoRule

RNG = np.random.default_rng(3)


class Drawn(nn.Module):
    """Parameters of every law that a construction draws."""

    def __init__(self, n):
        super().__init__()
        self.linear, self.table = nn.Linear(40, n), nn.Embedding(50, n, padding_idx=3)
        self.cut, self.square = nn.Parameter(torch.empty(60, n)), nn.Parameter(torch.empty(20, n))
        self.gain, self.scaled = nn.Parameter(torch.ones(n)), nn.Parameter(3 * torch.randn(70, n))
        nn.init.trunc_normal_(self.cut, 0.5, 2.0, -1.0, 2.0)
        nn.init.orthogonal_(self.square, 1.5)

    def forward(self, x):
        return self.linear(x) * self.gain


@pytest.mark.slow
def test_parameters_have_the_laws_of_the_construction():
    torch.manual_seed(0)
    theirs = dict(Drawn(100).named_parameters())
    ours = lg.reading.as_jax(Drawn).init(1, 100)
    assert list(ours) == list(theirs)
    for name, p in theirs.items():
        assert ours[name].shape == p.shape
        assert ours[name].dtype == np.float32
    for name in ("linear.weight", "linear.bias", "table.weight", "cut", "scaled"):
        one, two = np.asarray(ours[name]).ravel(), theirs[name].detach().numpy().ravel()
        assert stats.ks_2samp(one[one != 0], two[two != 0]).pvalue > 1e-3, name
    assert not np.asarray(ours["table.weight"][3]).any()
    assert np.all(np.asarray(ours["gain"]) == 1)
    gram = np.asarray(ours["square"] @ ours["square"].T)
    np.testing.assert_allclose(gram, 2.25 * np.eye(20), atol=1e-5)
    assert ours["cut"].min() >= -1.0
    assert ours["cut"].max() <= 2.0


def perceptron(n):
    return nn.Sequential(nn.Linear(3, n), nn.GELU(), nn.LayerNorm(n), nn.Linear(n, 2))


def test_any_number_of_samples_under_transformations():
    torch.manual_seed(0)
    model, module = lg.reading.as_jax(perceptron), perceptron(8)
    params, state = model.of(module)
    assert state == {}
    for n in (1, 4, 7):
        x = RNG.normal(size=(n, 3)).astype("f")
        want = module(torch.tensor(x)).detach().numpy()
        np.testing.assert_allclose(model.apply(params, x), want, atol=1e-6)
        np.testing.assert_allclose(jax.jit(model.apply)(params, x), want, atol=1e-6)
        rows = jax.vmap(model.apply, (None, 0))(params, x[:, None])
        np.testing.assert_allclose(rows[:, 0], want, atol=1e-6)
    keys = jax.random.split(jax.random.key(0), 3)
    several = jax.vmap(lambda key: model.init(key, 8))(keys)
    out = jax.vmap(model.apply, (0, None))(several, x)
    one = model.apply(jax.tree.map(lambda p: p[1], several), x)
    np.testing.assert_allclose(out[1], one, atol=1e-6)
    doubled = {name: np.asarray(p, float) for name, p in params.items()}
    out = np.asarray(model.apply(doubled, x.astype(float)))
    assert out.dtype == np.float64
    np.testing.assert_allclose(out, module.double()(torch.tensor(x).double()).detach(), atol=1e-14)


class Block(nn.Module):
    """Somebody's block of a vision transformer, with patches and a head."""

    def __init__(self, n):
        super().__init__()
        self.patches, self.places = nn.Linear(6, n), nn.Parameter(0.02 * torch.randn(1, 4, n))
        self.one, self.two = nn.LayerNorm(n), nn.LayerNorm(n)
        self.qkv, self.out = nn.Linear(n, 3 * n), nn.Linear(n, n)
        self.mlp = nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n))
        self.head = nn.Linear(n, 2)

    def forward(self, x):
        h = self.patches(x) + self.places
        q, k, v = self.qkv(self.one(h)).unflatten(-1, (3, -1, 4)).permute(2, 0, 3, 1, 4)
        a = ((q @ k.mT) / math.sqrt(4)).softmax(-1) @ v
        h = h + self.out(a.transpose(1, 2).flatten(2))
        return self.head((h + self.mlp(self.two(h))).mean(1))


@pytest.mark.slow
def test_an_ensemble_trains_as_its_members_do():
    """64 members in one program in JAX, and each by PyTorch's own SGD with momentum."""
    model = lg.reading.as_jax(Block)
    members = jax.vmap(lambda key: model.init(key, 8))(jax.random.split(jax.random.key(0), 64))
    x, y = RNG.normal(size=(6, 4, 6)).astype("f"), RNG.normal(size=(6, 2)).astype("f")
    params, speed = members, jax.tree.map(jnp.zeros_like, members)

    def loss(p):
        return ((model.apply(p, x) - y) ** 2).mean()

    @jax.jit
    def step(params, speed):
        slopes = jax.vmap(jax.grad(loss))(params)
        speed = jax.tree.map(lambda v, g: 0.9 * v + g, speed, slopes)
        return jax.tree.map(lambda p, v: p - 0.05 * v, params, speed), speed

    for _ in range(20):
        params, speed = step(params, speed)
    losses = jax.vmap(loss)(params)
    assert float((losses / jax.vmap(loss)(members)).max()) < 0.8  # they have learned something
    for member in range(64):
        module = Block(8)
        module.load_state_dict({n: torch.tensor(np.asarray(p[member])) for n, p in members.items()})
        optimizer = torch.optim.SGD(module.parameters(), 0.05, 0.9)
        for _ in range(20):
            optimizer.zero_grad()
            ((module(torch.tensor(x)) - torch.tensor(y)) ** 2).mean().backward()
            optimizer.step()
        for name, p in module.named_parameters():
            np.testing.assert_allclose(params[name][member], p.detach(), atol=1e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "x"),
    [(Block, RNG.normal(size=(4, 4, 6))), (lambda n: GPT(n), TOKENS.numpy()),
     (lambda n: ViT(n, 1), RNG.normal(size=(3, 3, 8, 8)))],
    ids=["block", "GPT", "ViT"],
)  # fmt: skip
def test_tangent_kernels_are_those_of_the_module(make, x):
    torch.manual_seed(1)
    module, model = make(16).eval(), lg.reading.as_jax(make)
    params = {name: np.asarray(p, float) for name, p in model.of(module)[0].items()}
    state = {name: np.asarray(b, float) for name, b in model.of(module)[1].items()}

    def f(p, given):
        ids = given.astype(x.dtype)  # tokens arrive as real numbers
        out = model.apply(p, ids, state=state)
        return out.reshape(len(given), -1)[:, :2]

    got = lg.networks.ntk_of_function(f, params, x)
    module = module.double()
    inputs = torch.tensor(x)

    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, x):
            return self.inner(x).flatten(1)[:, :2]

    want = np.asarray(lg.transfer.torch.ntk_of_module(First().double(), inputs))
    np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-7 * np.abs(want).max())


def test_buffers_are_a_state():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    model = lg.reading.as_jax(lambda n: nn.Sequential(
        nn.Linear(5, n), nn.BatchNorm1d(n), nn.Linear(n, 2)
    ))  # fmt: skip
    trained = lg.reading.as_jax(module, train=True)
    x = RNG.normal(size=(8, 5)).astype("f")
    model.init(0, 6)
    params, state = trained.of(module)
    for _ in range(2):
        out, state = trained.apply(params, x, state=state)
        np.testing.assert_allclose(out, module.train()(torch.tensor(x)).detach(), atol=1e-6)
    params, theirs = model.of(module)
    assert state.keys() == theirs.keys()
    for name in state:
        np.testing.assert_allclose(state[name], theirs[name], rtol=1e-5)
    want = module.eval()(torch.tensor(x)).detach()
    np.testing.assert_allclose(model.apply(params, x, state=theirs), want, atol=1e-6)
    with pytest.raises(InvalidInput, match="state: wanted the buffers that of"):
        model.apply(params, x)
    with pytest.raises(InvalidInput, match="state: wanted the buffers"):
        model.apply(params, x, state={})


def test_several_inputs_by_place_and_by_name():
    class Two(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.a, self.b = nn.Linear(2, n), nn.Linear(3, n)

        def forward(self, one, two):
            return {"sum": self.a(one) + self.b(two), "parts": (self.a(one), self.b(two))}

    model = lg.reading.as_jax(Two)
    params = model.init(0, 4)
    one, two = np.ones((2, 2), "f"), np.ones((2, 3), "f")
    by_place = jax.jit(model.apply)(params, (one, two))
    by_name = model.apply(params, {"two": two, "one": one})
    np.testing.assert_allclose(by_place["sum"], by_name["sum"], rtol=1e-6)
    np.testing.assert_allclose(by_place["parts"][0] + by_place["parts"][1], by_place["sum"])


def test_dropout_draws_with_a_key():
    model = lg.reading.as_jax(nn.Sequential(nn.Linear(4, 400), nn.Dropout(0.5)), train=True)
    params, x = model.init(0), np.ones((5, 4))
    with pytest.raises(InvalidInput, match="key: the forward pass draws"):
        model.apply(params, x)
    one, two = (model.apply(params, x, key=key)[0] for key in (0, 1))
    assert abs(float((one == 0).mean()) - 0.5) < 4 * 0.5 / 2000**0.5
    assert not np.array_equal(one == 0, two == 0)


def test_what_is_refused():
    x = np.ones((2, 6))
    controlled = lg.reading.as_jax(Controlled)
    with pytest.raises(NoRule, match="_local_scalar_dense: the forward pass reads values"):
        controlled.apply(controlled.init(0, 6), x)
    fourier = lg.reading.as_jax(Fourier)
    assert fourier.apply(fourier.init(0, 6), x).shape == (2, 6)  # what is not needed is no reason

    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x) + torch.linalg.eigvals(self.weight).real

    own = lg.reading.as_jax(lambda n: Own(6, 6))
    with pytest.raises(NoRule, match="linalg_eig: this operation of PyTorch has no form in JAX"):
        own.apply(own.init(0, 6), x)

    class Sparse(nn.Linear):
        def reset_parameters(self):
            nn.init.sparse_(self.weight, 0.5)

    sparse = lg.reading.as_jax(lambda n: Sparse(9, n, bias=False))
    with pytest.raises(NoRule, match="weight: its law cannot be drawn"):
        sparse.init(0, 30)
    model = lg.reading.as_jax(perceptron)
    with pytest.raises(InvalidInput, match="params: wanted the parameters that init"):
        model.apply({"a": np.ones(3)}, x)
    with pytest.raises(InvalidInput, match="the module fails on inputs"):
        model.apply(model.init(0, 8), x)


def test_batch_statistics_without_state():
    torch.manual_seed(0)
    module = batch_statistics(6)
    model = lg.reading.as_jax(module)
    params, _ = model.of(module)
    x = RNG.normal(size=(8, 5)).astype("f")
    want = module.eval()(torch.tensor(x)).detach()
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), want, atol=1e-5)
