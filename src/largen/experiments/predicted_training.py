"""The training of a given network predicted to second order, compared with actual training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from largen.arrays import precision
from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory, NumericalFailure, OutOfMemory, instance_of, one_of
from largen.finite_width.training.closed_form import check as check_closed
from largen.finite_width.training.closed_form import tensors, to_first_order
from largen.finite_width.training.following import (
    ACTUAL,
    PREDICTED,
    kept_bytes,
    trajectory_of,
    working_bytes,
)
from largen.finite_width.training.smooth import check_smooth
from largen.interrupts import interruptible
from largen.memory import MEMORY_BUDGET, check_fits
from largen.networks.network import network_of
from largen.networks.plan import Numbers, Plan, plan_of
from largen.networks.tangent import check_samples_apart
from largen.progress import Report, reporter
from largen.results import DataResult
from largen.runs import Run, Status
from largen.runs.losses import mean_loss
from largen.scalars import flag, real

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

WHAT = "lg.training.predict_training"
METHODS = ("expansion", "closed")
WORDS = ("constant kernel", "first order", "second order")


@cites("bahri2022les")
@dataclass(frozen=True, repr=False)
class PredictedTraining(DataResult):
    """A network's training as predicted by its expansion; made by :func:`predict_training`.

    Attributes
    ----------
    data
        ``f_train (order, step, sample[, output])``, ``f_test``, ``loss_train (order, step)``,
        ``ntk (order, record, sample, sample_2)`` and ``ntk_test (order, record, test_sample,
        sample)``, with everything up to the order: 0 is the training at constant kernel, 2 is
        right to order 1/n. If the network was trained, also the same without ``order`` as
        ``f_train_actual``, and so on. The coordinates ``time`` and ``record_step``.
    status
        ``"ok"``, or ``"diverged"``.
    """

    data: xarray.Dataset
    status: Status

    @property
    def f_train(self) -> np.ndarray:
        """f on training samples to second order, ``(step, sample[, output])``."""
        return self.data["f_train"].values[-1]

    @property
    def f_test(self) -> np.ndarray:
        """f on test samples to second order, ``(step, test_sample[, output])``."""
        return self.data["f_test"].values[-1]

    @property
    def ntk(self) -> np.ndarray:
        """The tangent kernel to second order, ``(record, sample, sample_2)``."""
        return self.data["ntk"].values[-1]

    @property
    def errors(self) -> np.ndarray:
        """Root mean squares over steps and samples of actual minus predicted f, ``(order,)``.

        Raises
        ------
        InvalidInput
            If the network was not trained (``compare=False``).
        """
        return self._gap("f_train", ("step", "sample", "output"))

    @property
    def kernel_errors(self) -> np.ndarray:
        """Root mean squares of actual minus predicted tangent kernel, ``(order,)``."""
        return self._gap("ntk", ("record", "sample", "sample_2", "output", "output_2"))

    def _gap(self, name: str, axes: tuple[str, ...]) -> np.ndarray:
        if f"{name}_actual" not in self.data:
            raise InvalidInput(f"{WHAT}: the network was not trained; pass compare=True.")
        gap = self.data[f"{name}_actual"] - self.data[name]
        return np.sqrt((gap**2).mean([a for a in axes if a in gap.dims]).values)

    def _figure(self) -> Figure:
        """Plot outputs and the residual at each order."""
        from largen.plots import predicted_figure

        return predicted_figure(self.data)

    def __repr__(self) -> str:
        attributes, loss = self.data.attrs, self.data["loss_train"].values
        lines = [
            f"PredictedTraining: a network of width {attributes['width']}, {attributes['run']}",
            f"  method  {attributes['method']}; status {self.status}",
        ]
        for order, words in enumerate(WORDS):
            line = f"  {words:<16s} loss {loss[order, 0]:.4g} → {loss[order, -1]:.4g}"
            if "f_train_actual" in self.data:
                line += f"; rms error of f {self.errors[order]:.2g}"
                line += f", of the kernel {self.kernel_errors[order]:.2g}"
            lines.append(line)
        return "\n".join(lines)


@interruptible()
def predict_training(
    run: Run,
    params: Any,
    *,
    method: str = "expansion",
    record_at: Any = None,
    compare: bool = True,
    memory_budget: float = MEMORY_BUDGET,
    throw: bool = True,
    progress: bool | Report | None = None,
) -> PredictedTraining:
    """Predict the training of a given network to order 1/n, from its initialisation.

    At constant kernel the error is of order 1/n; to second order it is of order n⁻², so that the
    prediction separates the part of training that is due to the movement of features. It costs as
    much as training several networks: it explains training and does not replace it.

    Parameters
    ----------
    run
        The run: any smooth network; gradient descent with any step, batches,
        momentum and schedule, or gradient flow; any loss. Orders are those of 1/n in
        :func:`largen.ntk`. In :func:`largen.mean_field` and :func:`largen.mup` features move at
        infinite width, too, and the same expansion is one in γ₀, whatever the width.
    params
        θ₀, from :func:`largen.networks.init`, which determines the width.
    method
        ``"expansion"``: three coupled trajectories of the parameters, with nested derivatives in
        one number, at any P. ``"closed"``: O₃ and O₄ of the network and sums of exponentials (Bahri
        and Hanin, Les Houches lectures, §3.2.2, whose (104) is misprinted: see
        ``largen.finite_width.training.closed_form``), for gradient flow, ``"mse"``, one output and
        at most 24 samples. Their first orders are equal, their second orders up to n⁻².
    record_at
        Time indices at which the tangent kernel is recorded; the first and the last by default.
    compare
        Whether to train the network as well, so that the errors of the prediction are known.
    memory_budget
        Bytes.
    throw
        Whether to raise if the expansion diverges; otherwise the status is ``"diverged"``.
    progress
        Whether to show a bar; by default in terminals, after two seconds.

    Raises
    ------
    InvalidInput
        If an argument is invalid.
    NoTheory
        For activations with kinks, at which derivatives do not exist; layers that couple
        samples; optimizers whose steps are not linear in the gradient, and weight decay.
    NumericalFailure
        If the expansion diverges and ``throw``: at small widths, or beyond ηλ = 2.
    OutOfMemory
        If it does not fit into the budget.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), data, optimizer=lg.gd(2.0), steps=20)
    >>> params = lg.networks.init(run.net, run.param, width=256, inputs=3, key=0, dtype=np.float64)
    >>> result = lg.training.predict_training(run, params)
    >>> result.f_train.shape, result.ntk.shape
    ((21, 3), (2, 3, 3))
    >>> bool(result.errors[2] < result.errors[0] / 5)
    True
    """
    instance_of("run", run, Run, "an lg.Run")
    run.check_one_output("lg.training.predict_training")
    method, compare = one_of("method", method, METHODS), flag("compare", compare)
    throw, budget = flag("throw", throw), real("memory_budget", memory_budget, above=0)
    _check(run, method)
    at = run.time_indices("record_at", record_at)
    if not at:
        raise InvalidInput("record_at: wanted at least one time index, got none.")
    outputs = run.output_shape[0] if run.output_shape else None
    network = network_of(run.net, params, run.param, outputs, run.data.inputs)
    network.check_params(params)
    dtype = run.data.x_train.dtype
    with precision(run.data.x_train), reporter(progress, "prediction") as report:
        plan, numbers = plan_of(run, network.width, ("ntk",), at)
        _check_memory(plan, numbers, budget)
        params = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, dtype), params)
        if method == "expansion":
            f, kernels = trajectory_of(PREDICTED, plan, numbers, params, report)
        else:
            f, kernels = _closed_form(run, plan, numbers, params, report)
        orders = {"f": np.cumsum(np.moveaxis(f, 1, 0), 0)}
        orders |= {name: np.cumsum(np.moveaxis(k, 1, 0), 0) for name, k in kernels.items()}
        actual: dict[str, np.ndarray] = {}
        if compare:
            f, kernels = trajectory_of(ACTUAL, plan, numbers, params, report)
            actual = {"f": f, **kernels}
    prediction = PredictedTraining(_dataset(run, plan, method, orders, actual), _status(orders))
    if prediction.status is not Status.OK and throw:
        raise NumericalFailure(
            f"{WHAT}: the expansion diverges for {run.optimizer} at width {network.width}. Lower "
            "the rate below 2P/λ of its kernel, or take a larger width; throw=False returns it.",
            prediction,
        )
    return prediction


def _check(run: Run, method: str) -> None:
    check_smooth(run.net, WHAT)
    check_samples_apart(run.net)
    if method == "closed":
        check_closed(run, WHAT)
    if not run.optimizer.descends:
        raise NoTheory(
            f"{WHAT}: steps of {run.optimizer} are not linear in the gradient; wanted gradient "
            "descent or gradient flow."
        )
    if run.optimizer.weight_decay:
        raise NoTheory(
            f"{WHAT}: weight decay moves all parameters by amounts that do not shrink with the "
            "width, so that there is no expansion in 1/n; take weight_decay=0."
        )


def _check_memory(plan: Plan, numbers: Numbers, budget: float) -> None:
    working, kept = working_bytes(plan, numbers), kept_bytes(plan, numbers)
    check_fits(
        working + kept,
        f"params: the expansion of a network of width {plan.network.width}",
        "Take a smaller width, or fewer samples, steps or time indices in record_at.",
    )
    if working + kept > budget:
        raise OutOfMemory(
            f"memory_budget: the expansion takes about {(working + kept) / 1e9:.3g} GB; take a "
            "smaller width, fewer samples, steps or times in record_at, or a larger budget."
        )


def _closed_form(
    run: Run, plan: Plan, numbers: Numbers, params: Any, report: Report
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    P = plan.samples
    given = tensors(plan.network, params, numbers.x, P, report)
    times = run.times * run.optimizer.lr / P
    expansion = to_first_order(given, np.asarray(run.data.y_train, np.float64).reshape(P), times)
    at, dtype = np.asarray(plan.record_at), numbers.x.dtype
    f = expansion.outputs.reshape(*expansion.outputs.shape, *run.output_shape)
    wide = expansion.kernels[at].reshape(
        len(at), *expansion.kernels.shape[1:], *(1,) * (2 * len(run.output_shape))
    )
    kernels = {"ntk": wide[:, :, :P]}
    if len(numbers.x) > P:
        kernels["ntk_test"] = wide[:, :, P:]
    return f.astype(dtype), {name: k.astype(dtype) for name, k in kernels.items()}


def _status(orders: dict[str, np.ndarray]) -> Status:
    sound = all(np.isfinite(array).all() for array in orders.values())
    return Status.OK if sound else Status.DIVERGED


def _dataset(
    run: Run, plan: Plan, method: str, orders: dict[str, np.ndarray], actual: dict[str, np.ndarray]
) -> xarray.Dataset:
    import xarray

    P, out = plan.samples, ("output",) if run.output_shape else ()
    pair = ("output", "output_2") if run.output_shape else ()
    axes = {
        "f_train": ("step", "sample", *out),
        "f_test": ("step", "test_sample", *out),
        "loss_train": ("step",),
        "ntk": ("record", "sample", "sample_2", *pair),
        "ntk_test": ("record", "test_sample", "sample", *pair),
    }
    variables: dict[str, Any] = {}
    for arrays, lead, tail in ((orders, ("order",), ""), (actual, (), "_actual")):
        if not arrays:
            continue
        f = arrays["f"]
        rows = len(lead) + 1
        train, test = np.split(f, [P], axis=rows)
        named = {
            "f_train": train,
            "f_test": test,
            "loss_train": mean_loss(run.loss, train, run.data.y_train, len(lead)),
            **{name: array for name, array in arrays.items() if name != "f"},
        }
        variables |= {f"{name}{tail}": ((*lead, *axes[name]), a) for name, a in named.items()}
    variables["y_train"] = (("sample", *out)[: run.data.y_train.ndim], run.data.y_train)
    return xarray.Dataset(
        variables,
        {
            "order": np.arange(len(WORDS)),
            "step": np.arange(len(run.times)),
            "time": ("step", run.times),
            "record_step": ("record", np.asarray(plan.record_at)),
        },
        {"run": repr(run), "net": repr(run.net), "width": plan.network.width, "method": method},
    )
