"""μP by largen beside microsoft/mup: the losses of a nanoGPT from the same initial weights.

nanoGPT (learned positions, tied embedding, fused queries, keys and values, four heads) is written
once, as users write it, for largen, and once with mup's read-out and attention logits. The weights
drawn by mup are copied into largen's model, whose multipliers are folded into weights where that is
exact. Both train 20 steps by Adam on the characters of this project's README, at a rate at which
the loss falls, with ε = 0 up to rounding, since mup does not scale ε. The standard
parameterization, from the same weights, is beside them: its losses differ. Run as

    python benchmarks/bench_mup_package.py [TABLE.txt] [--widths 128 256]

It needs the package mup; half a minute of one core. ``bench_mup_package.txt`` is its table.
"""

import argparse
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from largen.transfer.torch import TorchPlan, check_optimizer, scale

mup: Any = import_module("mup")
BASE, DEPTH, HEADS, LENGTH, BATCH, STEPS = 64, 2, 4, 32, 8, 20
TEXT = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
CHARACTERS = sorted(set(TEXT))


class Block(nn.Module):
    """A pre-norm block."""

    def __init__(self, width: int, as_mup: bool):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        head = width // HEADS
        # mup: 1/d, equal to 1/√d at the base.
        self.scale = (BASE // HEADS) ** 0.5 / head if as_mup else head**-0.5

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        whole = self.c_attn(self.ln_1(x)).split(width, dim=-1)
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in whole)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.c_down(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    """NanoGPT, for largen or with mup's parts."""

    def __init__(self, width: int, as_mup: bool = False):
        super().__init__()
        self.wte = nn.Embedding(len(CHARACTERS), width)
        self.wpe = nn.Embedding(LENGTH, width)
        self.h = nn.ModuleList(Block(width, as_mup) for _ in range(DEPTH))
        self.ln_f = nn.LayerNorm(width)
        if as_mup:
            self.lm_head = mup.MuSharedReadout(self.wte.weight, bias=False)
        else:
            self.lm_head = nn.Linear(width, len(CHARACTERS), bias=False)
            self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def mup_model(width: int, seed: int) -> GPT:
    """Return a model with mup's shapes and initial weights."""
    torch.manual_seed(seed)
    model, base, delta = (GPT(w, as_mup=True) for w in (width, BASE, 2 * BASE))
    mup.set_base_shapes(model, base, delta=delta)
    for name, p in model.named_parameters():
        if p.ndim > 1:
            mup.init.normal_(p, std=0.02 * ((2 * DEPTH) ** -0.5 if "c_proj" in name else 1.0))
    return model


def largen_model(plan: TorchPlan, weights: dict[str, Tensor]) -> nn.Module:
    """Return a plan's model with the given weights, times the multipliers folded into each."""
    model = plan.build(seed=0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weights[name] * plan[name].fold)
    return model


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the same batches at each call."""
    ids = torch.tensor([CHARACTERS.index(c) for c in TEXT])
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        at = torch.randint(len(ids) - LENGTH - 1, (BATCH, 1), generator=generator)
        rows = ids[at + torch.arange(LENGTH + 1)]
        yield rows[:, :-1], rows[:, 1:]


def losses(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    """Train a model; return the loss before every step."""
    found = []
    for x, y in batches():
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found, dtype=torch.float64)


def compare(width: int, lr: float, seed: int) -> str:
    """Train at one width by mup, by largen and by the standard scheme; return a row."""
    by_mup = mup_model(width, seed)
    weights = {name: p.detach().clone() for name, p in by_mup.named_parameters()}
    own: dict[str, Any] = {"lr": lr, "eps": 1e-30}
    wanted = losses(by_mup, mup.MuAdam(by_mup.parameters(), **own))
    found = {}
    for scheme in ("mup", "standard"):
        plan = scale(GPT, {"width": BASE}, {"width": width}, scheme=scheme, optimizer="adam")
        model = largen_model(plan, weights)
        optimizer = check_optimizer(torch.optim.Adam(plan.param_groups(model, **own)))
        found[scheme] = float((losses(model, optimizer) - wanted).abs().max())
    dtype = str(torch.get_default_dtype())[6:]
    return (
        f"{width:>5}  {dtype:<8}{wanted[0]:>8.4f} →{wanted[-1]:>7.4f}{found['mup']:>14.1e}"
        f"{found['standard']:>14.1e}"
    )


def main() -> None:
    """Print the table, and write it to a file if one is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--lr", type=float, default=4e-3)
    given = parser.parse_args()
    lines = [
        f"nanoGPT, base width {BASE}, depth {DEPTH}, {STEPS} steps of Adam at {given.lr:g}; mup "
        f"{version('mup')}, torch {torch.__version__}",
        "largest difference of the losses from mup's, by largen's mup and by the standard scheme",
        "width  dtype        mup's losses        largen      standard",
    ]
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        lines += [compare(width, given.lr, seed=0) for width in given.widths]
    print("\n".join(lines))
    if given.table is not None:
        given.table.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
