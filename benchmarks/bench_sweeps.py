"""A sweep of 20 rates: all replicas in one batched computation against 20 separate runs.

A residual MLP of width 64 and depth 16 on digits, the same batches for both. The separate runs are
plain PyTorch: an optimizer with the plan's parameter groups. Run as
``python -m benchmarks.bench_sweeps``; two minutes. Ratios are of the same run.

What batching saves is the cost of calling many small operations, so that the ratio falls with the
batch and with the width, and on one thread more than on several.
"""

import argparse
import time

import torch
from torch import nn

from examples.models import ResidualMLP
from examples.tasks import digits_task
from largen.transfer.replicas import Replica
from largen.transfer.torch import scale
from largen.transfer.torch.optimizers import OPTIMIZERS
from largen.transfer.torch.replicas import train_replicas

BASE, TARGET = {"width": 64, "depth": 4}, {"width": 64, "depth": 16}
RATES = [2.0 ** (-12 + 0.5 * k) for k in range(20)]  # none of them diverges


def separate(plan, task):
    """Train one network after the other."""
    for rate in RATES:
        model = plan.build(seed=0)
        optimizer = OPTIMIZERS[plan.optimizer](plan.param_groups(model, lr=rate))
        for t in range(task.steps):
            x, y = map(torch.as_tensor, task.batch(t))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for batch in task.evaluation:
                x, y = map(torch.as_tensor, batch)
                nn.functional.cross_entropy(model(x), y)


def together(plan, task):
    """Train all networks at once."""
    train_replicas(
        plan,
        [Replica(rate) for rate in RATES],
        task.batch,
        task.loss,
        steps=task.steps,
        evaluation=task.evaluation,
    )


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
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--optimizers", nargs="+", default=["sgd", "adamw"])
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"{given.threads} threads, {len(RATES)} rates, {given.steps} steps")
    print("optimizer  batch   separate s   together s   ratio   ratio of processor time")
    for optimizer in given.optimizers:
        plan = scale(ResidualMLP, BASE, TARGET, scheme="depth_mup", optimizer=optimizer)
        for batch in given.batches:
            task = digits_task(given.steps, batch)
            alone, at_once = seconds(separate, plan, task), seconds(together, plan, task)
            print(
                f"{optimizer:9s} {batch:6d} {alone[0]:12.2f} {at_once[0]:12.2f} "
                f"{alone[0] / at_once[0]:7.1f} {alone[1] / at_once[1]:12.1f}",
                flush=True,
            )
