"""PyTorch models as people write them, and their kernels by hand."""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from tests.reading import by_hand as hand
from torch import nn

RNG = np.random.default_rng(4)
VECTORS, PLANE = RNG.normal(size=(3, 5)), RNG.normal(size=(3, 2))
IMAGES, ROWS = RNG.normal(size=(2, 3, 4, 4)), RNG.normal(size=(2, 2, 6))
TOKENS = RNG.normal(size=(2, 4, 3))


def normal(module, gain=1.0, bias=0.0):
    """Initialise all maps of a module with variance gain/fan-in, and normal biases."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d):
            fan_in = part.weight[0].numel()
            nn.init.normal_(part.weight, 0, (gain / fan_in) ** 0.5)
            if part.bias is not None:
                nn.init.normal_(part.bias, 0, bias)


def perceptron(n):
    return nn.Sequential(
        nn.Linear(2, n),
        nn.Tanh(),
        nn.Linear(n, 2 * n),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(2 * n, 3),
    )


def perceptron_by_hand(x, n):
    def slope(z):
        return 1 / np.cosh(z) ** 2

    state = hand.behind_uniform(x, 1 / 3, 1 / 6, np.tanh, slope)
    state = hand.gelu(hand.affine(state, 1 / 3, 1 / (3 * n)))
    return hand.affine(state, 1 / 3, 1 / (6 * n))


class Residual(nn.Module):
    """LayerNorm and default initialisation."""

    def __init__(self, n):
        super().__init__()
        self.read_in = nn.Linear(5, n)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(n), nn.Linear(n, 4 * n), nn.GELU(), nn.Linear(4 * n, n))
            for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(n), nn.Linear(n, 3)

    def forward(self, x):
        h = self.read_in(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(self.norm(h))


def residual_by_hand(x, n):
    h = hand.affine(hand.data(x), 1 / 3, 1 / 15)
    for _ in range(2):
        u = hand.gelu(hand.affine(hand.normed(h, 1e-5), 1 / 3, 1 / (3 * n)))
        h = h + hand.affine(u, 1 / 3, 1 / (12 * n))
    return hand.affine(hand.normed(h, 1e-5), 1 / 3, 1 / (3 * n))


class Gated(nn.Module):
    """RMSNorm and a gate of two branches."""

    def __init__(self, n):
        super().__init__()
        self.read_in, self.norm = nn.Linear(5, n, bias=False), nn.RMSNorm(n, eps=1e-6)
        self.up, self.gate = nn.Linear(n, 2 * n, bias=False), nn.Linear(n, 2 * n, bias=False)
        self.down, self.head = nn.Linear(2 * n, n, bias=False), nn.Linear(n, 2, bias=False)
        normal(self)

    def forward(self, x):
        h = self.read_in(x)
        u = self.norm(h)
        branch = self.down(F.silu(self.gate(u)) * self.up(u))
        branch += h
        return self.head(branch)


def gated_by_hand(x, n):
    h = hand.affine(hand.data(x), 1)
    u = hand.affine(hand.normed(h, 1e-6), 1)
    return hand.affine(h + hand.affine(hand.silu(u) * u, 1), 1)


class ResNet(nn.Module):
    """Pre-activation block with stride and padding, and batch norm in evaluation mode."""

    def __init__(self, n):
        super().__init__()
        self.stem = nn.Conv2d(3, n, 3, padding=1, bias=False)
        self.bn1, self.conv1 = nn.BatchNorm2d(n), nn.Conv2d(n, 2 * n, 3, 2, 1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(2 * n), nn.Conv2d(2 * n, 2 * n, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(n, 2 * n, 1, 2, bias=False)
        self.head = nn.Linear(2 * n, 4)
        normal(self, 2.0)

    def forward(self, x):
        h = F.relu(self.bn1(self.stem(x)), inplace=True)
        h = self.conv2(F.relu(self.bn2(self.conv1(h)))) + self.short(h)
        return self.head(F.adaptive_avg_pool2d(h, 1).flatten(1))


def res_net_by_hand(x, n):
    count, bn = len(x), 1 / np.sqrt(1 + 1e-5)
    x = np.moveaxis(x, 1, -1).reshape(count, -1, x.shape[1])
    h = hand.affine(hand.moved(hand.data(x), hand.taps_2d(4), count), 2)
    h = hand.relu(h.scaled(bn))
    u = hand.affine(hand.moved(h, hand.taps_2d(4, stride=2), count), 2)
    u = hand.affine(hand.moved(hand.relu(u.scaled(bn)), hand.taps_2d(2), count), 2)
    one = hand.taps_2d(4, window=1, stride=2, padding=0)
    h = u + hand.affine(hand.moved(h, one, count), 2)
    return hand.affine(hand.moved(h, [np.full((1, 4), 1 / 4)], count), 2)


class Hourglass(nn.Module):
    """Pooling, upsampling and concatenation of n and 2n channels; flattened at the end."""

    def __init__(self, n):
        super().__init__()
        self.a, self.b = nn.Conv1d(2, n, 3, padding=1), nn.Conv1d(n, 2 * n, 3, padding=1)
        self.c, self.head = nn.Conv1d(3 * n, n, 3, padding=2, dilation=2), nn.Linear(6 * n, 2)
        normal(self, 2.0, 0.3)

    def forward(self, x):
        a = torch.relu(self.a(x))
        b = torch.relu(self.b(F.avg_pool1d(a, 2)))
        both = torch.cat([a, F.interpolate(b, scale_factor=2)], dim=1)
        return self.head(torch.flatten(F.relu(self.c(both)), 1))


def hourglass_by_hand(x, n):
    count, x = len(x), np.moveaxis(x, 1, -1)
    a = hand.relu(hand.affine(hand.moved(hand.data(x), hand.taps_1d(6), count), 2, 0.09))
    b = hand.moved(a, [hand.pooled_1d(6, 2)], count)
    b = hand.relu(hand.affine(hand.moved(b, hand.taps_1d(3), count), 2, 0.09))
    b = hand.moved(b, [np.kron(np.eye(3), np.ones((2, 1)))], count)
    both = hand.State(*((one + 2 * two) / 3 for one, two in zip(a, b, strict=True)))
    wide = hand.taps_1d(6, padding=2, dilation=2)
    h = hand.relu(hand.affine(hand.moved(both, wide, count), 2, 0.09))
    return hand.affine(hand.flattened(h, 6, count), 2, 0.09)


class Recurrent(nn.Module):
    """One matrix, used three times."""

    def __init__(self, n):
        super().__init__()
        self.read_in, self.hidden, self.head = nn.Linear(5, n), nn.Linear(n, n), nn.Linear(n, 2)
        normal(self, 1.5, 0.3)

    def forward(self, x):
        u = self.read_in(x)
        h = torch.tanh(u)
        for _ in range(3):
            h = torch.tanh(self.hidden(h) + u)
        return self.head(h)


def recurrent_by_hand(x, n):
    u = hand.affine(hand.data(x), 1.5, 0.09)
    blocks = hand.State(*(np.tile(each, (4, 4)) for each in u))
    count = len(x)
    for known in range(1, 4):
        past = hand.State(*(each[: known * count, : known * count] for each in blocks))
        drawn = hand.affine(hand.tanh(past), 1.5, 0.09)
        for each, new, start in zip(blocks, drawn, u, strict=True):
            inner = slice(count, (known + 1) * count)
            each[inner, inner] = new + np.tile(start, (known, known))
    last = hand.State(*(each[-count:, -count:] for each in blocks))
    return hand.affine(hand.tanh(last), 1.5, 0.09)


class Tokens(nn.Module):
    """Positions with the same weights, and a mean over them."""

    def __init__(self, n):
        super().__init__()
        self.embed, self.norm = nn.Linear(3, n), nn.LayerNorm(n)
        self.mlp, self.head = nn.Linear(n, n), nn.Linear(n, 2)

    def forward(self, x):
        h = F.silu(self.mlp(self.norm(self.embed(x))))
        return self.head(h.mean(dim=1))


def tokens_by_hand(x, n):
    h = hand.affine(hand.data(x), 1 / 3, 1 / 9)
    h = hand.silu(hand.affine(hand.normed(h, 1e-5), 1 / 3, 1 / (3 * n)))
    mean = hand.moved(h, [np.full((1, 4), 1 / 4)], len(x))
    return hand.affine(mean, 1 / 3, 1 / (3 * n))


class ByHand(nn.Module):
    """Parameters without layers, factors of the width in the forward pass, and one bias."""

    def __init__(self, n):
        super().__init__()
        self.n = n
        self.a, self.w = nn.Parameter(torch.randn(5, n)), nn.Parameter(torch.randn(n, n))
        self.b, self.gain = nn.Parameter(0.5 * torch.randn(n)), nn.Parameter(torch.tensor(0.75))
        self.v = nn.Parameter(torch.empty(n, 2))
        nn.init.trunc_normal_(self.v, 0, 1.0, -1.5, 1.5)

    def forward(self, x):
        h = torch.erf(x @ self.a / 5**0.5)
        h = self.gain * torch.tanh(h @ self.w * self.n**-0.5 + self.b)
        return (0.5 * h * h + h) @ self.v / self.n**0.5


def by_hand_by_hand(x, n):
    h = hand.affine(hand.erf(hand.affine(hand.data(x), 1)), 1, 0.25)

    def f(z):
        t = 0.75 * np.tanh(z)
        return t + t**2 / 2

    h = hand.function(h, f, lambda z: 0.75 / np.cosh(z) ** 2 * (1 + 0.75 * np.tanh(z)))
    cut, mass = 1.5, 0.8663855974622838  # of a normal number between −1.5 and 1.5
    density = np.exp(-(cut**2) / 2) / np.sqrt(2 * np.pi)
    return hand.affine(h, 1 - 2 * cut * density / mass)


class Case(NamedTuple):
    make: Any
    x: np.ndarray
    by_hand: Any
    rtol: float = 1e-8


CASES = {
    "perceptron": Case(perceptron, PLANE, perceptron_by_hand, 2e-4),
    "residual": Case(lambda n: Residual(n), VECTORS, residual_by_hand),
    "gated": Case(lambda n: Gated(n), VECTORS, gated_by_hand),
    "res_net": Case(lambda n: ResNet(n), IMAGES, res_net_by_hand),
    "hourglass": Case(lambda n: Hourglass(n), ROWS, hourglass_by_hand),
    "recurrent": Case(lambda n: Recurrent(n), VECTORS, recurrent_by_hand),
    "tokens": Case(lambda n: Tokens(n), TOKENS, tokens_by_hand),
    "by_hand": Case(lambda n: ByHand(n), VECTORS, by_hand_by_hand),
}
