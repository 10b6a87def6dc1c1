"""Up to 10⁵ images: seconds, memory and accuracy of three ways to predict, against their number.

    python benchmarks/many_samples.py fashion_mnist.npz
    python benchmarks/many_samples.py fashion_mnist.npz --samples 100000 --methods iterative

The file has arrays ``x_train``, ``y_train``, ``x_test``, ``y_test``. If more images are wanted than
it has, transformed copies of the training images follow, all images by one transformation after the
other: as they are, mirrored from left to right, and both of these moved by one pixel in each of
eight directions, zeros coming in. Test images are left as they are; none equals a training image.

The predictions are the mean of a Gaussian process whose covariance is the NTK of two hidden layers
of relu: exact, by a Cholesky factor of the kernel; of low rank, by landmarks; and iterative, by
conjugate gradients on the kernel, which is never stored, with as many landmarks for its
preconditioner, to a residual of ``--rtol``. Each row is a process of its own. Memory is the peak of
the process. A row that stands in ``--output`` is not measured again, and with ``--folder`` an
iterative solution that was interrupted goes on: its processor seconds are added to those before,
and its wall-clock time is left out. ``foretold`` is the processor time that the rows above with the
same method predict, see :func:`foretold`.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import multiprocessing
import time
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

import largen as lg

NET = lg.mlp(2, "relu", weight_std=2**0.5, bias_std=0.1)
METHODS = ("exact", "low rank", "iterative")
LARGEST_EXACT = 8000
HEAD = (
    "method", "samples", "rtol", "steps", "right", "processor s", "foretold", "wall-clock s",
    "of a product", "MB",
)  # fmt: skip


def moved(images, down, right):
    """Return images moved by a pixel or none along both axes, zeros coming in."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    height, width = images.shape[1:]
    return padded[:, 1 - down : 1 - down + height, 1 - right : 1 - right + width]


def load(path: Path, samples: int):
    """Return training images, their labels, test images and their labels; images are rows."""
    with np.load(path) as data:
        x, y, x_test, y_test = (data[k] for k in ("x_train", "y_train", "x_test", "y_test"))
    known = {image.tobytes() for image in x}
    assert not any(image.tobytes() in known for image in x_test)
    shifts = sorted(itertools.product((0, 1, -1), repeat=2), key=lambda s: s != (0, 0))
    copies, labels = [], []
    for down, right in shifts:
        for mirror in (False, True):
            if len(copies) * len(x) < samples:
                copies.append(moved(x[:, :, ::-1] if mirror else x, down, right))
                labels.append(y)
    chosen = np.concatenate(copies)[:samples]
    if len(chosen) < samples:
        raise SystemExit(f"{path} gives {len(chosen)} images with their copies.")
    mean, std = x.mean(), x.std()
    rows = [((k.reshape(len(k), -1) - mean) / std).astype(np.float32) for k in (chosen, x_test)]
    return rows[0], np.concatenate(labels)[:samples], rows[1], y_test


def peak_mb() -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def measure(method, samples, path, landmarks, noise, rtol, folder):
    """Return a row, without its forecast."""
    x, labels, x_test, labels_test = load(path, samples)
    y, products = np.eye(10)[labels] - 0.1, []
    lg.ntk_kernel(NET, x[:2048], x[-2048:])  # compiles
    begin, begin_cpu = time.perf_counter(), time.process_time()

    def note(done, total):
        products.append((done, time.process_time()))
        if spent is not None:
            spent.write_text(json.dumps({"processor s": before + products[-1][1] - begin_cpu}))
        if done % 10 == 0:
            print(f"    {done} of {total} after {time.perf_counter() - begin:.0f} s", flush=True)

    steps, of_product, before, spent = "", "", 0.0, None
    if method == "iterative" and folder is not None:
        spent = folder / f"{samples}.json"
        before = json.loads(spent.read_text())["processor s"] if spent.exists() else 0.0
    if method == "exact":
        mean = lg.posterior(NET, x, y, kind="ntk-gp", noise=noise).predict(x_test).mean
    elif method == "low rank":
        given = lg.regression.large.low_rank_posterior(
            NET, x, y, kind="ntk-gp", noise=noise, landmarks=landmarks
        )
        mean = given.predict(x_test).mean
    else:
        found = lg.regression.large.solve_kernel(
            lg.regression.large.kernel_operator(NET, x, block=4096), y, noise=noise,
            rank=landmarks, rtol=rtol,
            checkpoint=None if folder is None else folder / f"{samples}.npz", progress=note,
        )  # fmt: skip
        mean, steps = (
            lg.regression.large.kernel_operator(NET, x_test, x, block=4096) @ found.weights,
            found.steps,
        )
        parts = products[-1][0] / (found.steps + 1)
        if len(products) > 1:
            of_product = (products[-1][1] - products[0][1]) / (len(products) - 1) * parts
    wall, cpu = time.perf_counter() - begin, before + time.process_time() - begin_cpu
    right = float(np.mean(np.argmax(mean, axis=1) == labels_test))
    return {
        "method": method, "samples": samples, "rtol": rtol if method == "iterative" else "",
        "steps": steps, "right": f"{right:.4f}", "processor s": f"{cpu:.4g}", "foretold": "",
        "wall-clock s": "" if before else f"{wall:.4g}",
        "of a product": f"{of_product:.4g}" if of_product else "", "MB": f"{peak_mb():.0f}",
    }  # fmt: skip


