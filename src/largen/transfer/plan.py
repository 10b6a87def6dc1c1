"""The plan: the settings of each weight of the target model, as plain numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from math import isclose, sqrt
from typing import TYPE_CHECKING, Any

from largen import files
from largen.arrays import known
from largen.errors import InvalidInput
from largen.results import in_notebooks, plot_result, with_labels
from largen.scalars import real
from largen.text import aligned, shown
from largen.transfer.horizon import Horizon, horizon
from largen.transfer.plan_entries import COLUMNS, ForwardMultiplier, ScaledWeight
from largen.transfer.records import fields_of
from largen.transfer.updates import Update, update, update_of
from largen.transfer.verified import Verification

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

VERSION = 2  # version of the JSON format: the first had no checksum


@dataclass(frozen=True, repr=False)
class Plan:
    """The settings of every weight of the target model, relative to the base model.

    Attributes
    ----------
    scheme, optimizer, decay
        The parameterization, the optimizer and the kind of weight decay.
    base, target
        The two shapes, as passed to the model's builder.
    width_ratio, depth_ratio
        The largest n (each weight has its own), and l.
    weights
        One record for each tensor.
    multipliers
        Factors that remain in the forward pass.
    inside
        Paths of the parts that are inside residual branches.
    notes
        Assumptions and omissions, in sentences.
    batch_ratio, horizon_ratio, experts_ratio
        Ratios of the target's batch size, number of training samples
        (:mod:`largen.transfer.horizon`) and number of experts to the base's.
    verified
        Records of the plan's verification, one for each kind of size in which target and base
        differ; empty if none was asked for.
    """

    scheme: str
    optimizer: str
    decay: str
    base: dict[str, int]
    target: dict[str, int]
    width_ratio: float
    depth_ratio: float
    weights: tuple[ScaledWeight, ...]
    multipliers: tuple[ForwardMultiplier, ...] = ()
    inside: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    batch_ratio: float = 1.0
    horizon_ratio: float = 1.0
    experts_ratio: float = 1.0
    verified: tuple[Verification, ...] = ()

    def __post_init__(self) -> None:
        update(self.optimizer, self.decay)
        for name in (f.name for f in fields(self) if f.name.endswith("_ratio")):
            real(name, getattr(self, name), above=0)
        if set(self.base) != set(self.target):
            raise InvalidInput(
                f"target: wanted the keys of base, {sorted(self.base)}, got {sorted(self.target)}."
            )
        self.horizon  # noqa: B018 (raises if the optimizer has no rule)
        if len(self._by_name) != len(self.weights):
            raise InvalidInput("weights: wanted each name once.")

    def __getitem__(self, name: str) -> ScaledWeight:
        return self._by_name[name]

    @property
    def _title(self) -> str:
        sizes = [f"{k} {self.base[k]}→{v}" for k, v in self.target.items()]
        return (
            f"{self.scheme}, {self.optimizer} ({self.decay} decay), {', '.join(sizes)}: "
            f"n = {self.width_ratio:g}, l = {self.depth_ratio:g}"
        )

    @cached_property
    def _by_name(self) -> dict[str, ScaledWeight]:
        return {weight.name: weight for weight in self.weights}

    @property
    def update(self) -> Update:
        """The properties of the optimizer that the rules use."""
        return update(self.optimizer, self.decay)

    @cached_property
    def horizon(self) -> Horizon:
        """The factors of every weight's settings for the batch size and number of samples."""
        return horizon(self.update, self.batch_ratio, self.horizon_ratio)

    def settings(
        self,
        weight: ScaledWeight,
        lr: Any,
        weight_decay: Any = None,
        eps: Any = None,
        step: float = 1.0,
    ) -> dict[str, Any]:
        """Return the optimizer's settings for one weight.

        Parameters
        ----------
        weight
            One of :attr:`weights`.
        lr
            η₀: the rate that was tuned on the base model. A tensor is left as it is; the result
            is a new one.
        weight_decay, eps
            λ₀ and ε₀; the optimizer's defaults if None.
        step
            Growth of the optimizer's step, from the base to the target, in excess of the rules; the
            rate is divided by it (:func:`matched_step`).

        Returns
        -------
        dict
            ``lr``, ``weight_decay``, and ``eps`` if the optimizer has one.

        Raises
        ------
        InvalidInput
            If one of them is negative or not finite, or independent decay has a rate of 0.
        """
        moved_by = update_of(self.update, "vector" if weight.moved_by == "adamw" else "hidden")
        rate = _rate(lr) * (weight.lr * self.horizon.lr / step)
        given = moved_by.weight_decay if weight_decay is None else weight_decay
        decay = real("weight_decay", given, at_least=0) * self.horizon.weight_decay
        if self.decay == "independent":
            # θ ← θ − λθ: frameworks multiply the decay by the rate, which is divided out here.
            if decay and not float(rate):
                raise InvalidInput("lr: wanted a rate > 0 for independent weight decay, got 0.")
            decay = decay / float(rate) if decay else 0.0
        else:
            decay = decay * weight.weight_decay * step
        found = {"lr": rate, "weight_decay": decay}
        if moved_by.eps is not None and moved_by.kind == "normalised":
            start = moved_by.eps if eps is None else real("eps", eps, at_least=0)
            found["eps"] = start * weight.eps * self.horizon.eps
        return found

    def to_json(self) -> str:
        """Return the plan as text with a checksum; :func:`plan_from_json` reads it back."""
        state = {field.name: getattr(self, field.name) for field in fields(Plan)}
        state["weights"] = [asdict(weight) for weight in self.weights]
        state["multipliers"] = [asdict(m) for m in self.multipliers]
        state["verified"] = [asdict(record) for record in self.verified]
        return files.json_with_checksum({"version": VERSION, **state})

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._title}, {len(self.weights)} weights>"

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return the factors of every weight's settings as a data set over ``weight``.

        ``row`` is the row of the printed table that a weight belongs to.
        """
        import xarray

        rows = {w.name: row for row, same in _collapse(self.weights) for w in same}
        factors = {
            name: ("weight", [getattr(weight, name) for weight in self.weights])
            for name in ("n", "init", *COLUMNS)
        }
        words = {
            name: ("weight", [str(getattr(weight, name)) for weight in self.weights])
            for name in ("role", "moved_by")
        }
        return xarray.Dataset(
            {**factors, "in_branch": ("weight", [weight.in_branch for weight in self.weights])},
            {
                "weight": [weight.name for weight in self.weights],
                "row": ("weight", [rows[weight.name] for weight in self.weights]),
                **words,
            },
            {"title": self._title, "scheme": self.scheme, "optimizer": self.optimizer},
        )

    def _figure(self) -> Figure:
        """Draw the factors of each weight's settings."""
        from largen.plots import plan_figure

        return plan_figure(self.to_xarray())

    plot = plot_result
    _repr_html_ = in_notebooks

    def __str__(self) -> str:
        columns = ["init × built", "init_std", "lr", "weight_decay", "eps", "folded in"]
        cells = [["weight", "role", "shape", *columns]]
        for name, (weight, *_) in _collapse(self.weights):
            shape = "×".join(map(str, weight.shape)) or "()"
            numbers = [f"{weight.init:.4g}", *(_both(weight, c) for c in columns[1:5])]
            role = f"{weight.role} in a branch" if weight.in_branch else weight.role
            cells.append([name, role, shape, *numbers, ", ".join(weight.folded)])
        lines = [self._title, *aligned(cells)]
        if (self.batch_ratio, self.horizon_ratio) != (1.0, 1.0):
            lines.append(f"for all weights: {self.horizon}")
        places: dict[str, int] = {}
        for m in self.multipliers:
            text = str(replace(m, module=_star(m.module)))
            places[text] = places.get(text, 0) + 1
        lines.extend(f"{text} ({count})" if count > 1 else text for text, count in places.items())
        lines.extend(f"note: {note}" for note in self.notes)
        return "\n".join([*lines, *map(str, self.verified)])


