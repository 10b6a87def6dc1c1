"""A sweep of 20 rates: all replicas in one batched computation against 20 separate runs.

A residual MLP of width 64 and depth 16 on digits, gradient descent, the same batches for both.
The separate runs are plain PyTorch: ``torch.optim.SGD`` with the plan's parameter groups. Run as
``python benchmarks/bench_sweeps.py``; a minute. Ratios are of the same run.

The last column is a bound: what the separate runs take, relative to the matrix products alone that
20 networks' steps consist of, stacked and written into memory that is there. No way of batching
that does these products on this processor can be faster by more than that.
"""

import argparse
import time

import torch
from torch import nn

from largen.experiments.sweeps.tasks import digits_task
from largen.transfer.replicas import Replica
from largen.transfer.torch import scale
from largen.transfer.torch.models import ResidualMLP
from largen.transfer.torch.replicas import tensors, train_replicas

BASE, TARGET = {"width": 64, "depth": 4}, {"width": 64, "depth": 16}
RATES = [2.0 ** (-8 + 0.5 * k) for k in range(20)]  # the largest ones diverge


def separate(plan, task, rates):
    """Train one network after the other."""
    for rate in rates:
        model = plan.build(seed=0)
        optimizer = torch.optim.SGD(plan.param_groups(model, lr=rate))
        for t in range(task.steps):
            x, y = tensors(task.batch(t))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, y in map(tensors, task.evaluation):
                nn.functional.cross_entropy(model(x), y)


def together(plan, task, rates):
    """Train all networks at once."""
    train_replicas(
        plan,
        [Replica(rate) for rate in rates],
        task.batch,
        task.loss,
        steps=task.steps,
        evaluation=task.evaluation,
    )


def products(plan, task, rates):
    """Only multiply: forward, and backward to weights and to activations."""
    batch, count = task.batch_size, len(rates)
    layers = []
    for weight in plan.weights:
        out, inner = weight.shape
        x, w = torch.randn(count, batch, inner), torch.randn(count, inner, out)
        layers.append((x, w, torch.empty(count, batch, out), torch.empty(count, inner, out)))
    for _ in range(task.steps):
        for i, (x, w, f, to_w) in enumerate(layers):
            torch.bmm(x, w, out=f)
            torch.bmm(x.mT, f, out=to_w)
            if i:  # inputs have no gradient
                torch.bmm(f, w.mT, out=x)


def seconds(function, *args, repeat=3):
    """Best wall-clock and processor time of a few."""
    times = []
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.process_time()
        function(*args)
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    return tuple(map(min, zip(*times, strict=True)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 16, 32, 64])
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    plan = scale(ResidualMLP, BASE, TARGET, scheme="depth_mup", optimizer="sgd")
    print(f"{given.threads} threads; rates that all train, then with those that diverge")
    print("batch  rates   separate s   together s   ratio   ratio of processor time   bound on it")
    for batch in given.batches:
        task = digits_task(given.steps, batch)
        for rates in ([rate / 16 for rate in RATES], RATES):
            alone, at_once, least = (
                seconds(f, plan, task, rates) for f in (separate, together, products)
            )
            print(
                f"{batch:5d} {len(rates):6d} {alone[0]:12.2f} {at_once[0]:12.2f} "
                f"{alone[0] / at_once[0]:7.1f} {alone[1] / at_once[1]:12.1f}"
                f"{alone[1] / least[1]:26.1f}",
                flush=True,
            )