def foretold(row, above, fewest):
    """Return the processor seconds that rows with fewer samples predict, or None.

    With n samples a product costs c·n², and all else, at a fixed number of landmarks, a + b·n; an
    exact solution a + b·n² + c·n³, for its kernel and its factor. No constant is negative. They are
    fitted to the rows above with as many samples as landmarks, ``fewest``, or more. The number of
    steps, which is known after a solution only, is taken as it was.
    """
    before = [k for k in above if k["method"] == row["method"]]
    if row["method"] != "exact":
        before = [k for k in before if int(k["samples"]) >= fewest]
    powers = (0, 2, 3) if row["method"] == "exact" else (0, 1)
    if len(before) < len(powers):
        return None
    n = float(row["samples"])
    sizes = [float(k["samples"]) for k in before]
    cost = [float(k["processor s"]) for k in before]
    products = 0.0
    if row["method"] == "iterative":
        each = [(int(k["steps"]) + 1) * float(k["of a product"]) for k in before]
        cost = [whole - part for whole, part in zip(cost, each, strict=True)]
        products = float(before[-1]["of a product"]) * (n / sizes[-1]) ** 2
        products *= int(row["steps"]) + 1
    # Relative errors are minimised: processors that others use as well count more seconds.
    terms = np.array([[s**p for p in powers] for s in sizes]) / np.array(cost)[:, None]
    constants, _ = nnls(terms, np.ones(len(cost)))
    return products + float(constants @ [n**p for p in powers])


def forecast(rows, fewest):
    """Write into each row what those above it foretell."""
    for k, row in enumerate(rows):
        found = foretold(row, rows[:k], fewest)
        row["foretold"] = "" if found is None else f"{found:.4g}"


def write(path, rows):
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, HEAD)
        table.writeheader()
        table.writerows(rows)


def exponent(rows):
    """Return the slope of log seconds against log samples over the upper half of the numbers."""
    upper = rows[len(rows) // 2 :]
    if len(upper) < 2:
        return None
    samples, seconds = ([float(k[name]) for k in upper] for name in ("samples", "processor s"))
    return np.polyfit(np.log(samples), np.log(seconds), 1)[0]


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="a .npz file with images")
    parser.add_argument("--samples", type=int, nargs="*", default=[1000, 2000, 4000, 8000])
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--landmarks", type=int, default=2000)
    parser.add_argument("--noise", type=float, default=1.0)
    parser.add_argument("--rtol", type=float, default=1e-2)
    parser.add_argument("--folder", type=Path, help="where iterative solutions keep their states")
    parser.add_argument("--output", type=Path, help="a CSV file, to which rows are added")
    given = parser.parse_args()
    rows = []
    if given.output and given.output.exists():
        with given.output.open() as file:
            rows = list(csv.DictReader(file))
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
    apart = multiprocessing.get_context("spawn")
    print(" | ".join(HEAD))
    for samples, method in itertools.product(given.samples, given.methods):
        there = any((k["method"], int(k["samples"])) == (method, samples) for k in rows)
        if there or (method == "exact" and samples > LARGEST_EXACT):
            continue
        options = (given.data, given.landmarks, given.noise, given.rtol, given.folder)
        with apart.Pool(1) as process:
            row = process.apply(measure, (method, samples, *options))
        rows.append(row)
        forecast(rows, given.landmarks)
        print(" | ".join(str(row[name]) for name in HEAD), flush=True)
        if given.output:
            write(given.output, rows)
    if given.output and rows:  # also those of an earlier call
        forecast(rows, given.landmarks)
        write(given.output, rows)
    for method in METHODS:
        power = exponent([k for k in rows if k["method"] == method])
        if power is not None:
            print(f"{method}: processor seconds grow as samples to the power {power:.2f}")


if __name__ == "__main__":
    main()