def plan_from_json(text: str | bytes) -> Plan:
    """Read a plan back from :meth:`Plan.to_json`.

    Raises
    ------
    DamagedFile
        If the text differs from what was written, or has no checksum: it is then not a plan, or
        a plan of the first version, which has to be made again.
    InvalidInput
        If the argument is not text, or its fields are not those of a plan.
    """
    return Plan(**read_json(text))


def read_json(text: str | bytes) -> dict[str, Any]:
    """Return the fields of a plan from its text; raise the errors of :func:`plan_from_json`."""
    if not isinstance(text, (str, bytes)):
        raise InvalidInput(f"text: wanted a plan's JSON, got {shown(text)}.")
    state = files.read_json(text, "the plan")
    if state.pop("version", None) != VERSION:
        raise InvalidInput(f"text: wanted a plan's JSON of version {VERSION}.")
    for name in ("batch_ratio", "horizon_ratio", "experts_ratio"):  # later than the format
        state.setdefault(name, 1.0)
    state.setdefault("verified", [])
    return fields_of(Plan, state, "text")


def grouped(
    plan: Plan,
    names: Mapping[str, Any],
    lr: Any,
    weight_decay: Any = None,
    eps: Any = None,
    step: Callable[[ScaledWeight], float] = lambda weight: 1.0,
) -> list[tuple[dict[str, Any], list[str]]]:
    """Return the distinct settings among these weights, and the weights that share each of them."""
    if eps is not None and plan.update.eps is None:
        raise InvalidInput(f"eps: {plan.optimizer} has none, got {shown(eps)}.")
    groups: dict[tuple, tuple[dict[str, Any], list[str]]] = {}
    for name in names:
        weight = plan[name]
        settings = plan.settings(weight, lr, weight_decay, eps, step(weight))
        settings["lr_factor"] = weight.lr / step(weight)
        settings["moved_by"], settings["decay"] = weight.moved_by, plan.decay
        key = tuple(v if isinstance(v, str) else float(v) for v in settings.values())
        groups.setdefault(key, (settings, []))[1].append(name)
    return list(groups.values())


