"""The coordinate check of a model in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from largen.arrays import as_array
from largen.callables import outputs_on_shapes, takes
from largen.errors import InvalidInput
from largen.text import shown
from largen.transfer.coordinates import (
    CoordinateCheck,
    checked,
    effort,
    group_settings,
    one_direction,
)
from largen.transfer.hints import hints_of
from largen.transfer.jax.plan import JaxPlan
from largen.transfer.jax.scaling import scale
from largen.transfer.jax.survey import shapes_of
from largen.transfer.jax.trees import is_weight, part_of
from largen.transfer.roles import family
from largen.transfer.shapes import Shapes, shapes
from largen.transfer.structure import correspondence, last_of_each, names_in_first

Activations = Callable[[Any, Any], Mapping[str, Any]]


def coordinate_check(
    init: Callable[..., Any],
    base: Mapping[str, Any],
    targets: Sequence[Mapping[str, Any]],
    batches: Sequence[Any],
    loss: Callable[[Any, Any], Any],
    activations: Activations,
    *,
    lr: float,
    optimizer: str = "adamw",
    steps: int = 4,
    seeds: int = 2,
    tolerance: float | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> CoordinateCheck:
    """Measure how every activation, and its change by a few steps, grows with the model.

    The numbers are those of :func:`largen.transfer.torch.coordinate_check`: root mean squares on
    the first batch before and after training, and of the difference. Since a function in JAX does
    not expose its intermediate values, the user passes a function that returns them.

    Parameters
    ----------
    init, base
        As in :func:`scale`.
    targets
        Shapes that differ in width only, in depth only, or in the number of experts only.
    batches
        Arguments of ``loss``, pytrees of arrays; step t uses the t-th, cyclically. Activations
        are measured on the first.
    loss
        ``loss(parameters, batch)`` → a scalar.
    activations
        ``activations(parameters, batch)`` → a dict of arrays by name. Names of parts of the
        parameters (``"blocks.3"`` for the output of a block, ``"blocks.3.fc2"`` for the product
        with its weights) are matched along the depth, and over lists of experts: of several that
        correspond to one of the base, the last is measured. The output of a weight is measured
        without the factors that the plan folds into that weight, except for the read-out. Any other
        name denotes the same quantity in all models.
    lr, optimizer
        As in :func:`scale`.
    settings
        ``weight_decay`` (0 by default) and ``eps`` of :meth:`JaxPlan.optax`.
    steps, seeds, tolerance
        As in :func:`largen.transfer.torch.coordinate_check`.
    **options
        Passed on to :func:`scale`.

    Raises
    ------
    InvalidInput
        If the targets do not differ in one kind of size alone, an argument is out of range, or the
        activations are not a dict of arrays.

    Examples
    --------
    >>> def init(key, width):
    ...     keys = jax.random.split(key)
    ...     return {"inp": jax.random.normal(keys[0], (2, width)),
    ...             "out": jax.random.normal(keys[1], (width, 1)) / width**0.5}
    >>> def activations(p, x):
    ...     h = x @ p["inp"]
    ...     return {"inp": h, "out": h @ p["out"]}
    >>> def loss(p, x):
    ...     return ((activations(p, x)["out"] - 1) ** 2).mean()
    >>> check = coordinate_check(init, {"width": 16}, [{"width": 64}, {"width": 256}],
    ...                          [np.eye(2)], loss, activations, lr=0.02, optimizer="sgd",
    ...                          scheme="standard", layout="in_out")
    >>> check.guilty, bool(check["out"].change > 0.5)
    ('out', True)
    """
    told = hints_of(options.get("hints"))
    given = group_settings(settings, ("weight_decay", "eps"))
    effort(steps, seeds, batches, targets, loss, lr, tolerance)
    for leaf in jax.tree.leaves(list(batches)):
        if not isinstance(leaf, jax.Array):  # which may be keys
            as_array("batches", leaf)
    takes("activations", activations, ("parameters", "batch"))
    options = {**options, "optimizer": optimizer, "verify": False}
    plans = [scale(init, base, target, **options) for target in targets]
    one_direction(plans, seeds)
    names = [
        _Names(init, shapes(base, target, told.depth, experts=told.experts)) for target in targets
    ]
    records = []
    for plan, named in zip(plans, names, strict=True):
        moved = plan.optax(lr=lr, **given)
        measure = jax.jit(_measure(plan, activations))
        step = jax.jit(_step(moved, loss))
        own = []
        for seed in range(seeds):
            parameters = plan.init(seed)
            state, before = moved.init(parameters), measure(parameters, batches[0])
            value = outputs_on_shapes("loss", loss, parameters, batches[0])
            if getattr(value, "shape", None) != () or not is_weight(value):
                raise InvalidInput(f"loss: wanted one real number, got {shown(value)}.")
            for t in range(steps):
                parameters, state = step(parameters, state, batches[t % len(batches)])
            own.append(_sizes(before, measure(parameters, batches[0]), named))
        records.append(own)
    inside = frozenset(name for named in names for name in named.inside)
    return checked(plans, records, inside, tolerance, f"{optimizer}, {steps} steps")


class _Names:
    """The base's names of a target's activations, inside repeated blocks and otherwise."""

    def __init__(self, init: Callable[..., Any], sizes: Shapes):
        models = [part_of(shapes_of(init, at)) for at in (sizes.base, sizes.tall, sizes.crowded)]
        deeper, more = (correspondence(*pair) for pair in pairwise(models))
        self._names = names_in_first(deeper, more)
        self._looked_at = last_of_each(self._names)
        blocks = tuple(f"{deeper.parts[block]}." for block in deeper.blocks)
        early = deeper.early_blocks()
        self.inside = {
            name for name in self._looked_at.values() if name.startswith(blocks) or name in early
        }

    def __getitem__(self, name: str) -> str | None:
        """The name in the base; None for a block in whose place a later one is measured."""
        return self._looked_at.get(name) if name in self._names else name


def _measure(plan: JaxPlan, activations: Activations) -> Activations:
    """Return the activations without the factors folded into the weights that produce them."""
    folds = {}
    for weight in plan.weights:
        if family(weight.role) != "output":
            for name in (weight.name, weight.name.rpartition(".")[0]):
                folds[name] = folds.get(name, 1.0) if weight.fold == 1.0 else weight.fold

    def measured(parameters: Any, batch: Any) -> dict[str, Any]:
        found = activations(parameters, batch)
        if not isinstance(found, Mapping):
            raise InvalidInput(f"activations: wanted a dict of arrays, got {found!r}.")
        return {name: jax.numpy.asarray(h) / folds.get(name, 1.0) for name, h in found.items()}

    return measured


def _step(moved: Any, loss: Callable[[Any, Any], Any]) -> Callable[..., tuple[Any, Any]]:
    import equinox as eqx

    def step(parameters: Any, state: Any, batch: Any) -> tuple[Any, Any]:
        gradient = eqx.filter_grad(loss)(parameters, batch)
        updates, state = moved.update(gradient, state, parameters)
        return eqx.apply_updates(parameters, updates), state

    return step


def _sizes(
    before: Mapping[str, Any], after: Mapping[str, Any], names: _Names
) -> dict[str, tuple[float, float, float]]:
    found = {}
    for name, start in before.items():
        base = names[name]
        if base is not None:
            first, last = (np.asarray(h, np.float64) for h in (start, after[name]))
            found[base] = (_rms(first), _rms(last), _rms(last - first))
    return found


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
