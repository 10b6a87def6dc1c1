"""Models as their authors' repositories have them, whose plans were wrong in silence once."""

import math

import torch
from tests.transfer.read_models import READ
from tests.transfer.verified_models import IDS, IMAGES, ROWS, SETS, gauss
from torch import nn
from torch.nn import functional as F

EDGES = (gauss(16, 16) > 0.5) | torch.eye(16).bool()
POINTS = gauss(16, 3), gauss(16, 3) / 2


class AttentionBlock(nn.Module):
    """Attention over pixels, with queries, keys and values from one 1×1 convolution."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.qkv, self.proj = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).flatten(2).chunk(3, 1)
        a = torch.softmax(torch.einsum("bci,bcj->bij", q, k) * x.shape[1] ** -0.5, -1)
        return x + self.proj(torch.einsum("bij,bcj->bci", a, v).view_as(x))


class ResBlock(nn.Module):
    def __init__(self, into, out, time):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(4, into), nn.Conv2d(into, out, 3, padding=1)
        self.t, self.n2 = nn.Linear(time, out), nn.GroupNorm(4, out)
        self.c2, self.skip = nn.Conv2d(out, out, 3, padding=1), nn.Conv2d(into, out, 1)

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
        return self.c2(F.silu(self.n2(h))) + self.skip(x)


class DiffusionUNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width, time = width, 2 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.inp = nn.Conv2d(3, width, 3, padding=1)
        self.down, self.mid = ResBlock(width, width, time), ResBlock(width, 2 * width, time)
        self.attn, self.up = AttentionBlock(2 * width), ResBlock(3 * width, width, time)
        self.norm, self.out = nn.GroupNorm(4, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        rates = torch.exp(-math.log(1e4) * torch.arange(self.width // 2) / (self.width // 2))
        angles = t[:, None] * rates
        t = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        a = self.down(self.inp(x), t)
        b = self.attn(self.mid(F.avg_pool2d(a, 2), t))
        h = self.up(torch.cat([a, F.interpolate(b, scale_factor=2)], 1), t)
        return self.out(F.silu(self.norm(h)))


class GraphAttention(nn.Module):
    """Logits are a LeakyReLU of sums of two read-outs."""

    def __init__(self, into, out):
        super().__init__()
        self.w, self.a = nn.Parameter(torch.empty(into, out)), nn.Parameter(torch.empty(2 * out, 1))
        for p in (self.w, self.a):
            nn.init.xavier_uniform_(p, gain=1.414)
        self.out = out

    def forward(self, h, edges):
        h = h @ self.w
        e = F.leaky_relu(h @ self.a[: self.out] + (h @ self.a[self.out :]).T, 0.2)
        return torch.where(edges, e, -9e15 * torch.ones_like(e)).softmax(1) @ h


class GAT(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = nn.ModuleList([GraphAttention(8, width) for _ in range(2)])
        self.mid, self.out = GraphAttention(2 * width, width), nn.Linear(width, 3)

    def forward(self, x, edges):
        h = F.elu(torch.cat([own(x, edges) for own in self.heads], 1))
        return self.out(F.elu(self.mid(h, edges)))


class CLIP(nn.Module):
    """Cosines of two towers, times a learned scale."""

    def __init__(self, width):
        super().__init__()
        self.pa, self.pb = (nn.Parameter(width**-0.5 * torch.randn(width, width)) for _ in "ab")
        self.logit_scale = nn.Parameter(torch.tensor(2.659))
        self.a, self.b = self.tower(12, width), self.tower(8, width)

    @staticmethod
    def tower(into, width):
        return nn.Sequential(
            nn.Linear(into, width), nn.GELU(), nn.Linear(width, width), nn.LayerNorm(width)
        )

    def forward(self, x, y):
        a, b = self.a(x) @ self.pa, self.b(y) @ self.pb
        a, b = (z / z.norm(dim=-1, keepdim=True) for z in (a, b))
        return self.logit_scale.exp() * a @ b.t()


class Joined(nn.Linear):
    """One layer of features and positions."""

    def __init__(self, width, fixed, out):
        super().__init__(width + fixed, out)

    def forward(self, h, p):
        return super().forward(torch.cat([h, p], -1))


class Added(nn.Module):
    """One layer of features and one of positions, added."""

    def __init__(self, width, fixed, out):
        super().__init__()
        self.h, self.p = nn.Linear(width, out), nn.Linear(fixed, out, bias=False)

    def forward(self, h, p):
        return self.h(h) + self.p(p)


class NeRF(nn.Module):
    def __init__(self, width, kind=Joined):
        super().__init__()
        self.points = nn.ModuleList(
            [nn.Linear(27, width), nn.Linear(width, width), kind(width, 27, width)]
        )
        self.feature, self.views = nn.Linear(width, width), kind(width, 15, width // 2)
        self.density, self.colour = nn.Linear(width, 1), nn.Linear(width // 2, 3)

    @staticmethod
    def encoded(x, number):
        return torch.cat(
            [x] + [f(2**i * x) for i in range(number) for f in (torch.sin, torch.cos)], -1
        )

    def forward(self, p, d):
        p, d = self.encoded(p, 4), self.encoded(d, 2)
        h = F.relu(self.points[1](F.relu(self.points[0](p))))
        h = F.relu(self.points[2](h, p))
        views = F.relu(self.views(self.feature(h), d))
        return torch.cat([self.colour(views), self.density(h)], -1)


class Hypernetwork(nn.Module):
    """A network whose weights are outputs of another one, so that these are multiplied."""

    def __init__(self, width, hidden=6):
        super().__init__()
        self.hidden = hidden
        self.enc = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.w1, self.b1 = nn.Linear(width, 2 * hidden), nn.Linear(width, hidden)
        self.w2 = nn.Linear(width, hidden)

    def forward(self, z, x):
        e = self.enc(z)
        w1 = self.w1(e).unflatten(-1, (self.hidden, 2))
        h = torch.tanh(torch.einsum("bhi,bni->bnh", w1, x) + self.b1(e)[:, None])
        return torch.einsum("bh,bnh->bn", self.w2(e), h)


class Stacked(nn.Module):
    """Blocks with one tensor of all their matrices."""

    def __init__(self, depth, width=32):
        super().__init__()
        self.inp, self.out = nn.Linear(8, width), nn.Linear(width, 3)
        self.w = nn.Parameter(torch.randn(depth, width, width) * width**-0.5)

    def forward(self, x):
        x = self.inp(x)
        for w in self.w:
            x = x + torch.relu(F.layer_norm(x, x.shape[-1:])) @ w
        return self.out(x)


class Decoder(nn.Module):
    """Small embeddings in front of large branches."""

    def __init__(self, depth, width=32):
        super().__init__()
        self.src, self.tgt = nn.Linear(6, width), nn.Embedding(32, width)
        layer = nn.TransformerDecoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.dec, self.out = (
            nn.TransformerDecoder(layer, depth, nn.LayerNorm(width)),
            nn.Linear(width, 32),
        )
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, src, ids):
        return self.out(self.dec(self.tgt(ids), self.src(src)))


class Residual(nn.Module):
    def __init__(self, size, f):
        super().__init__()
        self.norm, self.f = nn.LayerNorm(size), f

    def forward(self, x):
        return x + self.f(self.norm(x))


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


class Patches(nn.Conv2d):
    def forward(self, x):
        return super().forward(x).flatten(2).mT


def mixer(depth, width=32, patches=16):
    """An MLP-mixer in one sequence, in which the numbers of later layers depend on the depth."""

    def mlp(size, hidden, kind):
        return nn.Sequential(kind(size, hidden), nn.GELU(), kind(hidden, size))

    def tokens(a, b):
        return nn.Conv1d(a, b, 1)

    blocks = [
        nn.Sequential(
            Residual(width, mlp(patches, 64, tokens)), Residual(width, mlp(width, 16, nn.Linear))
        )
        for _ in range(depth)
    ]
    return nn.Sequential(
        Patches(3, width, 4, 4), *blocks, nn.LayerNorm(width), Mean(), nn.Linear(width, 10)
    )


PAIR = gauss(8, 12), gauss(8, 8)
# Widths 32 to 256 train alike, or 16 to 64 of images.
ALIKE = {
    "diffusion u-net": (DiffusionUNet, (IMAGES, 10 * torch.arange(8))),
    "bilinear": READ["bilinear"],
    "graph attention": (GAT, (ROWS, EDGES)),
    "clip": (CLIP, PAIR),
    "nerf, added": (lambda width: NeRF(width, Added), POINTS),
}
SETS8 = SETS.repeat(2, 1, 1)
# name → key of the size, builder, example, optimizer, what is said.
NAMED = {
    "nerf": ("width", NeRF, POINTS, "adam", r"points\.2\.weight \(27 of 59 at the base\)"),
    "hypernetwork": ("width", Hypernetwork, (ROWS, gauss(16, 10, 2)), "sgd", "all weights moves"),
    "stacked": ("depth", Stacked, (ROWS,), "sgd", "the input of out fades by l"),
    "decoder": ("depth", Decoder, (SETS8, IDS), "adam", r"the input of dec\.norm fades by l"),
}