def matched_step(weight: ScaledWeight) -> float:
    """Return the growth of a matrix's step with Adam's RMS in excess of Muon's own step.

    The rules are for √max(1, fan-out/fan-in)·O with orthogonal O (Jordan et al. 2024); steps
    0.2·√max(fan-in, fan-out)·O (Liu et al. 2025, arXiv 2502.16982, 2.2) have another power.
    """

    def excess(shape: tuple[int, ...]) -> float:
        into, out = shape[weight.fan_in], shape[1 - weight.fan_in]
        return sqrt(max(into, out) / max(1.0, out / into))

    return excess(weight.shape) / excess(weight.base_shape)


def _rate(lr: Any) -> Any:
    """Return a rate, a number or an array with one element, if it is finite and not negative."""
    number = lr
    if getattr(lr, "ndim", None) == 0 and hasattr(lr, "item"):
        known("lr", lr)
        try:
            number = lr.item()
        except RuntimeError:
            raise InvalidInput(f"lr: wanted a number that is known, got {shown(lr)}.") from None
    real("lr", number, at_least=0)
    return lr


def _both(weight: ScaledWeight, column: str) -> str:
    number, power = getattr(weight, column), weight.powers[column]
    return f"{power} = {number:.4g}" if not isclose(number, 1.0) else power


def _collapse(weights: tuple[ScaledWeight, ...]) -> list[tuple[str, list[ScaledWeight]]]:
    """Return one row for all copies of a block: the block's number in a name becomes a star."""
    rows: dict[tuple, list[ScaledWeight]] = {}
    for weight in weights:
        stem = _star(weight.name)
        key = (stem, weight.role, weight.shape, weight.init, weight.lr, weight.weight_decay)
        rows.setdefault(key, []).append(weight)
    return [
        (f"{key[0]} ({len(same)})" if len(same) > 1 else same[0].name, same)
        for key, same in rows.items()
    ]


def _star(name: str) -> str:
    """Return a name with its first number, the index of a block, replaced by a star."""
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", name, count=1)
