"""The loss after training against the learning rate, of a limit or of networks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from largen.bibliography import cites
from largen.errors import InvalidInput, instance_of
from largen.experiments.distances import chosen_samples
from largen.experiments.rate_drift import RateDrift, drift_of, some_widths
from largen.networks import train
from largen.progress import Report, reporter
from largen.results import Result, drawn, with_labels
from largen.runs import Run, Theory, Trajectory
from largen.scalars import integer, real, sequence
from largen.theories import by_name, choose, solve
from largen.theories.registry import options_of

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

GOOD = 1.1  # times the smallest loss


@cites("bordelon2023depthwise")
@dataclass(frozen=True, repr=False)
class LearningRateCurve(Result):
    """Losses after training against the learning rate; made by :func:`learning_rate_curve`.

    Attributes
    ----------
    rates
        η₀, ``(rate,)``, increasing.
    losses
        The loss of the limit, or its mean over networks, ``(rate,)``; NaN where training diverged.
    errors
        Their standard errors; NaN where they are not known.
    initial
        The loss before training.
    of
        A description of the trained network or the solved limit.
    on
        ``"train"`` or ``"test"``: the samples of the loss.
    width
        N of the networks; None for a limit.
    of_networks
        The loss of each network, ``(rate, seed)``; None for a limit.
    unstable
        Where training failed, ``(rate,)``; None if ``losses`` say it, those of training samples.
    """

    rates: np.ndarray
    losses: np.ndarray
    errors: np.ndarray
    initial: float
    of: str
    on: str
    width: int | None = None
    of_networks: np.ndarray | None = None
    unstable: np.ndarray | None = None

    @property
    def diverged(self) -> np.ndarray:
        """Where training diverged, or left the training loss above its initial value."""
        lost = ~(self.losses <= self.initial) if self.unstable is None else self.unstable
        return lost | np.isnan(self.losses)

    @property
    def optimum(self) -> float:
        """The rate of the smallest loss, by a parabola in logarithms; NaN if all diverge.

        At an end of the rates, that end: then the optimum may lie beyond it.
        """
        return self._best()[0]

    @property
    def good(self) -> tuple[float, float]:
        """The rates between which the loss is within a tenth of the smallest loss on the grid.

        Interpolated in logarithms; an end of the grid if the loss is still that small there.
        """
        usable = np.flatnonzero(~self.diverged)
        if not len(usable):
            return np.nan, np.nan
        best = usable[np.argmin(self.losses[usable])]
        x, y = np.log(self.rates), np.log(np.where(self.diverged, np.inf, self.losses))
        level = np.log(GOOD) + y[best]

        def crossing(step: int) -> float:
            i = best
            while 0 <= i + step < len(x) and y[i + step] <= level:
                i += step
            beyond = i + step
            if not 0 <= beyond < len(x) or not np.isfinite(y[beyond]):
                return float(self.rates[i])
            share = (level - y[i]) / (y[beyond] - y[i])
            return float(np.exp(x[i] + max(share, 0.0) * (x[beyond] - x[i])))

        return min(crossing(-1), self.optimum), max(crossing(1), self.optimum)

    @property
    def threshold(self) -> tuple[float, float]:
        """The largest stable rate, and the next one, at which training diverges.

        ∞ for the latter if none diverges, 0 for the former if all do.
        """
        bad = np.flatnonzero(self.diverged)
        if not len(bad):
            return float(self.rates[-1]), np.inf
        first = bad[0]
        return (float(self.rates[first - 1]) if first else 0.0), float(self.rates[first])

    def _best(self) -> tuple[float, float]:
        """Return the best rate and the logarithm of its loss."""
        usable = ~self.diverged
        if not usable.any():
            return np.nan, np.nan
        x, y = np.log(self.rates), np.log(np.where(usable, self.losses, np.inf))
        i = int(np.argmin(y))
        near = slice(i - 1, i + 2)
        if i in (0, len(x) - 1) or not np.isfinite(y[near]).all():
            return float(self.rates[i]), float(y[i])
        a, b, c = np.polyfit(x[near] - x[i], y[near], 2)
        return float(np.exp(x[i] - b / (2 * a))), float(c - b**2 / (4 * a))

    def drift(self, widths: Iterable[int], networks: LearningRateCurve) -> RateDrift:
        """Return how far the best rate of networks of other widths is from that of this limit.

        Networks of width n have the mean loss ℓ_n(η) = ℓ_∞(η) + c(η)/n + …, and c = m(ℓ_m − ℓ_∞)
        comes from a curve of networks of one small width m. The whole curve ℓ_∞ + c/n is minimised:
        for small drifts this is δ log η = −c'/(nℓ_∞''), but where ℓ_∞ is flat the drift is large.
        The gap c/n at a transferred rate is of first order in 1/n and the excess over the best
        rate, c'²/(2n²ℓ_∞''), of second: this is why rates transfer and losses do not. The minimum
        is followed from that of the limit; others, beyond an instability, are not taken. Losses are
        interpolated between the rates: take neighbours within a fifth of each other.

        For 16 of scikit-learn's digits, one hidden layer of tanh and n = 16, networks drift by
        +0.015 ± 0.006 in :func:`largen.mup`, predicted 0.016, and by −0.50 ± 0.02 in
        :func:`largen.ntk`, predicted −0.54. :func:`largen.standard` has no limit at one rate:
        there :func:`largen.training.critical_rates` has the law.

        Parameters
        ----------
        widths
            n, one or several.
        networks
            The curve of networks at the same rates and samples, many of a small width m, such as
            ``learning_rate_curve(run, rates, width=32, seeds=300)``.

        Raises
        ------
        InvalidInput
            If this is not the curve of a limit, or ``networks`` not one of networks at the same
            rates and samples, or fewer than four of the rates are stable in both, or a smallest
            loss is at an end of these rates.
        """
        instance_of("networks", networks, LearningRateCurve, "an lg.LearningRateCurve")
        if self.width is not None:
            raise InvalidInput(f"drift: wanted the curve of a limit, this is of {self.of}.")
        if networks.width is None or networks.of_networks is None:
            raise InvalidInput(f"networks: wanted a curve of networks, got one of {networks.of}.")
        if not np.array_equal(self.rates, networks.rates) or self.on != networks.on:
            raise InvalidInput("networks: wanted the same rates and samples as those of the limit.")
        lost = np.flatnonzero(self.diverged | networks.diverged)
        usable = slice(0, lost[0] if len(lost) else len(self.rates))
        count = len(self.rates[usable])
        if count < 4:
            raise InvalidInput(
                f"networks: both curves are stable at the {count} lowest rates, wanted at least 4; "
                "take smaller rates."
            )
        n = np.array(some_widths(widths))
        return drift_of(
            self.rates[usable], self.losses[usable], networks.of_networks[usable], networks.width, n
        )

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return ``loss`` and ``loss_error`` over ``rate``, and ``loss_of_network``."""
        import xarray

        columns: dict[str, Any] = {
            "loss": ("rate", self.losses),
            "loss_error": ("rate", self.errors),
        }
        if self.of_networks is not None:
            columns["loss_of_network"] = (("rate", "seed"), self.of_networks)
        return xarray.Dataset(
            columns,
            {"rate": self.rates},
            {"of": self.of, "on": self.on, "initial_loss": self.initial, "optimum": self.optimum},
        )

    def plot(
        self,
        path: str | PathLike[str] | None = None,
        ax: Any = None,
        *,
        what: str | None = None,
        others: Sequence[LearningRateCurve] = (),
    ) -> Figure:
        """Draw the loss against the rate, and other curves; write the picture to ``path``.

        Parameters
        ----------
        path
            The file of the figure, if it is to be written.
        ax
            matplotlib axes in which the picture is drawn; by default in a new figure.
        what
            The name of a variable of ``to_xarray()`` that is drawn alone.
        others
            Further curves, such as those of finite networks.
        """
        from largen.plots import learning_rate_figure

        return drawn(self, lambda: learning_rate_figure([self, *others]), path, ax, what)

    def __repr__(self) -> str:
        title = f"{self.on} loss of {self.of} after training, at {len(self.rates)} rates"
        if self.diverged.all():
            lowest = f"{self.rates[0]:.4g}"
            return f"{title}\n  diverges   at all of them; rates below {lowest} may be stable"
        low, high = self.good
        stable, unstable = self.threshold
        loss = np.exp(self._best()[1])
        edge = " (an end of the rates)" if self.optimum in self.rates[[0, -1]] else ""
        where = f"between {stable:.4g} and {unstable:.4g}"
        return "\n".join(
            [
                title,
                f"  optimum    {self.optimum:.4g}{edge}, loss {loss:.4g}",
                f"  within 10% {low:.4g} to {high:.4g}",
                f"  diverges   {where if np.isfinite(unstable) else 'at none of the rates'}",
            ]
        )


