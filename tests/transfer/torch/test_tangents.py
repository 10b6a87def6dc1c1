"""Tangent kernels of PyTorch modules equal products of gradients, sample by sample."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import largen as lg
from largen.errors import InvalidInput
from largen.transfer.torch import ntk_of_module, tangent_factors


def images(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class Tied(nn.Module):
    """Tokens with learned positions, a transformer layer and the table as read-out."""

    def __init__(self, batch_first=True):
        super().__init__()
        self.table = nn.Embedding(7, 8)
        self.place = nn.Parameter(torch.randn(1, 3, 8) / 3)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=batch_first)
        self.batch_first = batch_first

    def forward(self, tokens):
        h = self.table(tokens) + self.place
        h = self.layer(h) if self.batch_first else self.layer(h.transpose(0, 1)).transpose(0, 1)
        return nn.functional.linear(h.mean(1), self.table.weight)


class Unusual(nn.Module):
    """A recurrent cell, a product of parameters, a parameter that is not used, in-place relu."""

    def __init__(self):
        super().__init__()
        self.first, self.cell = nn.Linear(4, 6), nn.GRU(6, 5, batch_first=True)
        self.a, self.b = nn.Parameter(torch.randn(5, 2)), nn.Parameter(torch.randn(2, 1))
        self.unused = nn.Parameter(torch.randn(3))

    def forward(self, x):
        h = nn.functional.relu_(self.first(x))
        h, _ = self.cell(h[:, None, :].expand(-1, 3, -1))
        return (h[:, -1] @ (self.a @ self.b))[:, 0]


class Coupled(nn.Module):
    """Outputs relative to the mean of the batch."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(4, 2)

    def forward(self, x):
        out = torch.tanh(self.map(x))
        return out - out.mean(0)


class Through(torch.autograd.Function):
    """A product that PyTorch's function modes do not see."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.T, x.T @ g


class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(Through.apply(torch.tanh(self.map(x)), self.map.weight))


def conv_net():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, stride=2), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
        nn.Conv2d(4, 6, (3, 2), groups=2, dilation=(1, 2), padding="same"), nn.GroupNorm(2, 6),
        nn.Tanh(), nn.ConvTranspose2d(6, 2, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(2, 3),
    )  # fmt: skip


CASES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3)),
            images(5, 4)),
    "conv": (conv_net, images(3, 2, 6, 5)),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"),
                                     nn.Tanh(), nn.Flatten(), nn.Linear(18, 1)), images(3, 2, 6)),
    "tied": (Tied, torch.tensor([[0, 1, 2], [2, 2, 6], [3, 4, 0], [5, 5, 5]])),
    "tied, batch second": (lambda: Tied(batch_first=False), torch.tensor([[0, 1, 2], [2, 2, 6]])),
    "unusual": (Unusual, images(4, 4)),
    "coupled": (Coupled, images(4, 4)),
    "hidden": (Hidden, images(4, 4)),
}  # fmt: skip


def made(name):
    torch.manual_seed(1)
    make, x = CASES[name]
    model = make().double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return model, x


def by_gradients(model, x1, x2):
    """Return the kernel of whole batches, from one backward pass for each output."""
    model = copy.deepcopy(model).eval()
    weights = [p for p in model.parameters() if p.requires_grad]

    def rows(x):
        out = model(x)
        found = []
        for value in out.flatten():
            grads = torch.autograd.grad(value, weights, retain_graph=True, allow_unused=True)
            found.append(torch.cat([g.flatten() for g in grads if g is not None]))
        return torch.stack(found).reshape(*out.shape, -1).reshape(len(x), -1, found[0].numel())

    found = torch.einsum("iak,jbk->ijab", rows(x1), rows(x2))
    return found if model(x1).ndim == 2 else found[..., 0, 0]


@pytest.mark.parametrize("name", CASES)
def test_equal_to_the_product_of_gradients(name):
    model, x = made(name)
    found = ntk_of_module(model, x)
    assert model.training
    torch.testing.assert_close(found, by_gradients(model, x, x), rtol=1e-10, atol=1e-12)
    assert torch.equal(
        found, found.transpose(0, 1).transpose(-1, -2) if found.ndim == 4 else found.T
    )
    other = x.flip(-1)[:2]
    found = ntk_of_module(model, x, other)
    torch.testing.assert_close(found, by_gradients(model, x, other), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("mlp", set()),
        ("conv", {"6.weight", "6.bias"}),  # a transposed convolution
        ("conv1d", set()),
        ("tied", set()),
        ("tied, batch second", set()),
        ("unusual", {"cell.weight_ih_l0", "cell.weight_hh_l0", "cell.bias_ih_l0",
                     "cell.bias_hh_l0", "a", "b"}),
        ("coupled", {"map.weight", "map.bias"}),
        ("hidden", {"map.weight"}),
    ],
)  # fmt: skip
def test_what_takes_a_pass_for_each_sample(name, rest, monkeypatch):
    """Parameters outside of affine maps, and those with uses that are not seen."""
    model, x = made(name)
    found = []

    def rows(out, parameters):
        found.append(set(parameters))
        return rows_of(out, parameters)

    rows_of = tangent_factors._rows
    monkeypatch.setattr(tangent_factors, "_rows", rows)
    ntk_of_module(model, x)
    assert found[-1] == rest


@pytest.mark.parametrize("name", ["mlp", "conv", "tied", "coupled", "unusual"])
def test_blocks_of_samples(name, monkeypatch):
    model, x = made(name)
    want = by_gradients(model, x, x)
    monkeypatch.setattr("largen.transfer.torch.tangents.NUMBERS_AT_ONCE", 1)
    torch.testing.assert_close(ntk_of_module(model, x), want, rtol=1e-10, atol=1e-12)


def test_rates_and_frozen_parameters():
    model, x = made("mlp")
    model[0].weight.requires_grad_(False)
    want = ntk_of_module(model, x)
    model[0].weight.requires_grad_(True)
    found = ntk_of_module(model, x, rates={"0.weight": 0.0})
    torch.testing.assert_close(found, want)
    with pytest.raises(InvalidInput, match="rates: 'weight' is not a parameter"):
        ntk_of_module(model, x, rates={"weight": 1.0})


def test_precision_is_that_of_the_parameters():
    model, x = made("mlp")
    want = ntk_of_module(model, x)
    found = ntk_of_module(model.float(), x.numpy())
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found, found.transpose(1, 0, 3, 2))


def test_the_same_as_in_jax():
    model, x = made("mlp")
    params = {name: p.detach().numpy() for name, p in model.named_parameters()}

    def f(p, x):
        h = x @ p["0.weight"].T + p["0.bias"]
        h = (h - h.mean(-1, keepdims=True)) / (h.var(-1, keepdims=True) + 1e-5) ** 0.5
        h = h * p["1.weight"] + p["1.bias"]
        return lg.Activation("tanh").function(h) @ p["3.weight"].T + p["3.bias"]

    np.testing.assert_allclose(
        ntk_of_module(model, x.numpy()),
        lg.networks.ntk_of_function(f, params, x.numpy()),
        rtol=1e-10,
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, x: ntk_of_module(m, x[:, :3]), "model: fails on x1"),
        (lambda m, x: ntk_of_module(m, x * np.nan), "x1: holds NaN"),
        (lambda m, x: ntk_of_module(nn.Flatten(0), x), "model: wanted parameters"),
        (lambda m, x: ntk_of_module(nn.Sequential(m, nn.Flatten(0)), x), "model: wanted outputs"),
    ],
)
def test_wrong_input(call, words):
    with pytest.raises(InvalidInput, match=words):
        call(*made("mlp"))
