"""From the lazy to the rich regime: movement of features and kernels against γ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput, instance_of
from largen.networks import FiniteNetwork, train_and_measure
from largen.networks.ensembles import MOST_SEEDS
from largen.networks.tangent import kernels, probe
from largen.results import Result, with_labels
from largen.runs import Run
from largen.scalars import integer, random_key, real

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

QUANTITIES = {
    "features": "movement of features, |φ(k) − φ(0)| / |φ(0)|",
    "feature_kernel": "movement of feature kernels, |Φ(k) − Φ(0)| / |Φ(0)|",
    "ntk": "movement of the NTK, |K(k) − K(0)| / |K(0)|",
}


@cites("pehlevan2023lecture", "hanin2026primer")
class Regimes(Result):
    """Movement against γ at several widths; made by :func:`feature_movement`."""

    def __init__(self, dataset: xarray.Dataset):
        self._dataset = dataset

    @classmethod
    def from_xarray(cls, dataset: xarray.Dataset) -> Regimes:
        """Return the result that :meth:`to_xarray` turned into a data set."""
        return cls(dataset)

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return ``features``, ``feature_kernel``, ``ntk`` over ``width`` and ``gamma``.

        Each with its standard error ``*_error``, and the coordinate ``gamma0`` = γ/√N.
        """
        return self._dataset.copy()

    def spread(self, quantity: str = "features", *, scaled: bool) -> float:
        """Return the factor by which widths differ, at equal γ or, if ``scaled``, at equal γ/√N.

        The geometric root mean square of the ratios between neighbouring widths, interpolated
        where their ranges overlap; 1 for curves that collapse, NaN without overlap, or if nothing
        moves.
        """
        d = self._dataset
        if not d[quantity].all():
            return float("nan")
        places = d["gamma0"] if scaled else d["gamma"].broadcast_like(d["gamma0"])
        x, y = np.log(places.values), np.log(d[quantity].values)
        apart: list[float] = []
        for one in range(len(x) - 1):
            both = (x[one + 1] >= x[one].min() - 1e-9) & (x[one + 1] <= x[one].max() + 1e-9)
            apart += list(y[one + 1][both] - np.interp(x[one + 1][both], x[one], y[one]))
        return float(np.exp(np.sqrt(np.mean(np.square(apart))))) if apart else float("nan")

    def _figure(self) -> Figure:
        """Draw each movement against γ and against γ/√N."""
        from largen.plots import regimes_figure

        return regimes_figure(self._dataset, QUANTITIES)

    def __str__(self) -> str:
        d = self._dataset
        lines = [f"{d.attrs['run']}; {d.attrs['seeds']} networks of each width and γ"]
        for name, what in QUANTITIES.items():
            lines.append(what)
            lines.append("      γ " + "".join(f"  N = {n:<8}" for n in d["width"].values))
            for i, gamma in enumerate(d["gamma"].values):
                cells = d[name].values[:, i]
                lines.append(f"{gamma:7.4g} " + "".join(f"  {cell:<12.3g}" for cell in cells))
            equal, scaled = (self.spread(name, scaled=s) for s in (False, True))
            lines.append(
                f"widths differ by a factor of {equal:.3g} at equal γ, {scaled:.3g} at equal γ/√N"
                if d[name].all()
                else "nothing moves in some of the networks"
            )
        return "\n".join(lines)

    __repr__ = __str__


