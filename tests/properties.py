"""Limits against networks, for runs drawn at random.

    python -m tests.properties --cases 1000 --seed 0

draws architectures, parameterizations and optimizers, solves each run at infinite width, trains
networks of two widths, and combines their means so that the term of order 1/width cancels. What is
left over is compared with zero: a random combination of the outputs at two times, in units of its
standard error. Cases beyond ``WORST`` are printed with the seed that draws them again. With
``--output`` the scores so far are kept, and the same command goes on behind them.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from scipy import stats
from tests.compiled import forget_programs

import largen as lg
from largen.errors import NumericalFailure
from largen.theories import KernelLimit

WORST = 4.0
WIDTH = {1: 4096, 2: 512, 3: 512}  # the larger of the two widths, by the number of hidden layers
SMOOTH = ("tanh", "erf", "sin", "gelu")
STEPS = 6


@dataclass(frozen=True)
class Case:
    """A run, and the number of networks of each width that it is compared with."""

    seed: int
    run: lg.Run
    layers: int
    networks: int

    def __str__(self) -> str:
        return f"{self.seed}: {self.run.net}, {self.run.param}, {self.run.optimizer}"


def draw(seed: int, *, most_layers: int = 3, networks: int = 48) -> Case:
    """Draw a case; the same seed draws the same one."""
    rng = np.random.default_rng(seed)
    layers = int(rng.integers(1, most_layers + 1))
    features_move = bool(rng.integers(2))
    # Gradients of relu span new directions at every step: deep limits of it are costly.
    kinked = layers == 1 or not features_move
    activation = rng.choice([*SMOOTH, *(("relu",) if kinked else ())])
    constants = {
        "weight_std": float(rng.uniform(0.8, 1.5)),
        "bias_std": float(rng.choice([0.0, rng.uniform(0.1, 0.5)])),
    }
    residual = layers > 1 and bool(rng.integers(2)) and features_move
    make = lg.residual_mlp if residual else lg.mlp
    net = make(layers, str(activation), **constants)
    if features_move:
        scheme = lg.depth_mup if residual else lg.mean_field
        param = scheme(gamma=float(rng.uniform(0.3, 2.0)))
    else:
        param = lg.ntk()
    adaptive = layers == 1 and features_move and rng.integers(4) == 0
    rate = float(rng.uniform(0.1, 0.5))
    if adaptive:
        optimizer = (lg.adam, lg.optimizers.rmsprop)[rng.integers(2)](rate / 10)
    else:
        kinds = (
            lambda: lg.gd(rate),
            lambda: lg.gd(rate / 2, momentum=float(rng.uniform(0.2, 0.8))),
            lambda: lg.sgd(rate, batch_size=2),
        )
        optimizer = kinds[rng.integers(len(kinds))]()
        # A shift along the abc-symmetry leaves training as it is.
        param = param.shift({"output": ("-1/2", "0", "1/2")[rng.integers(3)]})
    x, y = rng.standard_normal((6, 3)), rng.standard_normal(6)
    data = lg.Dataset(x[:4], y[:4], x[4:], y[4:])
    return Case(seed, lg.Run(net, param, data, optimizer=optimizer, steps=STEPS), layers, networks)


def outputs(f_train: np.ndarray, f_test: np.ndarray) -> np.ndarray:
    """Return the outputs of all samples in the middle and at the end, along the last axis."""
    every = np.concatenate([f_train, f_test], axis=-1)[..., [STEPS // 2, STEPS], :]
    return every.reshape(*every.shape[:-2], -1).astype(float)


def z_score(case: Case) -> float:
    """Return how many standard errors networks, extrapolated in their width, are from the limit.

    Standard errors are estimated from the networks themselves, so that their ratio has Student's
    distribution; the returned number has the same tail probability under a Gaussian.
    """
    run, count = case.run, case.networks
    limit = lg.solve(run)
    weights = np.random.default_rng([case.seed, 1]).standard_normal(4 * 3)
    means, variances = [], []
    for width, key in ((WIDTH[case.layers], 0), (WIDTH[case.layers] // 2, 1)):
        nets = lg.train(run, width=width, seeds=count, key=2 * case.seed + key, progress=False)
        expected = limit.f_train, limit.f_test
        if limit.theory == KernelLimit.name:  # the start of each network is random
            expected = KernelLimit().condition(limit, nets.f_train[:, 0], nets.f_test[:, 0])
        distances = (outputs(nets.f_train, nets.f_test) - outputs(*expected)) @ weights
        means.append(distances.mean())
        variances.append(distances.var(ddof=1) / count)
    parts = 4 * variances[0], variances[1]
    error = 0.0
    if "f_train_error" in limit:
        error = float(np.abs(weights) @ outputs(limit.f_train_error, limit.f_test_error))
    freedom = sum(parts) ** 2 / sum(part**2 / (count - 1) for part in parts)
    student = (2 * means[0] - means[1]) / np.sqrt(sum(parts) + error**2)
    tail = stats.t.logsf(abs(student), freedom)
    return float(np.sign(student) * stats.norm.isf(np.exp(tail)))


def scores(seeds: range, **options: int) -> Iterator[tuple[Case, float | None]]:
    """Return cases with their z-scores; None where training diverges, at any width."""
    for seed in seeds:
        case = draw(seed, **options)
        try:
            yield case, z_score(case)
        except NumericalFailure:
            yield case, None


def summary(found: list[float | None], first: int, seconds: float) -> dict[str, object]:
    """Return what came of cases: z-scores, None for those that diverged."""
    z = np.array([score for score in found if score is not None])
    return {
        "date": date.today().isoformat(),
        "cases": len(z),
        "first seed": first,
        "diverged": len(found) - len(z),
        f"beyond {WORST:g}": int(np.sum(np.abs(z) > WORST)),
        "largest |z|": round(float(np.max(np.abs(z))), 2) if len(z) else None,
        "root mean square of z": round(float(np.sqrt(np.mean(z**2))), 3) if len(z) else None,
        "processor seconds": round(seconds),
    }


def kept(path: Path | None, first: int) -> tuple[list[float | None], float]:
    """Return the scores and seconds of an earlier call that began with the same seed."""
    if path is None or not path.exists():
        return [], 0.0
    before = json.loads(path.read_text())
    if before["first seed"] != first:
        raise SystemExit(f"{path} has cases from the seed {before['first seed']} on.")
    return before["z"], before["processor seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--output", type=Path, help="a JSON file for the scores so far")
    wanted = parser.parse_args()
    found, before = kept(wanted.output, wanted.seed)
    counts = summary(found, wanted.seed, before)
    rest = range(wanted.seed + len(found), wanted.seed + wanted.cases)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case, z in scores(rest):
            found.append(None if z is None else round(z, 3))
            if z is not None and abs(z) > WORST:
                print(f"|z| = {abs(z):.1f}  {case}", flush=True)
            counts = summary(found, wanted.seed, before + time.process_time() - began)
            if wanted.output:
                wanted.output.write_text(json.dumps({**counts, "z": found}) + "\n")
            forget_programs()
    print(", ".join(f"{name}: {value}" for name, value in counts.items()))


if __name__ == "__main__":
    main()
