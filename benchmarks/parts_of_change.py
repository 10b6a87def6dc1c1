"""Why the outputs' change of wide networks has small negative slopes under a right plan.

A few steps of training change a network's outputs by Δf. As the width n grows, f becomes a
deterministic function of the inputs, so that Δf is a learned part, equal for all initial weights
and with a limit, plus a part that depends on them and vanishes as n^(−½). The mean of Δf·Δf' over
pairs of networks with different initial weights is the square of the learned part, without bias.

Besides, the initial outputs f₀ vanish as n^(−½). With targets y they are a part of the error
f₀ − y, and of the response to it; with targets f₀ + y, as in ``python -m tools.audit``, they are
not. Run as

    python -m benchmarks.parts_of_change [TABLE.txt] [--models T5 Whisper …] [--seeds 4]

It needs transformers; minutes of one core. ``parts_of_change.txt`` is its table.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.recording import output_of
from largen.transfer.torch.scaling import scale
from tools.audit.quiet import Quiet, random_targets
from tools.audit.stock import BASE, StockModel, stock_models

GROWTH, STEPS, RATE = (1, 2, 4), 4, 2e-3


def change(plan: TorchPlan, quiet: Quiet, seed: int, around_start: bool) -> tuple[Tensor, float]:
    """Train one network; return the change of its outputs, and the size of the initial ones."""
    model = plan.build(seed=seed)
    args, kwargs = quiet.inputs_at(plan.target)

    def output() -> Tensor:
        found = output_of(model(*args, **kwargs))
        assert found is not None
        return found

    start = output().detach()
    y = random_targets(start.shape) + (start if around_start else 0)
    optimizer = torch.optim.Adam(plan.param_groups(model, lr=RATE))
    for _ in range(STEPS):
        optimizer.zero_grad()
        ((output() - y).square().mean() / 2).backward()
        optimizer.step()
    moved = (output().detach() - start).double().flatten()
    return moved, float(start.square().mean().sqrt())


def parts(changes: list[Tensor]) -> tuple[float, float]:
    """Return the root mean squares of the whole change and of its learned part."""
    rows = torch.stack(changes)
    products = rows @ rows.T / rows.shape[1]
    count = len(rows)
    whole = products.diagonal().mean()
    learned = (products.sum() - products.diagonal().sum()) / (count * (count - 1))
    return float(whole.sqrt()), float(learned.clamp(min=0).sqrt())


def rows_of(model: StockModel, seeds: int) -> list[str]:
    """Return a model's rows of the table."""
    quiet, rows = Quiet(model.make, None), []
    for around_start in (False, True):
        for growth in GROWTH:
            target = {**BASE, "width": growth * BASE["width"]}
            plan = scale(quiet, BASE, target, scheme="complete_p", optimizer="adam")
            own = [change(plan, quiet, seed, around_start) for seed in range(seeds)]
            whole, learned = parts([moved for moved, _ in own])
            start = sum(size for _, size in own) / seeds
            rest = max(whole**2 - learned**2, 0.0) ** 0.5
            targets = "f0 + y" if around_start else "y"
            rows.append(
                f"{model.name:<10}{targets:<8}{target['width']:>6}{start:>10.3f}{whole:>10.3f}"
                f"{learned:>10.3f}{rest:>10.3f}"
            )
    return rows


def main() -> None:
    """Print the table, and write it to a file if one is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--models", nargs="+", default=["GPT-2", "Whisper", "T5", "Mamba-2"])
    parser.add_argument("--seeds", type=int, default=4)
    given = parser.parse_args()
    lines = [
        f"complete_p, {STEPS} steps of Adam at {RATE:g}, {given.seeds} networks; root mean squares",
        "model     targets  width initial f    change   learned      rest",
    ]
    print("\n".join(lines))
    known = {model.name: model for model in stock_models()}
    for name in given.models:
        rows = rows_of(known[name], given.seeds)
        print("\n".join(rows), flush=True)
        lines += rows
    if given.table is not None:
        given.table.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
