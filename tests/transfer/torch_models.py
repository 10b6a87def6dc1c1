"""Models as users write them; none of them knows of largen."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, fused):
        super().__init__()
        self.num_heads, self.fused = heads, fused
        if fused:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).chunk(3, -1) if self.fused else (self.q(x), self.k(x), self.v(x))
        q, k, v = (t.view(batch, length, self.num_heads, -1).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(out.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, fused):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, fused)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.0)
        )

    def forward(self, x, mask=None):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Captioner(nn.Module):
    """A conv stem for images, tied embeddings for text, blocks in a ModuleList."""

    def __init__(self, width, depth, *, heads=2, fused=False, tied=True, scalar=True):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 4, stride=4),
            nn.GELU(),
            nn.Conv2d(width, width, 2, groups=width),
            nn.Conv2d(width, width, 1, groups=2),
        )
        self.wte = nn.Embedding(11, width)
        self.wpe = nn.Parameter(0.02 * torch.randn(1, 8, width))
        self.blocks = nn.ModuleList([Block(width, heads, fused) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 11, bias=False)
        self.log_temperature = nn.Parameter(torch.zeros(() if scalar else (1,)))
        if tied:
            self.head.weight = self.wte.weight
        # As GPT-2 does: one standard deviation at every width, branches that end in 1/√(2L) of it.
        for name, p in self.named_parameters():
            if name.endswith(("proj.weight", "mlp.2.weight")):
                nn.init.normal_(p, std=0.02 * (2 * depth) ** -0.5)
        nn.init.normal_(self.wte.weight, std=0.02)

    def forward(self, images, tokens):
        x = self.wte(tokens) + self.wpe[:, : tokens.shape[1]]
        x = torch.cat([self.stem(images).flatten(2).transpose(1, 2), x], dim=1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) * self.log_temperature.exp()


class ResidualMLP(nn.Module):
    def __init__(self, width, depth, bias=False):
        super().__init__()
        self.inp = nn.Linear(64, width, bias=bias)
        self.blocks = nn.ModuleList(nn.Linear(width, width, bias=bias) for _ in range(depth))
        self.out = nn.Linear(width, 10, bias=bias)
        for linear in (self.inp, *self.blocks, self.out):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + block(torch.relu(x))
        return self.out(torch.relu(x))


class MLPBlock(nn.Module):
    """x + W₂ relu(W₁ x): a branch of two layers."""

    def __init__(self, width):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(x)))


class SmallNet(nn.Module):
    """Few and small tensors, every kind of factor but attention."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(5, width)
        self.blocks = nn.Sequential(*[MLPBlock(width) for _ in range(depth)])
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        return self.out(self.blocks(torch.tanh(self.inp(x))))


def images_and_tokens(batch=4):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(batch, 1, 8, 8, generator=generator)
    tokens = torch.randint(0, 11, (batch, 6), generator=generator)
    return images, tokens
