"""The exact catapult dynamics of a linear network on one sample, at any learning rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.arrays import numbers
from largen.bibliography import cites
from largen.errors import InvalidInput, instance_of
from largen.finite_width.training.one_sample import at_infinite_width, at_width, check, recursion
from largen.memory import check_fits
from largen.networks import empirical_ntk
from largen.networks.network import network_of
from largen.results import Result, with_labels
from largen.runs import Run
from largen.scalars import integer, real
from largen.text import shown

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@cites("lewkowycz2020large", "bahri2022les")
@dataclass(frozen=True, repr=False)
class Catapult(Result):
    """The training of a linear network on one sample; made by :func:`catapult`.

    Attributes
    ----------
    outputs
        f, ``(step,)``; where training diverged, the last number before it.
    kernels
        λ, the tangent kernel of the sample, ``(step,)``.
    losses
        ℓ(f, y), ``(step,)``.
    rates
        η₀ of each step.
    coupling
        c.
    diverged
        The step at which f diverged; None if it did not.
    of
        A description of the trained network.
    """

    outputs: np.ndarray
    kernels: np.ndarray
    losses: np.ndarray
    rates: np.ndarray
    coupling: float
    diverged: int | None
    of: str

    @property
    def reduced_rate(self) -> float:
        """x = ηλ at initialisation: with the mean squared error f is unstable from 2 on."""
        return float(self.rates[0] * self.kernels[0])

    @property
    def end(self) -> float:
        """ηλ after training: below 2 where a catapult has ended."""
        return float(self.rates[-1] * self.kernels[-1])

    @property
    def peak(self) -> int:
        """The step of the largest loss."""
        return int(np.argmax(self.losses))

    def steps_to(self, loss: float) -> int | None:
        """Return the step from which on the loss stays at or below a value; None if it does not.

        Parameters
        ----------
        loss
            Positive.
        """
        level = real("loss", loss, above=0)
        above = np.flatnonzero(~(self.losses <= level))
        first = int(above[-1]) + 1 if len(above) else 0
        return first if first < len(self.losses) and self.diverged is None else None

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return ``output``, ``kernel`` and ``loss`` over ``step``."""
        import xarray

        columns = {"output": self.outputs, "kernel": self.kernels, "loss": self.losses}
        return xarray.Dataset(
            {name: ("step", values) for name, values in columns.items()},
            {"step": np.arange(len(self.outputs))},
            {
                "of": self.of,
                "coupling": self.coupling,
                "diverged": -1 if self.diverged is None else self.diverged,
            },
        )

    def _figure(self) -> Figure:
        """Draw the loss and ηλ against the step."""
        from largen.plots import catapult_figure

        return catapult_figure(self)

    def __repr__(self) -> str:
        top = f"largest loss {self.losses[self.peak]:.4g} at time index {self.peak}"
        end = (
            f"diverged at time index {self.diverged}"
            if self.diverged is not None
            else f"loss {self.losses[0]:.4g} → {self.losses[-1]:.4g}"
        )
        return "\n".join(
            [
                f"Catapult: {self.of}, {len(self.rates)} steps, c = {self.coupling:.4g}",
                f"  ηλ    {self.reduced_rate:.6g} → {self.end:.6g}",
                f"  loss  {top}; {end}",
            ]
        )