def feature_movement(
    run: Run,
    gammas: Sequence[float],
    widths: Sequence[int],
    *,
    seeds: int = 8,
    key: Any = 0,
    progress: Any = None,
) -> Regimes:
    """Measure how far features and kernels move in training, against γ at several widths.

    With f = w·φ/(γ√N) and rates ∝ γ², features move as γ/√N (Pehlevan and Bordelon's lecture
    notes, §4.1.3; Hanin's primer, §3.2.3): they are frozen for γ of order one, the lazy regime,
    and change at order one for γ ∝ √N, the rich regime. Curves for different widths collapse as
    functions of γ/√N.

    Outputs start at order 1/γ; for γ < 1 the network first unlearns them, and curves do not
    collapse there. Kernels, averages over neurons, move as γ²/N in the mean, but with noise of
    order γ/N in a single network: their curves collapse for γ ≫ 1.

    Parameters
    ----------
    run
        The run to train. Its parameterization gives the powers; γ replaces its γ₀Nᵈ.
    gammas
        The values of γ, positive, at least two; the same at every width. If they and the square
        roots of the widths are powers of one number, points coincide at equal γ/√N.
    widths
        At least two.
    seeds
        Networks of each width and γ, at least 2.
    key
        ``jax.random.key(seed)`` or an integer.
    progress
        As in :func:`largen.train`.

    Returns
    -------
    Regimes
        Prints as tables; ``.spread(quantity, scaled=…)``, ``.to_xarray()``, ``.plot(path)``.
        Movements are root mean squares over samples, layers and networks, relative to those at
        the start, on training inputs.

    Raises
    ------
    InvalidInput
        If the parameterization starts from a reference network.
    NumericalFailure
        If a network diverged.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 3))
    >>> data = lg.Dataset(x, np.sign(x[:, 0]))
    >>> run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), data, optimizer=lg.gd(lr=0.5), steps=5)
    >>> regimes = lg.training.feature_movement(run, gammas=[4, 8], widths=[64, 256], seeds=8, key=0)
    >>> regimes.spread(scaled=True) < 1.2 < 1.5 < regimes.spread(scaled=False)
    True
    """
    instance_of("run", run, Run, "an lg.Run")
    run.check_one_output("lg.training.feature_movement")
    if run.param.reference is not None:
        raise InvalidInput(
            f"run: γ of {run.param} is its reference network's; use lg.ntk() or lg.mean_field()."
        )
    gamma = sorted({real("gammas", value, above=0) for value in _as_list("gammas", gammas)})
    width = sorted({integer("widths", n, at_least=1) for n in _as_list("widths", widths)})
    for name, values in (("gammas", gamma), ("widths", width)):
        if len(values) < 2:
            raise InvalidInput(f"{name}: wanted at least two different values, got {values!r}.")
    seeds, key = integer("seeds", seeds, at_least=2, at_most=MOST_SEEDS), random_key(key)

    squares = {name: np.zeros((len(width), len(gamma), seeds)) for name in QUANTITIES}
    measure = _Movement(len(run.data.x_train))
    for i, n in enumerate(width):
        for j, value in enumerate(gamma):
            there = _at(run, value)
            movements = train_and_measure(
                there, n, measure, seeds=seeds, key=key, progress=progress
            )
            for name in QUANTITIES:
                squares[name][i, j] = movements[name]
    return Regimes(_dataset(run, np.array(width), np.array(gamma), squares))


class _Movement:
    """Relative mean squares of the movements on the first ``samples`` inputs."""

    def __init__(self, samples: int):
        self.samples = samples

    def __call__(self, network: FiniteNetwork, start: Any, end: Any, x: Any) -> dict[str, Any]:
        import jax

        x = x[: self.samples]
        before, after = (probe(network, params, x) for params in (start, end))
        # The inputs of the affine maps after the first, φ(h), in order.
        phi, moved = (
            [its for _, its in network.module.inputs_in(network_at.capture)[1:]]
            for network_at in (before, after)
        )
        old, new = (kernels(network, network_at, network_at) for network_at in (before, after))

        def relative(old: Any, new: Any) -> Any:
            change = sum(((a - b) ** 2).mean() for a, b in zip(new, old, strict=True))
            size = sum((b**2).mean() for b in old)
            still = (size == 0) & (change == 0)  # all neurons are dead, before and after
            return jax.numpy.where(still, 0, change / jax.numpy.where(still, 1, size))

        return {
            "features": relative(phi, moved),
            "feature_kernel": relative([old.features], [new.features]),
            "ntk": relative([old.tangent], [new.tangent]),
        }


def _at(run: Run, gamma: float) -> Run:
    d = run.param.d - run.param.canonical_d
    param = replace(run.param, name=f"{run.param.name} at γ", d=d, gamma=gamma)
    return run.with_changes(param=param)


def _as_list(name: str, values: Any) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise InvalidInput(f"{name}: wanted a list of numbers, got {values!r}.") from None


def _dataset(
    run: Run, width: np.ndarray, gamma: np.ndarray, squares: dict[str, np.ndarray]
) -> xarray.Dataset:
    import xarray

    variables: dict[str, Any] = {}
    for name, values in squares.items():
        root = np.sqrt(values.mean(2))
        noise = values.std(2, ddof=1) / np.sqrt(values.shape[2])
        variables[name] = (("width", "gamma"), root)
        error = noise / (2 * np.where(root > 0, root, 1))  # 0 where nothing moves
        variables[f"{name}_error"] = (("width", "gamma"), error)
    gamma0 = gamma[None] / np.sqrt(width)[:, None]
    seeds = next(iter(squares.values())).shape[2]
    return xarray.Dataset(
        variables,
        {"width": width, "gamma": gamma, "gamma0": (("width", "gamma"), gamma0)},
        {"run": repr(run), "net": repr(run.net), "seeds": seeds},
    )
