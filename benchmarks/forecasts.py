"""Forecasts of wide networks from narrow ones, against networks that were trained at that width.

    python benchmarks/forecasts.py [--cells digits epochs relu] [--data FOLDER] [--text FILE]

Each cell is a model, data, an optimizer and a schedule: pilots of three widths are trained at five
rates or fewer, the wide network too, all on the same batches. The table has root mean square
errors in % over rates and times of the forecast, of the widest pilots taken as they are, and of a
power law without an offset, a n^-p, through the pilots' means; the error of the target's mean
over seeds; how often 90 % intervals hold this mean, or a network; and z, root mean square.
With ``--data``, a folder of ``fashion_mnist_10k.npz`` and ``cifar10_8x8_12k.npz``, cells are those
of these images; without it, of digits. Minutes of one core; written to
``docs/evidence/forecasts.csv``.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from largen.sweeps import Forecast, Grid, Sweep, Task, sweep
from largen.transfer import warmup_cosine

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence" / "forecasts.csv"
BASE = 32


class Block(nn.Module):
    """x + W₂ gelu(W₁ LN(x))."""

    def __init__(self, n: int):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(n), nn.Linear(n, 2 * n), nn.Linear(2 * n, n)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return x + self.down(F.gelu(self.up(self.norm(x))))


def residual(inputs: int) -> Callable[[int], nn.Module]:
    """Return the builder of a residual MLP of two blocks with LayerNorm."""

    def make(width: int) -> nn.Module:
        blocks = Block(width), Block(width), nn.LayerNorm(width)
        return nn.Sequential(nn.Linear(inputs, width), *blocks, nn.Linear(width, 10))

    return make


def plain(inputs: int) -> Callable[[int], nn.Module]:
    """Return the builder of an MLP of two hidden layers."""

    def make(width: int) -> nn.Module:
        hidden = nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        return nn.Sequential(nn.Linear(inputs, width), *hidden, nn.Linear(width, 10))

    return make


class GPT(nn.Module):
    """Two blocks of attention and an MLP, four heads, characters."""

    def __init__(self, width: int, letters: int = 96, context: int = 64):
        super().__init__()
        self.token, self.place = nn.Embedding(letters, width), nn.Embedding(context, width)
        nn.init.normal_(self.token.weight, std=0.3)
        nn.init.normal_(self.place.weight, std=0.3)
        self.blocks = nn.ModuleList(AttentionBlock(width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next character."""
        x = self.token(ids) + self.place.weight[: ids.shape[-1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class AttentionBlock(nn.Module):
    """Causal attention and an MLP, before each a LayerNorm."""

    def __init__(self, n: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(n), nn.LayerNorm(n)
        self.q, self.k, self.v, self.out = (nn.Linear(n, n, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(n, 4 * n, bias=False), nn.Linear(4 * n, n, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the stream behind the block."""
        h = self.norm1(x)
        q, k, v = (w(h).unflatten(-1, (4, -1)).transpose(-3, -2) for w in (self.q, self.k, self.v))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(-3, -2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@dataclass(frozen=True)
class Cell:
    """What is trained, and at which widths."""

    make: Callable[[int], nn.Module]
    task: Task
    optimizer: str
    powers: tuple[int, ...]  # rates are 2 to these
    pilots: dict[int, int]  # seeds by width
    target: int
    seeds: int  # of the target
    decay: float = 0.0


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's digits."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = np.asarray(x)
    return ((x - x.mean(0)) / 4.3).astype(np.float32), np.asarray(y)


def images(file: Path, step: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a file of images, every step-th pixel, with mean 0 and mean square 1."""
    held = np.load(file)
    x, y = (np.concatenate([held[f"{name}_train"], held[f"{name}_test"]]) for name in "xy")
    x = x[:, ::step, ::step].reshape(len(x), -1).astype(np.float32)
    x = x - x.mean(0)
    return x / x.std(), y.astype(int)


def task_of(
    x: np.ndarray, y: np.ndarray, steps: int, batch: int, samples: int | None = None
) -> Task:
    """Return a task whose last samples are held out."""
    held = min(2000, len(x) // 5)
    count = len(x) - held if samples is None else samples
    return Task(
        x[:count], y[:count], batch_size=batch, steps=steps, x_final=x[-held:], y_final=y[-held:]
    )


def characters(file: Path) -> Task:
    """Return a text in windows of 65 characters, in one pass."""
    text = file.read_text(encoding="utf-8")
    letters = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = np.array([letters[c] for c in text])[: 65 * (len(text) // 65)].reshape(-1, 65)
    x, y = ids[:, :-1], ids[:, 1:]
    return Task(x[:-64], y[:-64], batch_size=8, steps=200, x_final=x[-64:], y_final=y[-64:])


def cells(data: Path | None, text: Path | None) -> dict[str, Cell]:
    """Return all cells for which there are data."""
    by_name = {"digits": digits()}
    if data is not None:
        by_name["fashion"] = images(data / "fashion_mnist_10k.npz", 2)
        by_name["cifar"] = images(data / "cifar10_8x8_12k.npz")
    found = {}
    for name, (x, y) in by_name.items():
        inputs, pass_of = x.shape[1], min(250, (len(x) - min(2000, len(x) // 5)) // 32)
        one = task_of(x, y, pass_of, 32)
        wide: dict[str, Any] = {"pilots": {32: 8, 64: 8, 128: 8}, "target": 256, "seeds": 4}
        powers = (-10, -9, -8, -7, -6)
        found[f"residual, one pass, {name}"] = Cell(
            residual(inputs), one, "adamw", powers, **wide, decay=0.1
        )
        found[f"relu, one pass, {name}"] = Cell(
            plain(inputs), one, "adamw", powers, **wide, decay=0.1
        )
        epochs = task_of(x, y, 300, 50, 1000)
        narrow: dict[str, Any] = {"pilots": {16: 16, 32: 16, 64: 16}, "target": 256, "seeds": 8}
        found[f"residual, 15 epochs, {name}"] = Cell(
            residual(inputs), epochs, "sgd", (-4, -3, -2), **narrow
        )
    if text is not None:
        found["GPT, one pass, text"] = Cell(
            GPT, characters(text), "adamw", (-7, -6, -5), {32: 8, 64: 6, 128: 4}, 256, 2, 0.1
        )
    return found


def swept(cell: Cell, widths: dict[int, int], **options: Any) -> Sweep:
    """Return the losses of a cell at some widths."""
    steps = cell.task.steps
    grid = Grid(
        lrs=[2.0**p for p in cell.powers], base=BASE, widths=list(widths), schemes=["mup"],
        seeds=widths, weight_decays=[cell.decay],
    )  # fmt: skip
    schedule = warmup_cosine(steps, warmup=steps // 10, final=0.05)
    return sweep(cell.make, cell.task, grid, optimizer=cell.optimizer, schedule=schedule, **options)


def measured(name: str, cell: Cell) -> list[dict[str, Any]]:
    """Return the rows of a cell: its training losses, and those of held-out samples."""
    begun = time.process_time()
    pilots = swept(cell, cell.pilots)
    spent = time.process_time() - begun
    begun = time.process_time()
    wide = swept(cell, {cell.target: cell.seeds}, verify=False)
    target = time.process_time() - begun
    rows = []
    for of in ("loss_train", "loss"):
        found = pilots.forecast(cell.target, of=of, throw=False)
        print(f"{name}: {found}", flush=True)
        row = {"cell": name, "loss": of, **compared(found, wide, of)}
        rows.append({**row, "pilots cpu s": f"{spent:.0f}", "target cpu s": f"{target:.0f}"})
        print(row, flush=True)
    return rows


def compared(found: Forecast, wide: Sweep, of: str) -> dict[str, str]:
    """Return the errors of a forecast on the losses of networks that were trained."""
    data = found.data
    losses = wide.data[of].squeeze().sel(lr=data["lr"]).transpose("lr", "seed", ...).values
    if of == "loss":
        losses = losses[..., None]
    ends, starts = data["time"].values, data["time_start"].values
    if of == "loss_train":
        pairs = zip(starts, ends, strict=True)
        losses = np.stack([losses[..., a:b].mean(-1) for a, b in pairs], -1)
    truth, seeds = losses.mean(1), losses.shape[1]
    own = losses.std(1, ddof=1) / seeds**0.5
    error = np.hypot(data["loss_error"].values, data["loss_std"].values / seeds**0.5)
    z = (data["loss"].values - truth) / error
    low, high = found.interval().transpose("end", "lr", "time").values
    one = np.mean((low[:, None] <= losses) & (losses <= high[:, None]))
    at = found.best()
    x = np.log2(data["lr"].values)
    vertex = np.polyfit(x, truth[:, -1], 2) if len(x) > 2 else None
    trained = "" if vertex is None or vertex[0] <= 0 else f"{-vertex[1] / (2 * vertex[0]):.2f}"

    def percent(values: np.ndarray) -> str:
        return f"{100 * np.sqrt(np.mean((values / truth - 1) ** 2)):.2f}"

    return {
        "forecast": percent(data["loss"].values),
        "widest pilot": percent(data["pilot_loss"].values[-1]),
        "power law": percent(power_law(found)),
        "target's own": percent(truth + own),
        "covers the mean": f"{np.mean(abs(z) < 1.645):.2f}",
        "covers a network": f"{one:.2f}",
        "z": f"{np.sqrt(np.mean(z**2)):.2f}",
        "best log2 rate": f"{np.log2(at.lr.at):.2f}",
        "trained": trained,
        "refused": str(len(found.reasons)),
    }


def power_law(found: Forecast) -> np.ndarray:
    """Return a n^-p through the pilots' means."""
    data = found.data
    logs, n = np.log(data["pilot_loss"].values), np.log(data["size"].values)
    slope = ((n - n.mean())[:, None, None] * logs).sum(0) / ((n - n.mean()) ** 2).sum()
    return np.exp(logs.mean(0) + slope * (np.log(found.size) - n.mean()))


def main() -> None:
    """Measure the cells that are wanted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cells", nargs="*", help="parts of the names of cells")
    parser.add_argument("--data", type=Path, help="a folder of images")
    parser.add_argument("--text", type=Path, help="a text")
    parser.add_argument("--output", type=Path, default=EVIDENCE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, cell in cells(options.data, options.text).items():
        if options.cells and not any(part in name for part in options.cells):
            continue
        rows += measured(name, cell)
    with options.output.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
