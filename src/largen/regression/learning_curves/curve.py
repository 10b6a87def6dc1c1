"""Learning curves of kernel regression and of lazy networks, as users call them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.interrupts import interruptible
from largen.parameterizations import Parameterization
from largen.regression.learning_curves.inputs import Matrix, different, given, times_of
from largen.regression.learning_curves.large_pools import LARGE, predict_large
from largen.regression.learning_curves.leave_one_out import generalised, leave_one_out
from largen.regression.learning_curves.measured import generator
from largen.regression.learning_curves.measured import measure as measured_by_draws
from largen.regression.learning_curves.pool import pool_of
from largen.regression.learning_curves.predicted import predict
from largen.results import DataResult
from largen.scalars import integer, real
from largen.text import aligned

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

_SIZES, _MULTIPLES = 8, (2, 5, 10)  # sizes by default: within the pool, and multiples of it
_FEWEST_MULTIPLIED = 16  # samples of a pool whose multiples are among them
_OF_ALL = {
    "leave_one_out": "leave-one-out error of all samples",
    "cross_validation": "by generalised cross-validation   ",
}
_ALONE: dict[str, tuple[str, ...]] = {  # axes of what does not depend on the size
    "leave_one_out": ("output",),
    "cross_validation": ("output",),
    "eigenvalue": ("mode",),
    "eigenvalue_error": ("mode",),
    "eigenvalue_rest": (),
    "power": ("mode", "output"),
    "alignment": ("mode", "output"),
}


@cites("simon2023eigenlearning", "bordelon2020spectrum")
@dataclass(frozen=True, repr=False)
class LearningCurve(DataResult):
    """Errors against the number of training samples; made by :func:`learning_curve`.

    Attributes
    ----------
    data
        ``mse_test``, ``mse_test_error`` and ``mse_train`` over ``([time,] size[, output])``; the
        same as ``measured_test``, ``measured_test_error``, ``measured_train`` and
        ``measured_train_error`` if networks were measured. ``eigenvalue (mode)``, of the kernel
        divided by the number of samples M, ``power (mode[, output])`` of the targets in each mode,
        and ``alignment (mode[, output])``, the fraction of it in the first modes.
        ``leave_one_out ([output])`` and ``cross_validation ([output])`` of all samples. Of more
        than 6000 samples the modes are the leading ones, with ``eigenvalue_error (mode)``, at
        most 1 % of an eigenvalue, and ``eigenvalue_rest``, the sum of the others.
        Training errors and measured ones of more than M − 1 samples are NaN. What is not known
        at all is left out, such as standard errors from fewer than 32 samples.
    """

    data: xarray.Dataset

    @property
    def sizes(self) -> np.ndarray:
        """Numbers of training samples, (size,)."""
        return self.data["size"].values

    @property
    def mse_test(self) -> np.ndarray:
        """Mean squared error on samples outside of the training set, ([time,] size[, output])."""
        return self.data["mse_test"].values

    @property
    def mse_train(self) -> np.ndarray:
        """Mean squared error on the training set, ([time,] size[, output])."""
        known = self.data.get("mse_train")
        return np.full_like(self.mse_test, np.nan) if known is None else known.values

    @property
    def extrapolated_from(self) -> int:
        """The number of samples from which on the curve is extrapolated."""
        return int(self.data.attrs["extrapolated_from"])

    def _figure(self) -> Figure:
        """Draw errors against samples, and the alignment of the targets with the modes."""
        from largen.plots import learning_curve_figure

        return learning_curve_figure(self.data)

    def __repr__(self) -> str:
        data, given = self.data, self.data.attrs
        if "output" in data.dims:
            squares = [n for n in data.data_vars if str(n).endswith("_error")]
            data = data.assign({n: data[n] ** 2 for n in squares}).mean("output")
            outputs = self.data.sizes["output"]
            data = data.assign({n: np.sqrt(data[n] / outputs) for n in squares})
        lines = [f"LearningCurve: {given['kernel']}, {given['samples']} samples given"]
        lines[0] += f", ridge {given['ridge']:.3g}"
        if "time" in data.dims:
            data = data.isel(time=-1)
            lines[0] += f"; time {float(data['time']):.4g}, the last of {self.data.sizes['time']}"
        cells = [["samples", "error", "standard error", "measured", "standard error", ""]]
        for at in data["size"].values:
            row = data.sel(size=at)
            names = ("mse_test", "mse_test_error", "measured_test", "measured_test_error")
            cells.append([str(at), *(_shown(row, name) for name in names)])
            cells[-1].append("extrapolated" if at >= self.extrapolated_from else "")
        lines += [f"  {line}" for line in aligned(cells)]
        for name, words in _OF_ALL.items():
            if name in data:
                lines.append(f"  {words}  {float(data[name]):.4g}")
        return "\n".join(lines)


def _shown(row: xarray.Dataset, name: str) -> str:
    if name not in row or not np.isfinite(row[name]):
        return ""
    return f"{float(row[name]):.2g}" if name.endswith("_error") else f"{float(row[name]):.4g}"


@interruptible()
def learning_curve(  # noqa: PLR0913  (data, and options of the model and the fit)
    net: Any,
    x: Any = None,
    y: Any = None,
    *,
    sizes: Any = None,
    kernel: str = "ntk",
    noise: float = 0.0,
    ridge: float = 0.0,
    time: Any = None,
    measure: int = 0,
    key: Any = 0,
    mask: Any = None,
    param: Parameterization | None = None,
) -> LearningCurve:
    """Predict the errors of training on any number of samples, from one kernel of M samples.

    Trained on n samples with the ridge δ, the predictor is k(x, X)(K + δ)⁻¹y; trained by gradient
    flow for a time t it is k(x, X)(K + δ)⁻¹(1 − e^{−(K + δ)t/n})y. For random choices of n of the M
    samples the mean squared error on the others is

        E(n) = p (dμ/dδ) · mean over i of [(K + μ)⁻¹y]_i²/[(K + μ)⁻¹]_ii²,   p = n/M,
        μ = δ + (1 − p) · mean over i of 1/[(K + μ)⁻¹]_ii,

    the leave-one-out error of all M samples at an effective ridge μ (derived for largen, by the
    coherent potential), which one eigendecomposition of K gives for all n, δ and, by inverse
    Laplace transform in δ, t. For M → ∞ and equal samples it is, with L_i = λ_i/(λ_i + κ),
    E = Σ v_i² κ²/(λ_i + κ)²/(1 − Σ L_i²/n), Σ L_i + δ/κ = n, κ = μ/M (Bordelon, Canatar and
    Pehlevan 2020, eq. (4); Simon et al. 2023). Samples that differ, as in standardised tables, or
    that come in groups, change it. So E is multiplied by its ratio to the leave-one-out error of
    random blocks of n + 1 samples, which is E(n) in the mean, for n up to 450 and M/2 − 1; beyond,
    the logarithm of the ratio falls to 0 at M, in proportion to log M/n. As subsets of M
    independent samples are themselves independent samples, E(n) estimates the error on new
    samples. From M samples on, the curve is a power law E(n) = a + b n^(−c), a ≥ 0, fitted to it
    from M/4 to M − 1.

    Of more than 6000 samples E(n) is the mean over disjoint random parts of at most 4000. Larger n
    have the leave-one-out errors of parts between and of all samples, by Cholesky's factorisation,
    and the curve between is straight in log n and log E. In finite times, where the kernel is
    singular to rounding, and where more than 30 000 samples or too little memory are there for it,
    the curve goes on from the parts' size as a power law.

    Parameters
    ----------
    net
        The architecture, whose mean prediction over initialisations is meant; or a kernel matrix of
        the samples, (sample, sample), and no ``x``.
    x, y
        The samples that are labelled, (sample, input) or (sample, *space, channel), and targets,
        (sample,) or (sample, output); at least 2. They should be independent draws of what
        predictions are wanted for. Classes are targets such as ±1, or a column of 0 and 1 for
        each of them; errors are mean squares, not fractions of wrong classes.
    sizes
        Numbers n of training samples; by default eight up to M − 1, and 2M, 5M and 10M for M ≥ 16.
    kernel
        ``"ntk"``, networks trained by gradient descent in the kernel limit, or ``"nngp"``, of which
        only read-outs are trained.
    noise
        σ², the variance of additional noise of all targets, in training and in the errors; 0 if
        ``y`` has all noise that there is.
    ridge
        δ ≥ 0, which is added to the diagonal of the training kernel as it is, whatever n.
    time
        η₀t > 0 of gradient flow on the loss (1/n) Σ ½(f − y)², one number, or (time,) for an axis
        of times; None and infinity are ridge regression.
    measure
        Number of random subsets of each size on which regression is done in fact, for comparison;
        none by default. Their cost grows as n³.
    key
        Random key or seed, of these subsets, and of the parts of the samples from which standard
        errors are computed.
    mask, param
        As in :func:`largen.posterior`.

    Returns
    -------
    LearningCurve
        ``mse_test`` with ``mse_test_error``, the standard error due to M being finite, from the
        curves of disjoint parts of the samples: of halves, and from 2000 samples on of fifths.
        Where a curve is extrapolated it includes how much those of parts differ from that of all.
        Errors of several outputs are their own.

    Raises
    ------
    InvalidInput
        For wrong shapes, NaN, sizes beyond M − 1 if M < 16, or a matrix that is no kernel.
    NoTheory
        In parameterizations whose features move, as in :func:`largen.posterior`.
    OutOfMemory
        If the kernel does not fit into memory.

    Notes
    -----
    On scikit-learn's digits and breast cancer, MNIST and Fashion-MNIST, n = 50 … M/3 and three
    times, errors are within 4 % of those measured, of which 1 to 2 % is the blocks' noise. Without
    the ratio they were up to 35 % low, and 11 % on digits at n = 600 by the equation for M → ∞.
    Without a ridge, near n = rank K, where the error diverges, it is only qualitatively right. A
    curve with a peak is no power law, and cannot be extrapolated: pass a ridge.

    4000 samples of MNIST take 16 s of a processor, 8000 take 25 s, with errors within 1.5 % of
    those of one eigendecomposition, which takes 88 s; 20 000 take 4 minutes and 7 GB.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.random.default_rng(0).standard_normal((200, 3))
    >>> y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    >>> found = lg.regression.learning_curve(
    ...     lg.mlp(1, "relu", bias_std=0.5), x, y, sizes=[20, 80, 400]
    ... )
    >>> bool(np.all(np.diff(found.mse_test) < 0)), found.extrapolated_from
    (True, 200)
    """
    of = given(net, x, y, kernel, mask, param)
    columns, M = of.columns, len(of.columns)
    sizes = _sizes(sizes, M)
    sigma2, delta = real("noise", noise, at_least=0.0), real("ridge", ridge, at_least=0.0)
    draws, times = integer("measure", measure, at_least=0), times_of(time)
    rng = generator(key)
    facts = {"samples": M, "ridge": delta, "noise": sigma2, "extrapolated_from": M}
    every = np.atleast_1d(times)
    kernel_of: Any
    if M > LARGE:
        kernel_of, words = of.entries(net, kernel, param)
        found = predict_large(kernel_of, columns, sigma2, sizes, every, delta, rng)
        errors, alone = found.curve, found.alone
        facts["extrapolated_from"] = found.reach
    else:
        matrix, words = of.matrix(net, kernel, param)
        kernel_of = Matrix(matrix)
        pool = pool_of(matrix, columns, sigma2)
        errors = predict(pool, matrix, columns, sizes, every, delta, rng)
        alone = {
            "leave_one_out": leave_one_out(pool, delta),
            "cross_validation": generalised(pool, delta),
            "eigenvalue": pool.values / M,
            "power": pool.amplitudes**2 / M,
        }
    names = "mse_test", "mse_test_error", "mse_train"
    arrays: dict[str, np.ndarray] = dict(zip(names, errors, strict=True))
    if draws:
        within = [n for n in sizes if n < M]
        of_draws = measured_by_draws(kernel_of, columns, within, times, delta, sigma2, draws, rng)
        for name, values in of_draws._asdict().items():
            whole = np.full(errors.test.shape, np.nan)
            whole[:, [n < M for n in sizes]] = values
            arrays[f"measured_{name}"] = whole
    if "power" in alone:
        total = np.mean(columns**2, axis=0)
        alone["alignment"] = np.cumsum(alone["power"], axis=0) / np.where(total > 0, total, 1)
    facts = {"kernel": words, **facts}
    return LearningCurve(_dataset(sizes, times, of.several, arrays, alone, facts))


def _sizes(sizes: Any, M: int) -> list[int]:
    if sizes is None:
        within = np.geomspace(min(max(M // 50, 2), M - 1), M - 1, _SIZES)
        beyond = [k * M for k in _MULTIPLES] if M >= _FEWEST_MULTIPLIED else []
        return sorted({*(int(round(n)) for n in within), *beyond})
    numbers = different("sizes", sizes)
    if max(numbers) >= M < _FEWEST_MULTIPLIED:
        raise InvalidInput(
            f"sizes: wanted numbers below {M}, as many samples as there are, got {max(numbers)}; "
            f"curves are extrapolated from {_FEWEST_MULTIPLIED} samples on."
        )
    return numbers


def _dataset(
    sizes: list[int],
    times: Any,
    several: bool,
    arrays: dict[str, np.ndarray],
    alone: dict[str, np.ndarray],
    given: dict[str, Any],
) -> xarray.Dataset:
    import xarray

    out = ("output",) if several else ()
    lead = ("time",) if np.ndim(times) else ()
    keep = (slice(None) if lead else 0, ..., slice(None) if several else 0)
    known = {name: values for name, values in arrays.items() if np.isfinite(values).any()}
    variables: dict[str, Any] = {k: ((*lead, "size", *out), a[keep]) for k, a in known.items()}
    for name, values in alone.items():
        axes, one = _ALONE[name], "output" in _ALONE[name] and not several
        variables[name] = (axes[:-1], values[..., 0]) if one else (axes, values)
    coordinates: dict[str, Any] = {"size": np.asarray(sizes)}
    if lead:
        coordinates["time"] = times
    return xarray.Dataset(variables, coordinates, given)
