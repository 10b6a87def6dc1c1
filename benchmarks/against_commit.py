"""Speed of kernels, training and limits against another commit: ratios of processor seconds.

    git worktree add --detach ../before COMMIT
    python benchmarks/against_commit.py ../before

Processes of both commits take turns, since machines are shared, and each measures every case: the
first call, which compiles and reads nothing from the persistent cache, and the fastest of the
calls in half a second behind it. The table has the fastest of all processes. Cases use names that
both commits have.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENOUGH = 0.5  # seconds of later calls


def cases():
    """Return the computations by name."""
    import numpy as np

    import largen as lg

    rng = np.random.default_rng(0)
    flat, image = rng.standard_normal((200, 32)), rng.standard_normal((12, 8, 8, 3))
    tokens = rng.standard_normal((16, 12, 8))
    act = lg.Activation("relu")
    conv = [lg.Conv((3, 3)), act] * 3
    kernels = {
        "kernel, 3 hidden layers, relu": (lg.mlp(3, "relu"), flat),
        "kernel, 2 hidden layers, tanh": (lg.mlp(2, "tanh"), flat[:100]),
        "kernel, 8 residual blocks": (lg.residual_mlp(8, "relu"), flat),
        "kernel, convolutions": (lg.serial(*conv, lg.GlobalAvgPool(), lg.Dense()), image),
        "kernel, attention": (
            lg.serial(lg.Dense(), lg.QKVAttention(), act, lg.GlobalAvgPool(), lg.Dense()),
            tokens,
        ),
    }
    calls = {name: lambda of=of: lg.kernel(*of) for name, of in kernels.items()}
    data = lg.Dataset(flat[:16, :8], np.sign(flat[:16, 0]))

    def run(net, param, lr, steps):
        return lg.Run(net, param, data, optimizer=lg.gd(lr), steps=steps)

    trained = run(lg.mlp(2, "relu"), lg.mup(), 0.2, 100)
    fixed = run(lg.mlp(2, "relu"), lg.ntk(), 0.2, 100)
    moving = run(lg.mlp(1, "tanh"), lg.mean_field(), 0.2, 20)
    return calls | {
        "train, 8 networks of width 256": lambda: lg.train(trained, width=256, seeds=8),
        "solve, kernel limit": lambda: lg.solve(fixed),
        "solve, one hidden layer": lambda: lg.solve(moving),
    }


def measure() -> dict[str, tuple[float, float]]:
    """Return the processor seconds of the first call of each case, and of the fastest later one."""
    import jax

    def seconds(call):
        start = time.process_time()
        jax.block_until_ready([x for x in jax.tree.leaves(call()) if isinstance(x, jax.Array)])
        return time.process_time() - start

    found = {}
    for name, call in cases().items():
        first, later = seconds(call), [seconds(call)]
        while len(later) < 4 or sum(later) < ENOUGH:
            later.append(seconds(call))
        found[name] = (first, min(later))
    return found


def measured_at(checkout: Path) -> dict[str, list[float]]:
    """Return the seconds of one process of a checkout."""
    kept = {name: value for name, value in os.environ.items() if "JAX_" not in name}
    environment = kept | {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--measure"]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(out.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path, nargs="?", help="a checkout of the other commit")
    parser.add_argument("--processes", type=int, default=3, help="of each commit")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure()))
        return
    found = {checkout: [] for checkout in (asked.before, ROOT)}
    for _ in range(asked.processes):
        for checkout, runs in found.items():
            runs.append(measured_at(checkout))
    print(f"{'':32} {'first call':^23}   {'later calls':^23}")
    print(f"{'processor seconds':32}" + f" {'before':>7} {'now':>7} {'ratio':>7}  " * 2)
    for name in found[ROOT][0]:
        row = f"{name:32}"
        for which in range(2):
            before, now = (min(run[name][which] for run in runs) for runs in found.values())
            row += f" {before:7.3f} {now:7.3f} {now / before:7.2f}  "
        print(row.rstrip())


if __name__ == "__main__":
    main()
