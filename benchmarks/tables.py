"""Accuracy and time on five data sets, beside scikit-learn's Gaussian process and boosted trees.

    python benchmarks/tables.py mnist.npz fashion_mnist.npz --samples 1000 5000

Three data sets come with scikit-learn; of them a quarter is held out. The files have arrays
``x_train``, ``y_train``, ``x_test``, ``y_test`` of images, of which the first ``--samples`` and the
first 1000 are taken. All features are standardised, and every method has its defaults, those of
:class:`largen.NNGPRegressor` and its kin included; scikit-learn's Gaussian process has the kernel
``ConstantKernel() * RBF() + WhiteKernel()``, and targets ±1 for classes. The score is R² for
numbers and the fraction of right classes otherwise. Each row is a process of its own: processor
seconds of fit and prediction, compilation included, imports not. A row that stands in ``--output``
is kept.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import time
from functools import partial
from pathlib import Path

import numpy as np

HEAD = ("data", "samples", "features", "method", "score", "processor s")
BUNDLED = ("diabetes", "breast_cancer", "digits")
METHODS = ("NNGP", "NTK", "GaussianProcessRegressor", "HistGradientBoosting")
TEST, LARGEST = 1000, 2000  # images to test on; most samples for scikit-learn's Gaussian process


def load(name: str, samples: int | None):
    """Return training inputs and targets, and those for the test; inputs are standardised rows."""
    if samples is None:
        from sklearn import datasets
        from sklearn.model_selection import train_test_split

        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        x, x_test, y, y_test = train_test_split(x, y, test_size=0.25, random_state=0)
    else:
        with np.load(name) as data:
            x, y, x_test, y_test = (data[k] for k in ("x_train", "y_train", "x_test", "y_test"))
        x, y, x_test, y_test = x[:samples], y[:samples], x_test[:TEST], y_test[:TEST]
    x, x_test = (np.reshape(k, (len(k), -1)).astype(float) for k in (x, x_test))
    mean, std = x.mean(axis=0), x.std(axis=0)
    x, x_test = ((k - mean) / np.where(std > 0, std, 1) for k in (x, x_test))
    return x, y, x_test, y_test


def score_of(method: str, classes: bool, x, y, x_test, y_test) -> float:
    """Fit a method, and return R² or the fraction of right classes on the test samples."""
    import largen as lg

    if method == "GaussianProcessRegressor":
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        kernel = ConstantKernel() * RBF(x.shape[1] ** 0.5, (1e-2, 1e4)) + WhiteKernel()
        model = GaussianProcessRegressor(kernel, normalize_y=True)
        if not classes:
            return model.fit(x, y).score(x_test, y_test)
        names, of_class = np.unique(y, return_inverse=True)
        outputs = np.asarray(model.fit(x, 2.0 * np.eye(len(names))[of_class] - 1).predict(x_test))
        return float(np.mean(names[outputs.argmax(axis=1)] == y_test))
    if method == "HistGradientBoosting":
        from sklearn import ensemble

        kind = "Classifier" if classes else "Regressor"
        model = getattr(ensemble, f"HistGradientBoosting{kind}")(random_state=0)
    else:
        model = getattr(lg, f"{method}{'Classifier' if classes else 'Regressor'}")()
    return model.fit(x, y).score(x_test, y_test)


def measure(name: str, samples: int | None, method: str) -> list[str]:
    """Return a row of the table."""
    import sklearn.ensemble
    import sklearn.gaussian_process  # noqa: F401

    import largen.regression.estimators  # noqa: F401

    x, y, x_test, y_test = load(name, samples)
    begin = time.process_time()
    score = score_of(method, name != "diabetes", x, y, x_test, y_test)
    seconds = time.process_time() - begin
    shown = Path(name).stem.removesuffix("_10k").replace("_", " ")
    return [shown, str(len(x)), str(x.shape[1]), method, f"{score:.3f}", f"{seconds:.1f}"]


def main() -> None:
    """Measure what is missing in the table, and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", help="images, .npz")
    parser.add_argument("--samples", nargs="+", type=int, default=[500, 1000])
    parser.add_argument("--output", type=Path, default=Path("docs/evidence/tables.csv"))
    given = parser.parse_args()
    sets = [(name, None) for name in BUNDLED]
    sets += [(file, samples) for file in given.files for samples in given.samples]
    rows = []
    if given.output.exists():
        with given.output.open() as file:
            rows = list(csv.reader(file))[1:]
    for name, samples in sets:
        for method in METHODS:
            known = [Path(name).stem.removesuffix("_10k").replace("_", " "), method]
            of_size = (samples is None, str(samples))
            if any([r[0], r[3]] == known and (of_size[0] or r[1] == of_size[1]) for r in rows):
                continue
            if method == "GaussianProcessRegressor" and (samples or 0) > LARGEST:
                continue
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                rows.append(pool.apply(partial(measure, name, samples, method)))
            print(*rows[-1], sep="\t", flush=True)
            with given.output.open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([HEAD, *rows])


if __name__ == "__main__":
    main()
