"""The plan: what each weight of the target model gets, as plain numbers that fit into JSON.

A plan knows names and numbers, no tensors: nothing is stored on a model's weights, so that
nothing is lost when they are copied, averaged, sharded, loaded or compiled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from math import isclose
from typing import Any

from largen.arrays import real
from largen.errors import InvalidInput
from largen.text import aligned
from largen.transfer.updates import Update, update, update_of

VERSION = 1


@dataclass(frozen=True)
class ScaledWeight:
    """One tensor of the target model.

    Attributes
    ----------
    name, role, in_branch
        Which it is and what part it plays.
    base_shape, shape
        Its shapes in the base model and in the target.
    n
        How much its width grew; the depth's ratio is the plan's.
    init
        What the builder's initial values are multiplied by.
    init_std
        The resulting deviation relative to the base's.
    lr, weight_decay, eps
        Factors of what the user states; :attr:`weight_decay` is not used for independent decay.
    powers
        The same in words, for the table.
    folded, fold
        Multipliers of the forward pass that are folded into these numbers, in words, and their
        product.
    moved_by
        The optimizer that moves it: for Muon, ``"muon"`` or ``"adamw"``.
    tied
        Other names of the same tensor.
    fan_in
        Of a matrix, the axis that is summed over.
    """

    name: str
    role: str
    in_branch: bool
    base_shape: tuple[int, ...]
    shape: tuple[int, ...]
    n: float
    init: float
    init_std: float
    lr: float
    weight_decay: float
    eps: float
    powers: dict[str, str]
    folded: tuple[str, ...] = ()
    fold: float = 1.0
    moved_by: str = ""
    tied: tuple[str, ...] = ()
    fan_in: int = 1


@dataclass(frozen=True)
class ForwardMultiplier:
    """A factor that the forward pass needs because it cannot be folded into weights.

    Attributes
    ----------
    module
        At which module.
    kind
        ``"output"``, ``"attention"`` or ``"branch"``.
    where
        ``"input"`` or ``"output"`` of the module, its ``"key"``, or the ``"first third"`` of its
        output (fused queries, keys and values).
    factor, power
        The number, and where it comes from.
    """

    module: str
    kind: str
    where: str
    factor: float
    power: str


@dataclass(frozen=True, repr=False)
class Plan:
    """What every weight of the target model gets, relative to the base model.

    Attributes
    ----------
    scheme, optimizer, decay
        What the rules are for.
    base, target
        The two shapes, as passed to the model's builder.
    width_ratio, depth_ratio
        n of the widest growth (weights have their own), and l.
    weights
        One record for each tensor.
    multipliers
        What the forward pass needs besides.
    inside
        Paths of the parts that are inside residual branches.
    notes
        What was assumed or left out, in sentences.
    """

    scheme: str
    optimizer: str
    decay: str
    base: dict[str, Any]
    target: dict[str, Any]
    width_ratio: float
    depth_ratio: float
    weights: tuple[ScaledWeight, ...]
    multipliers: tuple[ForwardMultiplier, ...] = ()
    inside: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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
        """The optimizer's record."""
        return update(self.optimizer, self.decay)

    def settings(
        self, weight: ScaledWeight, lr: Any, weight_decay: Any = None, eps: Any = None
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

        Returns
        -------
        dict
            ``lr``, ``weight_decay``, and ``eps`` if the optimizer has one.
        """
        moved_by = update_of(self.update, "hidden" if weight.moved_by == "muon" else "vector")
        rate = lr * weight.lr
        given = moved_by.weight_decay if weight_decay is None else weight_decay
        decay = real("weight_decay", given, at_least=0)
        if self.decay == "independent":
            # θ ← θ − λθ: frameworks multiply the decay by the rate, which is divided out here.
            decay = decay / float(rate)
        else:
            decay = decay * weight.weight_decay
        found = {"lr": rate, "weight_decay": decay}
        if moved_by.eps is not None and moved_by.kind == "normalised":
            start = moved_by.eps if eps is None else real("eps", eps, at_least=0)
            found["eps"] = start * weight.eps
        return found

    def to_json(self) -> str:
        """Return the plan as text; :func:`plan_from_json` reads it back."""
        return json.dumps({"version": VERSION, **_plain(self)}, indent=1)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._title}, {len(self.weights)} weights>"

    def __str__(self) -> str:
        columns = ["init × built", "init_std", "lr", "weight_decay", "eps", "folded in"]
        cells = [["weight", "role", "shape", *columns]]
        for name, weight in _collapsed(self.weights):
            shape = "×".join(map(str, weight.shape)) or "()"
            numbers = [f"{weight.init:.4g}", *(_both(weight, c) for c in columns[1:5])]
            role = f"{weight.role} in a branch" if weight.in_branch else weight.role
            cells.append([name, role, shape, *numbers, ", ".join(weight.folded)])
        lines = [self._title, *aligned(cells)]
        places: dict[str, int] = {}
        for m in self.multipliers:
            module = _starred(m.module + ".")[:-1]
            text = f"{m.kind}: {m.where} of {module} × {m.power} = {m.factor:.4g}"
            places[text] = places.get(text, 0) + 1
        lines.extend(f"{text} ({count})" if count > 1 else text for text, count in places.items())
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def plan_from_json(text: str) -> Plan:
    """Read a plan back from :meth:`Plan.to_json`.

    Raises
    ------
    InvalidInput
        If the text is no plan, or one of another version of the format.
    """
    return Plan(**read_json(text))


def read_json(text: str) -> dict[str, Any]:
    """Return the fields of a plan from its text."""
    try:
        state = json.loads(text)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"text: wanted a plan's JSON, got {error}.") from None
    if not isinstance(state, dict) or state.pop("version", None) != VERSION:
        raise InvalidInput(f"text: wanted a plan's JSON of version {VERSION}.")
    weights = tuple(
        ScaledWeight(
            **{
                **w,
                "base_shape": tuple(w["base_shape"]),
                "shape": tuple(w["shape"]),
                "folded": tuple(w["folded"]),
                "tied": tuple(w["tied"]),
            }
        )
        for w in state.pop("weights")
    )
    multipliers = tuple(ForwardMultiplier(**m) for m in state.pop("multipliers"))
    words = {name: tuple(state.pop(name)) for name in ("inside", "notes")}
    return {**state, **words, "weights": weights, "multipliers": multipliers}


def grouped(
    plan: Plan, names: Mapping[str, Any], lr: Any, weight_decay: Any = None, eps: Any = None
) -> list[tuple[dict[str, Any], list[str]]]:
    """Return the distinct settings among these weights, and which weights have each of them."""
    groups: dict[tuple, tuple[dict[str, Any], list[str]]] = {}
    for name in names:
        weight = plan[name]
        settings = plan.settings(weight, lr, weight_decay, eps)
        settings["lr_factor"] = weight.lr
        settings["moved_by"], settings["decay"] = weight.moved_by, plan.decay
        key = tuple(v if isinstance(v, str) else float(v) for v in settings.values())
        groups.setdefault(key, (settings, []))[1].append(name)
    return list(groups.values())


def _both(weight: ScaledWeight, column: str) -> str:
    number, power = getattr(weight, column), weight.powers[column]
    return f"{power} = {number:.4g}" if not isclose(number, 1.0) else power


def _collapsed(weights: tuple[ScaledWeight, ...]) -> list[tuple[str, ScaledWeight]]:
    """Return one row for all copies of a block: numbers in names become a star."""
    rows: dict[tuple, list[ScaledWeight]] = {}
    for weight in weights:
        stem = _starred(weight.name)
        key = (stem, weight.role, weight.shape, weight.init, weight.lr, weight.weight_decay)
        rows.setdefault(key, []).append(weight)
    return [
        (f"{key[0]} ({len(same)})" if len(same) > 1 else same[0].name, same[0])
        for key, same in rows.items()
    ]


def _starred(name: str) -> str:
    """Return a name with its first number, the index of a block, replaced by a star."""
    return re.sub(r"(^|\.)\d+\.", r"\1*.", name, count=1)


def _plain(plan: Plan) -> dict[str, Any]:
    state = {f.name: getattr(plan, f.name) for f in fields(Plan)}
    state["weights"] = [asdict(weight) for weight in plan.weights]
    state["multipliers"] = [asdict(m) for m in plan.multipliers]
    return state