def learning_rate_curve(
    run: Run,
    rates: Sequence[float] | ArrayLike,
    *,
    width: int | None = None,
    seeds: int = 8,
    key: Any = 0,
    on: str | None = None,
    progress: bool | Report | None = None,
    **options: Any,
) -> LearningRateCurve:
    """Return the loss after training against the learning rate η₀, at infinite or finite width.

    In a parameterization whose limit is reached, the best rate of the limit is that of large
    networks (Bordelon, Noci, Li, Hanin and Pehlevan, *Depthwise hyperparameter transfer in
    residual networks*): the limit is solved once for each rate, by one compiled program.

    Parameters
    ----------
    run
        The run; its rate is replaced by each of ``rates``, and schedules are kept.
    rates
        Two or more positive numbers.
    width
        N of networks to train instead of solving the limit.
    seeds
        How many networks.
    key
        The key of the networks, or of the limit's random matrices; the same for all rates.
    on
        Samples of the loss, ``"test"`` or ``"train"``; test by default if there are any.
    progress
        Whether to show a bar; by default in terminals, after two seconds.
    options
        Options of :func:`largen.solve`.

    Raises
    ------
    InvalidInput
        For gradient flow, which has no rate, or options of :func:`largen.solve` with a width.
    NoTheory
        If no theory covers the run.

    Notes
    -----
    In the kernel limit networks differ at random. For ``"mse"`` the loss is its mean over them,
    which adds half of the variance of outputs to the loss of the mean; for other losses, and under
    adaptive optimizers, it is the loss of the mean output.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(2, "linear"), lg.mean_field(), data, optimizer=lg.gd(1.0), steps=4)
    >>> curve = lg.learning_rate_curve(run, [0.25, 0.5, 1.0, 2.0, 4.0])
    >>> curve.diverged.tolist()
    [False, False, False, False, True]
    """
    instance_of("run", run, Run, "an lg.Run")
    on = chosen_samples(on, len(run.data.x_test) > 0)
    options.update(width=width, seeds=seeds, key=key, progress=progress)
    return learning_rate_curves(run, rates, **options)[on]


