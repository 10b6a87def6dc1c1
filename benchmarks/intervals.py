"""How often the 95 % intervals of mean-field solutions contain the value: 95 times of a hundred.

    python benchmarks/intervals.py [--keys 250] [--cases NAME …]

Small problems are solved with many keys and few replicates, and their outputs compared with a
solution by far more neurons. Beside the intervals, by Student's distribution, are those of 1.96
standard errors, as if these were known. The shares are written to ``docs/evidence/intervals.json``;
two minutes of one core.
"""

import argparse
import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

import largen as lg
from largen.theories import AdaptiveMeanField, AttentionMeanField, DeepMeanField, MeanField

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence" / "intervals.json"
BLOCK = lg.serial(lg.RMSNorm(), lg.Dense(), lg.Activation("tanh"), lg.Dense())
MANY = 2**20  # neurons in all, for the values
# Network, theory with few replicates, and what makes it far more exact.
CASES = {
    "two hidden layers of tanh": (
        lg.mlp(2, "tanh"),
        DeepMeanField(particles=256, replicates=4, record=[]),
        {"particles": 8192, "rtol": 3e-4},
    ),
    "two hidden layers of tanh, as many replicates as rtol requires": (
        lg.mlp(2, "tanh"),
        DeepMeanField(particles=256, rtol=5e-3, record=[]),
        {"particles": 8192, "rtol": 3e-4},
    ),
    "a normalised block of two maps": (
        lg.serial(lg.Dense(), lg.Residual(BLOCK), lg.Dense()),
        AttentionMeanField(particles=256, replicates=4, record=[]),
        {"particles": 4096, "rtol": 5e-4},
    ),
    "one hidden layer of tanh": (
        lg.mlp(1, "tanh"),
        MeanField(method="particles", particles=2048, record=[]),
        {"particles": 2**17},
    ),
    "two hidden layers of tanh, Adam": (
        lg.mlp(2, "tanh"),
        AdaptiveMeanField(particles=256, replicates=8, record=[]),
        {"particles": 2048, "rtol": 1e-3},
    ),
    "two hidden layers of relu, Adam": (
        lg.mlp(2, "relu"),
        AdaptiveMeanField(particles=256, replicates=8, record=[]),
        {"particles": 2048, "rtol": 2e-3},
    ),
}


def data() -> lg.Dataset:
    """Return two training and two test samples."""
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((4, 3)), rng.standard_normal(4)
    return lg.Dataset(x[:2], y[:2], x[2:], y[2:])


def outputs(limit: lg.Trajectory, what: str = "") -> np.ndarray:
    """Return the outputs on all samples behind the first step, or what is said of them."""
    parts = (getattr(limit, f"f_{name}{what}")[1:] for name in ("train", "test"))
    return np.concatenate(list(parts), axis=1).astype(float)


def measure(name: str, keys: int) -> dict[str, object]:
    """Return the shares of intervals that contain the value, with standard errors over keys."""
    net, theory, more = CASES[name]
    how = lg.adam(0.1) if isinstance(theory, AdaptiveMeanField) else lg.gd(0.5)
    run = lg.Run(net, lg.mean_field(), data(), optimizer=how, steps=3)
    more = {"replicates": None, "max_particles": MANY} | more
    known = {option: value for option, value in more.items() if hasattr(theory, option)}
    value = outputs(lg.solve(run, theory=replace(theory, **known, key=10**6)))
    found = [lg.solve(run, theory=replace(theory, key=key)) for key in range(keys)]
    off = np.abs(np.stack([outputs(limit) for limit in found]) - value)
    shares = {}
    for kind, factor in (("margin", 1.0), ("error", 1.96)):
        inside = off <= factor * np.stack([outputs(limit, f"_{kind}") for limit in found])
        each = inside.reshape(keys, -1).mean(1)
        shares[kind] = [round(float(each.mean()), 4), round(float(each.std(ddof=1) / keys**0.5), 4)]
    return {"keys": keys, "outputs": value.size, "inside": shares}


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=250)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    options = parser.parse_args()
    kept = json.loads(EVIDENCE.read_text())["cases"] if EVIDENCE.exists() else {}
    for name in options.cases:
        kept[name] = measure(name, options.keys)
        print(name, kept[name], flush=True)
        held = {"date": str(date.today()), "cases": kept}
        EVIDENCE.write_text(json.dumps(held, indent=1) + "\n")


if __name__ == "__main__":
    main()
