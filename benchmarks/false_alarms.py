"""How often the coordinate check fails under right plans: at most one time in twenty is meant.

    python benchmarks/false_alarms.py [--networks 600] [--cases NAME …]

Networks of several sizes are trained from many seeds, and their measurements are divided into
checks of a few seeds each. A check may fail by chance, or because the sizes are so small that a
slope is not flat under the right plan, either: beside the share of checks that fail is the steepest
slope of all networks together that a check judges. The rates are written to
``docs/evidence/false_alarms.json``; minutes of one core.
"""

import argparse
import json
import time
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path

import torch
from scipy.stats import binomtest
from torch import Tensor, nn
from torch.nn import functional as F

from largen.transfer.coordinates import ALLOWED, CoordinateCheck
from largen.transfer.torch import coordinate_check

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence" / "false_alarms.json"
SEEDS = (2, 4, 16)  # networks of each size in a check; 2 is the default


class Branch(nn.Module):
    """x + W₂ relu(W₁ LN(x))."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        return x + self.down(torch.relu(self.up(self.norm(x))))


class ResidualMLP(nn.Module):
    """Residual blocks between two linear layers."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        self.inp = nn.Linear(16, width)
        self.blocks = nn.ModuleList(Branch(width) for _ in range(depth))
        self.out = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class Attention(nn.Module):
    """x + W attention(LN(x)) with causal heads of dimension 16."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        h = self.norm(x)
        q, k, v = (m(h).unflatten(-1, (-1, 16)).transpose(1, 2) for m in (self.q, self.k, self.v))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.proj(h.transpose(1, 2).flatten(2))


class GPT(nn.Module):
    """Causal attention and residual blocks over tokens."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(11, width), nn.Embedding(8, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(Attention(width), Branch(width)) for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def rows(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, random and fixed."""
    return torch.randn(32, 16, generator=generator), torch.randn(32, 4, generator=generator)


def squares(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean squared error."""
    return F.mse_loss(model(batch[0]), batch[1])


def tokens(generator: torch.Generator) -> Tensor:
    """Return random tokens."""
    return torch.randint(0, 11, (8, 8), generator=generator)


def next_token(model: nn.Module, batch: Tensor) -> Tensor:
    """Return the cross-entropy of the next token."""
    return F.cross_entropy(model(batch)[:, :-1].flatten(0, 1), batch[:, 1:].flatten())


def mlp(width: int, depth: int) -> nn.Module:
    """Return the network of the guide, whose depth is fixed."""
    return nn.Sequential(
        nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
    )


WIDTHS = [{"width": n, "depth": 2} for n in (64, 128, 256)]
DEPTHS = [{"width": 64, "depth": l} for l in (2, 4, 8)]
CASES = {
    "MLP, width": (mlp, WIDTHS, rows, squares, "mup", "adam"),
    "MLP, width, SGD": (mlp, WIDTHS, rows, squares, "mup", "sgd"),
    "residual MLP, width": (ResidualMLP, WIDTHS, rows, squares, "mup", "adam"),
    "residual MLP, depth": (ResidualMLP, DEPTHS, rows, squares, "depth_mup", "adam"),
    "GPT, width": (GPT, WIDTHS, tokens, next_token, "mup", "adam"),
    "GPT, depth": (GPT, DEPTHS, tokens, next_token, "complete_p", "adam"),
}
RATES, STEPS = {"adam": 1e-3, "sgd": 0.05}, 4


def measured(name: str, networks: int) -> CoordinateCheck:
    """Return one check of many networks."""
    make, sizes, draw, loss, scheme, optimizer = CASES[name]
    generator = torch.Generator().manual_seed(0)
    batches = [draw(generator) for _ in range(2)]
    return coordinate_check(
        make, sizes[0], sizes, batches, loss, lr=RATES[optimizer], optimizer=optimizer, steps=STEPS,
        seeds=networks, scheme=scheme,
    )  # fmt: skip


def parts(check: CoordinateCheck, seeds: int) -> list[CoordinateCheck]:
    """Return checks of a few networks of each size, which have none in common."""
    starts = range(0, check.size.shape[1] - seeds + 1, seeds)
    names = ("start", "size", "change")
    return [
        replace(check, **{name: getattr(check, name)[:, i : i + seeds] for name in names})
        for i in starts
    ]


def rates(check: CoordinateCheck) -> dict:
    """Return the shares of checks that fail, with intervals, and the steepest slope of all."""
    found = {}
    for seeds in SEEDS:
        guilty = Counter(part.guilty for part in parts(check, seeds))
        checks, passed = guilty.total(), guilty.pop(None, 0)
        test = binomtest(checks - passed, checks, ALLOWED, "greater")
        interval = binomtest(checks - passed, checks).proportion_ci()
        found[str(seeds)] = {
            "checks": checks,
            "failed": checks - passed,
            "interval": [interval.low, interval.high],
            "p": test.pvalue,
            "guilty": dict(guilty.most_common(3)),
        }
    judged = [row for row in check.slopes if row.judged]
    steepest = max(judged, key=lambda row: max(abs(row.change), row.size))
    slope = steepest.change if abs(steepest.change) >= steepest.size else steepest.size
    return {
        "tolerance": check.tolerance,
        "steepest": [steepest.layer or "(model)", slope],
        "checks": found,
    }


def main() -> None:
    """Measure the rates, and write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=600)
    parser.add_argument("--cases", nargs="+", default=[*CASES])
    given = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(EVIDENCE.read_text("utf-8"))["cases"] if EVIDENCE.exists() else {}
    for name in given.cases:
        begin = time.process_time()
        known[name] = {"networks": given.networks, **rates(measured(name, given.networks))}
        print(name, json.dumps(known[name]), f"{time.process_time() - begin:.0f} s", flush=True)
        content = {"date": date.today().isoformat(), "lr": RATES, "steps": STEPS, "cases": known}
        EVIDENCE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
