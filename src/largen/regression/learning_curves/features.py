"""Errors of random features against samples and features, as users call them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.interrupts import check, interruptible
from largen.parameterizations import Parameterization
from largen.regression.learning_curves.best_ridge import Best, best, points
from largen.regression.learning_curves.inputs import different, given, times_of
from largen.regression.learning_curves.mean_squares import mean_squares
from largen.regression.learning_curves.measured import generator, measure_features
from largen.regression.learning_curves.pool import Pool, pool_with_modes
from largen.regression.learning_curves.population import Population
from largen.regression.learning_curves.predicted import FEWEST, halves, halvings_of
from largen.regression.learning_curves.spectrum import Spectrum
from largen.results import DataResult
from largen.scalars import integer, real
from largen.text import aligned

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

_SIZES, _WIDTHS = 3, 13  # by default


@cites("simon2024more", "atanasov2024scaling", "bordelon2020spectrum")
@dataclass(frozen=True, repr=False)
class RandomFeatureCurve(DataResult):
    """Errors against samples and random features; made by :func:`random_feature_curve`.

    Attributes
    ----------
    data
        ``mse_test`` and ``mse_train`` over ``([time,] size, width[, output])``, with
        ``mse_test_error`` and the same ``measured_…`` where they are known; ``best_ridge (size,
        width)`` of ridge regression, ``best_mse (size, width[, output])`` with it, and
        ``peak_width (size)``, the number of features at which the error of ridge regression with
        the ridge that was given has a maximum, NaN if it has none, and left out if there is none
        at all.
    """

    data: xarray.Dataset

    @property
    def mse_test(self) -> np.ndarray:
        """Mean squared error on new samples, ([time,] size, width[, output])."""
        return self.data["mse_test"].values

    @property
    def best_ridge(self) -> np.ndarray:
        """The ridge δ with the smallest mean error over outputs, (size, width)."""
        return self.data["best_ridge"].values

    @property
    def peak_width(self) -> np.ndarray:
        """The number of features with the largest error, (size,); n without a ridge."""
        known = self.data.get("peak_width")
        return np.full(self.data.sizes["size"], np.nan) if known is None else known.values

    def _figure(self) -> Figure:
        """Draw errors against features, and the best ridges."""
        from largen.plots import random_feature_figure

        return random_feature_figure(self.data)

    def __repr__(self) -> str:
        data, facts = self.data, self.data.attrs
        if "output" in data.dims:
            data = data.mean("output")
        head = f"RandomFeatureCurve: {facts['kernel']}, ridge {facts['ridge']:.3g}"
        if "time" in data.dims:
            data = data.isel(time=-1)
            head += f"; time {float(data['time']):.4g}, the last of {self.data.sizes['time']}"
        widths = [int(k) for k in data["width"].values]
        cells = [["samples", *(f"{k} features" for k in widths), "peak at"]]
        for n in data["size"].values:
            row = data.sel(size=n)
            errors = [f"{float(e):.4g}" for e in row["mse_test"].values]
            peak = float(row.get("peak_width", np.nan))
            cells.append([str(n), *errors, f"{peak:.0f}" if np.isfinite(peak) else ""])
            rest = [f"{float(e):.4g}" for e in row["best_mse"].values]
            cells.append(["  best ridge", *rest, ""])
        return "\n".join([head, *(f"  {line}" for line in aligned(cells))])


@interruptible()
def random_feature_curve(  # noqa: PLR0913  (data, and options of the model and the fit)
    net: Any,
    x: Any = None,
    y: Any = None,
    *,
    sizes: Any = None,
    widths: Any = None,
    noise: float = 0.0,
    ridge: float = 0.0,
    time: Any = None,
    measure: int = 0,
    key: Any = 0,
    mask: Any = None,
    param: Parameterization | None = None,
) -> RandomFeatureCurve:
    """Predict the errors of training the read-out of k random features on n samples.

    A network of width k whose hidden weights stay random has the kernel S = (1/k) Σ_j f_j f_jᵀ of
    its k neurons, whose mean is the NNGP kernel K. Regression with the ridge δ on n samples then
    has, for a population with eigenvalues λ_i of K and mean squares v_i² of the targets in its
    modes (the result of Simon et al. 2024 and Atanasov et al. 2024; derived for largen),

        E = [Σ (κ²/(λ_i + κ)² + κλ_i/(λ_i + κ)² (z − q)/(k − q)) v_i² + σ²]/D,
        D = 1 − (q(k − 2z) + z²)/(n(k − q)),
        δ = κ(n − z)(k − z)/k,   z = Σ L_i < min(n, k),   q = Σ L_i²,   L_i = λ_i/(λ_i + κ),

    which is that of :func:`learning_curve` for k → ∞. It is derived from two deterministic
    equivalents: n samples make of δ the ridge s = δ/(n − z) on the population of S, where errors
    are [s²v·(S + s)⁻²v + σ²]/(1 − tr S²(S + s)⁻²/n), and k features make of s(S + s)⁻¹ the matrix
    κ(K + κ)⁻¹ with κ(1 − z/k) = s, whose derivatives by s are the squares. The error has a peak at
    k = n, which a ridge lowers, and no minimum in k if the ridge is the best one. From M samples it
    is computed for random n of them as in :func:`learning_curve`, for samples that differ, and with
    times by the inverse Laplace transform of products at two ridges.

    Parameters
    ----------
    net
        The architecture, whose NNGP kernel is K; a kernel matrix of the samples, (sample, sample),
        and no ``x``; or a :class:`Spectrum`, and neither ``x`` nor ``y``.
    x, y
        Samples, (sample, input) or (sample, *space, channel), and targets, (sample,) or (sample,
        output); independent draws of what predictions are wanted for.
    sizes
        Numbers n of training samples, below M; by default M/8, M/4 and M/2.
    widths
        Numbers k of features; by default 13 from 4 to 16 times the largest n.
    noise
        σ², the variance of additional noise of all targets; that of a :class:`Spectrum` is its own.
    ridge
        δ ≥ 0, added to the diagonal of the training kernel S.
    time
        η₀t > 0 of gradient flow as in :func:`learning_curve`; None is ridge regression.
    measure
        Number of draws of n samples and of k Gaussian features with the covariance K, on which
        regression is done in fact, for comparison; none by default.
    key
        Random key or seed of these draws, and of the halves of the samples from which standard
        errors are computed.
    mask, param
        As in :func:`largen.posterior`.

    Returns
    -------
    RandomFeatureCurve
        ``mse_test_error`` is the standard error due to M being finite, from halves of the samples,
        for n < M/2.

    Raises
    ------
    InvalidInput
        For wrong shapes, NaN, sizes beyond M − 1, a matrix that is no kernel, or as many features
        as samples without a ridge.
    NoTheory
        In parameterizations whose features move, as in :func:`largen.posterior`.
    OutOfMemory
        If the kernel does not fit into memory.

    Notes
    -----
    Samples have one effective ridge, not their own as in :func:`learning_curve`: where they differ
    much errors are too low. Features count by their covariance alone, as if they were Gaussian.
    Layers before the last hidden one are taken as infinitely wide, and a read-out's bias as one
    more random feature. The theory is asymptotic in n and k. Without a ridge the error at k = n has
    no mean, and is refused.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> i = np.arange(1, 1001.0)
    >>> task = lg.regression.Spectrum(i**-1.5, i**-1.6, noise=0.05)
    >>> found = lg.regression.random_feature_curve(
    ...     task, sizes=[100], widths=[20, 90, 500], ridge=1e-3
    ... )
    >>> found.mse_test.round(2), found.peak_width.round()
    (array([[0.73, 1.72, 0.31]]), array([99.]))
    """
    delta, times = real("ridge", ridge, at_least=0.0), times_of(time)
    draws, sigma2 = integer("measure", measure, at_least=0), real("noise", noise, at_least=0.0)
    wanted = None if widths is None else different("widths", widths)
    matrix = columns = None
    modes: Pool | Population
    if isinstance(net, Spectrum):
        _only_a_spectrum(x=x, y=y, mask=mask, param=param, noise=sigma2 or None)
        if draws:
            raise InvalidInput("measure: a spectrum has no samples to draw; give a kernel matrix.")
        modes, several, words = net.population, net.power.ndim == 2, "a given spectrum"
        numbers = different("sizes", [] if sizes is None else sizes)
        net.check_samples("sizes", max(numbers))
        rng = generator(key)
    else:
        of = given(net, x, y, "nngp", mask, param)
        columns, several = of.columns, of.several
        numbers = _sizes(sizes, len(columns))
        rng = generator(key)
        matrix, words = of.matrix(net, "nngp", param)
        modes = pool_with_modes("net" if x is None else "x", matrix, columns, sigma2)
    every = np.atleast_1d(times)
    features = _widths(wanted, numbers, modes.rank if delta == 0 and np.inf in every else 0)
    test, train = _curve(modes, numbers, features, every, delta)
    arrays = {"mse_test": test, "mse_train": train}
    if isinstance(modes, Pool) and matrix is not None and columns is not None:
        arrays["mse_test_error"] = _standard_error(
            modes, matrix, columns, (numbers, features, every, delta), rng
        )
        if draws:
            of_draws = measure_features(modes, columns, numbers, features, every, delta, draws, rng)
            arrays |= {f"measured_{name}": a for name, a in of_draws._asdict().items()}
    optimum = best(modes, numbers, features, delta)
    facts = {"kernel": words, "ridge": delta, "noise": modes.noise}
    axes = numbers, features, times
    return RandomFeatureCurve(_dataset(axes, several, arrays, optimum, facts))


def _only_a_spectrum(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise InvalidInput(f"{name}: is not used with a Spectrum, which has all of the task.")


def _widths(widths: list[int] | None, sizes: list[int], rank: int) -> list[int]:
    """Return numbers of features; those that are also sizes below a rank have no error."""
    if widths is None:
        default = {int(round(k)) for k in np.geomspace(4, 16 * max(sizes), _WIDTHS)}
        return sorted(default - {n for n in sizes if n < rank})
    same = [n for n in sizes if n in widths and n < rank]
    if same:
        raise InvalidInput(
            f"widths: without a ridge the mean error of {same[0]} features on as many samples is "
            "infinite; pass a ridge, or leave out this width."
        )
    return widths


def _sizes(sizes: Any, M: int) -> list[int]:
    if sizes is None:
        return sorted({min(max(M // 2**i, 1), M - 1) for i in range(1, _SIZES + 1)})
    numbers = different("sizes", sizes)
    if max(numbers) >= M:
        raise InvalidInput(
            f"sizes: wanted numbers below {M}, as many samples as there are, got {max(numbers)}."
        )
    return numbers


def _curve(
    modes: Pool | Population, sizes: list[int], widths: list[int], times: np.ndarray, ridge: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return errors on new samples and on the training set, (time, size, width, output)."""
    n, k = (a.ravel().astype(float) for a in np.meshgrid(sizes, widths, indexing="ij"))
    found = []
    for time in times:
        if np.isinf(time):
            found.append(points(modes, n, k, np.full(len(n), ridge)))
            continue
        each = []
        for a, b in zip(n, k, strict=True):
            check()
            each.append(mean_squares(modes, a, ridge, time, width=b))
        found.append(tuple(np.array(pair) for pair in zip(*each, strict=True)))
    shape = (len(times), len(sizes), len(widths), -1)
    test, train = (np.reshape([f[i] for f in found], shape) for i in range(2))
    return test, train