def catapult(
    run: Run, params: Any = None, *, width: int | None = None, start: Any = None
) -> Catapult:
    """Return the training of a linear network on one sample, exactly, at any width and step.

    With Δ = −∂ℓ/∂f, gradient descent on f = m₁m₂ v·Uᵀx closes in f and the tangent kernel λ,

        f ← f + ηλΔ + η²c Δ² f,    λ ← λ + ηcΔ(ηλΔ + 4f),    c = ρ_U ρ_v (m₁m₂)²|x|²

    for the rule's multipliers m and rates ρ. In NTK parameterization c = |x|²/(DN) and vanishes at
    infinite width; in mean field c = γ₀²|x|²/D at every width, and the kernel falls below 2/η
    there as well. Bahri and Hanin, Les Houches lectures, (110) and (112), have y = 0 and print
    λ ← λ + (η²f²/n)(ηλ − 4) with one η too many: it is (ηf²/n)(ηλ − 4). As printed, runs with
    3 ≤ ηλ < 4 would diverge, whereas they converge. Their (113), that the time to a loss diverges
    as |η − η_c|⁻¹, holds below η_c; above, the time also has a logarithm of the width. With y = 0
    and ηλ₀ = 2 + e at large width, training ends at ηλ = 2 − e − (2/3)e² − ….

    Parameters
    ----------
    run
        ``lg.mlp(1, "linear")`` or two :class:`largen.Dense`, any parameterization and loss of one
        output, one training sample, gradient descent with any schedule of rates.
    params
        Initial parameters of a finite network, from :func:`largen.networks.init`. The computation
        is in float64, whatever their precision.
    width
        N without ``params``; the limit of infinite width by default.
    start
        (f, λ) at initialisation, without ``params``. By default their means over initialisations,
        f = 0 and λ of infinite width.

    Raises
    ------
    InvalidInput
        For another number of samples, parameters of another network, or both ``params`` and
        ``width`` or ``start``.
    NoTheory
        For other networks or optimizers, and without a width for parameterizations without a limit.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.ones((1, 1)), np.ones(1))
    >>> net = lg.mlp(1, "linear")
    >>> run = lg.Run(net, lg.mean_field(gamma=0.1), data, optimizer=lg.gd(1.25), steps=60)
    >>> print(lg.training.catapult(run))  # at infinite width
    Catapult: a network of infinite width, 60 steps, c = 0.01
      ηλ    2.5 → 1.21601
      loss  largest loss 6.719 at time index 4; loss 0.5 → ...
    """
    instance_of("run", run, Run, "an lg.Run")
    run.check_one_output("lg.training.catapult")
    check(run)
    check_fits(40.0 * len(run.times), f"run: {run.steps} steps", "Take fewer steps.")
    if params is not None:
        if width is not None or start is not None:
            raise InvalidInput("params: pass either params, or width and start.")
        start_values, of = _of_network(run, params)
    else:
        size = None if width is None else integer("width", width, at_least=1)
        constants = at_infinite_width(run) if size is None else at_width(run, size)
        f0, kernel0 = (0.0, constants.kernel) if start is None else _start(start)
        start_values = (constants.coupling, f0, kernel0)
        of = "a network of " + ("infinite width" if size is None else f"width {size}")
    path = recursion(run, *start_values)
    lost = np.flatnonzero(~path.sound)
    return Catapult(
        outputs=path.outputs,
        kernels=path.kernels,
        losses=path.losses,
        rates=run.rates,
        coupling=start_values[0],
        diverged=int(lost[0]) if len(lost) else None,
        of=of,
    )


def _of_network(run: Run, params: Any) -> tuple[tuple[float, float, float], str]:
    import jax

    outputs = run.output_shape[0] if run.output_shape else None
    network = network_of(run.net, params, run.param, outputs, run.data.inputs)
    network.check_params(params)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    x = np.asarray(run.data.x_train, np.float64)
    kernel = empirical_ntk(run.net, params, x, param=run.param)
    coupling = at_width(run, network.width).coupling
    start = float(network.apply(params, x).reshape(())), float(kernel.reshape(()))
    return (coupling, *start), f"a network of width {network.width}"


def _start(start: Any) -> tuple[float, float]:
    pair = numbers("start", start)
    if pair.shape != (2,) or pair[1] <= 0:
        raise InvalidInput(f"start: wanted the pair (f, λ) with λ > 0, got {shown(start)}.")
    return real("start", float(pair[0])), real("start", float(pair[1]), above=0)