def learning_rate_curves(
    run: Run,
    rates: Sequence[float] | ArrayLike,
    *,
    width: int | None = None,
    seeds: int = 8,
    key: Any = 0,
    progress: bool | Report | None = None,
    **options: Any,
) -> dict[str, LearningRateCurve]:
    """Return curves of ``"train"`` and, with test samples, ``"test"`` from the same solutions."""
    if run.optimizer.continuous:
        raise InvalidInput(f"run: {run.optimizer} has no learning rate; take e.g. lg.gd(0.1).")
    tried = _sorted_rates(rates)
    if width is not None:
        width, seeds = integer("width", width, at_least=1), integer("seeds", seeds, at_least=1)
        if options:
            named = ", ".join(options)
            raise InvalidInput(f"{named}: of lg.solve, and width={width} trains networks.")
    else:
        options = _with_key(run, key, options)
    samples = ("train", "test") if len(run.data.x_test) else ("train",)
    solved, of = [], ""
    with reporter(progress, "learning rates") as report:
        for i, rate in enumerate(tried):
            report(i, len(tried))
            one = run.with_changes(optimizer=replace(run.optimizer, lr=float(rate)))
            if width is None:
                trained = solve(one, throw=False, **options)
                of = f"the limit ({trained.theory})"
            else:
                trained = train(one, width=width, seeds=seeds, key=key, throw=False)
                blocks = f" with {int(trained.depth)} blocks" if trained.depth else ""
                of = f"{seeds} networks of width {width}{blocks}"
            solved.append({on: (_losses(trained, on), _last(trained, on)) for on in samples})
        report(len(tried), len(tried))
    curves = {}
    for on in samples:
        losses, single = zip(*(one[on] for one in solved), strict=True)
        before, after, errors = np.array(losses).T
        sound = before[np.isfinite(before)]
        initial = float(sound[0]) if len(sound) else np.nan
        each = np.array(single) if width is not None else None
        # Test losses may rise in training that converges.
        unstable = curves["train"].diverged if on == "test" else None
        curves[on] = LearningRateCurve(tried, after, errors, initial, of, on, width, each, unstable)
    return curves


def _sorted_rates(rates: Any) -> np.ndarray:
    """Return learning rates in order, after checking that there are two or more."""
    tried = sequence("rates", rates, "a list of positive numbers")
    tried = np.array(sorted(real("rates", rate, above=0) for rate in tried))
    if len(tried) < 2 or (np.diff(tried) == 0).any():
        raise InvalidInput(f"rates: wanted two or more that differ, got {tried.tolist()}.")
    return tried


def _last(trained: Trajectory, on: str) -> np.ndarray:
    """Return the last loss of a limit, or of each network."""
    return getattr(trained, f"loss_{on}")[..., -1].astype(np.float64)


def _with_key(run: Run, key: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return options with the theory that is taken for all rates, and its key if it has one."""
    theory = options.get("theory")
    if isinstance(theory, Theory):
        return options
    if theory is None:
        theory = choose(run, [name for name in options if name != "theory"])[0]
    kind = by_name(theory) if isinstance(theory, str) else theory
    keyed = isinstance(kind, type) and "key" in options_of(kind)
    return {**({"key": key} if keyed else {}), **options, "theory": kind}


def _losses(trained: Trajectory, on: str) -> tuple[float, float, float]:
    """Return the loss before and after training, and the latter's error; NaN if it diverged."""
    curve = getattr(trained, f"loss_{on}").astype(np.float64)
    std = f"f_{on}_std"
    if trained.seeds is None and std in trained and trained.to_xarray().attrs["loss"] == "mse":
        variance = np.square(getattr(trained, std).astype(np.float64))
        curve = curve + variance.reshape(len(curve), len(variance[0]), -1).sum(2).mean(1) / 2
    if trained.seeds is None:
        first, last = float(curve[0]), float(curve[-1])
        return first, last if trained.status.has_numbers else np.nan, np.nan
    last = curve[:, -1]
    known = len(last) > 1 and np.isfinite(last).all()
    error = last.std(ddof=1) / len(last) ** 0.5 if known else np.nan
    return float(curve[:, 0].mean()), float(last.mean()), float(error)