def _standard_error(
    pool: Pool, kernel: np.ndarray, y: np.ndarray, case: tuple[Any, ...], rng: np.random.Generator
) -> np.ndarray:
    """Return half the root mean square difference of halves of the samples, NaN from M/2 on."""
    sizes, widths, times, ridge = case
    M = pool.size
    square = np.full((len(times), len(sizes), len(widths), y.shape[1]), np.nan)
    within = [n for n in sizes if n < M // 2]
    if M < 2 * FEWEST or not within:
        return square
    square[:, : len(within)] = 0
    for pair in halves(pool, kernel, y, rng):
        first, second = (_curve(half, within, widths, times, ridge)[0] for half in pair)
        apart = np.where(np.isinf(first) | np.isinf(second), np.nan, first) - second
        square[:, : len(within)] += apart**2 / 4 / halvings_of(M)
    return np.sqrt(square)


def _dataset(
    axes: tuple[list[int], list[int], Any],
    several: bool,
    arrays: dict[str, np.ndarray],
    optimum: Best,
    facts: dict[str, Any],
) -> xarray.Dataset:
    import xarray

    sizes, widths, times = axes
    out, lead = ("output",) if several else (), ("time",) if np.ndim(times) else ()
    keep = (slice(None) if lead else 0, ..., slice(None) if several else 0)
    grid = ("size", "width")
    variables: dict[str, Any] = {
        name: ((*lead, *grid, *out), a[keep]) for name, a in arrays.items() if not np.isnan(a).all()
    }
    variables["best_ridge"] = (grid, optimum.ridge)
    variables["best_mse"] = ((*grid, *out), optimum.error if several else optimum.error[..., 0])
    if np.isfinite(optimum.peak).any():
        variables["peak_width"] = ("size", optimum.peak)
    coordinates: dict[str, Any] = {"size": np.asarray(sizes), "width": np.asarray(widths)}
    if lead:
        coordinates["time"] = times
    return xarray.Dataset(variables, coordinates, facts)
