"""The coordinate check of a PyTorch model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from largen.callables import takes
from largen.errors import InvalidInput
from largen.transfer.coordinates import (
    CoordinateCheck,
    checked,
    effort,
    group_settings,
    one_direction,
)
from largen.transfer.hints import hints_of
from largen.transfer.shapes import Shapes, shapes
from largen.transfer.structure import correspondence, last_of_each, names_in_first
from largen.transfer.torch.effects import measured
from largen.transfer.torch.optimizers import OPTIMIZERS, check_optimizer, training_step
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.process import fixed_seed
from largen.transfer.torch.recording import output_of
from largen.transfer.torch.scaling import scale
from largen.transfer.torch.survey import on_meta, part_of
from largen.transfer.updates import update
from largen.transfer.verdicts import effects_of, fitted, with_sums
from largen.transfer.verified import Verification
from largen.transfer.verifying import MORE_SEEDS, SEEDS, words_of


def coordinate_check(
    make_model: Callable[..., nn.Module],
    base: Mapping[str, Any],
    targets: Sequence[Mapping[str, Any]],
    batches: Sequence[Any],
    loss: Callable[[nn.Module, Any], Tensor],
    *,
    lr: float,
    optimizer: str = "adamw",
    steps: int = 4,
    seeds: int = 2,
    tolerance: float | None = None,
    make_optimizer: Callable[[Any], Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> CoordinateCheck:
    """Measure how every activation, and its change by a few steps, grows with the model.

    Along the width the effects of single updates are measured as well
    (:mod:`largen.transfer.verdicts`), in untrained networks called by ``loss`` on the first batch.
    They decide whether changes fade, since changes by training have a random part that does so
    under right plans, and a check fails as well if one of them grows.

    Parameters
    ----------
    make_model, base
        As in :func:`scale`.
    targets
        Shapes that differ in width only, in depth only, or in the number of experts only.
    batches
        Arguments of ``loss``; step t uses the t-th, cyclically. Activations are measured on the
        first.
    loss
        ``loss(model, batch)`` → a scalar.
    lr
        η₀.
    optimizer
        As in :func:`scale`.
    settings
        ``weight_decay`` (0 by default), ``eps`` and ``betas`` of :meth:`TorchPlan.param_groups`.
    steps, seeds
        The number of training steps, and of networks of each size: at least 2, or 1 at three
        sizes. Slopes have intervals from the scatter between seeds
        (:mod:`largen.transfer.coordinates`).
    tolerance
        The largest |slope| that passes; by default 0.1 in width, 0.35 in depth, and 0.6 in the
        number of experts. A layer fails if its interval lies beyond.
    make_optimizer
        Makes the optimizer, any object with ``zero_grad`` and ``step``, from parameter groups, if
        PyTorch has no optimizer of that name. It receives Muon's and AdamW's groups together.
    **options
        Passed on to :func:`scale`.

    Raises
    ------
    InvalidInput
        If the targets do not differ in one kind of size alone, or an argument is out of range.
    """
    told = hints_of(options.get("hints"))
    given = group_settings(settings, ("weight_decay", "eps", "betas"))
    effort(steps, seeds, batches, targets, loss, lr, tolerance)
    if make_optimizer is not None and not isinstance(make_optimizer, type):
        takes("make_optimizer", make_optimizer, ("groups",))
    known = update(optimizer, options.get("decay")).name
    make = OPTIMIZERS.get(known) if make_optimizer is None else make_optimizer
    if make is None:
        raise InvalidInput(
            f"make_optimizer: PyTorch has no optimizer {optimizer!r}; pass one that takes groups."
        )
    # Factors stay in the forward pass: folded ones would change the size of queries, for example.
    options = {"multipliers": "forward", **options, "verify": False}
    plans = [scale(make_model, base, target, optimizer=optimizer, **options) for target in targets]
    along, ratios = one_direction(plans, seeds)
    found = [
        _labels(make_model, shapes(base, target, told.depth, experts=told.experts))
        for target in targets
    ]
    labels, early = [names for names, _ in found], set().union(*(own for _, own in found))
    records = []
    for plan, names in zip(plans, labels, strict=True):
        own = []
        undone = {m.module for m in plan.multipliers if m.kind == "built"}
        for seed in range(seeds):
            model = plan.build(seed=seed)
            groups = plan.param_groups(model, lr=lr, moved_by="all", **given)
            moved = check_optimizer(make(groups))
            own.append(_sizes(model, moved, batches, loss, steps, names, seed, undone))
        records.append(own)
    inside = _inside(plans, labels, early)
    networks = max(seeds, SEEDS)
    effects = _effects(plans, ratios, loss, batches[0], networks) if along == "width" else None
    return checked(plans, records, inside, tolerance, f"{optimizer}, {steps} steps", effects)


def _effects(
    plans: Sequence[TorchPlan],
    ratios: Sequence[float],
    loss: Callable[[nn.Module, Any], Tensor],
    batch: Any,
    networks: int,
) -> Verification:
    """Measure the effects of single updates in untrained networks, called as the loss does."""
    rows, layouts = [], []
    names = {weight.name: weight.name for weight in plans[0].weights}
    try:
        for plan in plans:
            rows.append([])
            for seed in range(networks):
                model = plan.build(seed=seed)
                with fixed_seed(seed, gpus=True):
                    numbers, layout = measured(model, plan, partial(loss, model, batch), "width")
                rows[-1].append(with_sums(numbers, layout, names))
                layouts.append(layout)
    except Exception as error:
        return Verification("width", reason=words_of(error))
    fits = fitted(ratios, rows)
    effects = effects_of(fits, layouts[0], "width", plans[0].update.kind)
    found = Verification("width", tuple(ratios), networks, tuple(effects))
    if found.open and networks < MORE_SEEDS:
        return _effects(plans, ratios, loss, batch, MORE_SEEDS)
    return found


def _inside(
    plans: Sequence[TorchPlan], labels: Sequence[Mapping[str, str]], early: Collection[str]
) -> frozenset[str]:
    """Return the layers inside residual branches or early blocks, by the base model's names."""
    return frozenset(
        name
        for plan, names in zip(plans, labels, strict=True)
        for path, name in names.items()
        if any(path == part or path.startswith(f"{part}.") for part in plan.inside)
        or any(name == part or name.startswith(f"{part}.") for part in early)
    )


def _labels(make_model: Any, sizes: Shapes) -> tuple[dict[str, str], set[str]]:
    """Return the modules to be measured → the base model's names for them, and early blocks."""
    models = [on_meta(make_model, at) for at in (sizes.base, sizes.tall, sizes.crowded)]
    # The modules of parametrizations (weight norm, say) return weights, which are no activations.
    modules = {path for path, _ in models[-1].named_modules() if "parametrizations" not in path}
    deeper, more = (correspondence(*map(part_of, pair)) for pair in pairwise(models))
    names = last_of_each(names_in_first(deeper, more))
    return {path: name for path, name in names.items() if path in modules}, deeper.early_blocks()


def _sizes(
    model: nn.Module,
    optimizer: Any,
    batches: Sequence[Any],
    loss: Callable[[nn.Module, Any], Tensor],
    steps: int,
    names: Mapping[str, str],
    seed: int,
    undone: Collection[str],
) -> dict[str, tuple[float, float, float]]:
    """Train a model; return the sizes of each activation before and after, and of its change."""
    with fixed_seed(seed, gpus=True):
        before = _activations(model, batches[0], loss, names, seed, undone)
        for t in range(steps):
            training_step(model, optimizer, loss, batches[t % len(batches)])
        after = _activations(model, batches[0], loss, names, seed, undone)
    return {
        name: (_rms(before[name]), _rms(after[name]), _rms(after[name] - before[name]))
        for name in before
        if name in after and before[name].shape == after[name].shape
    }


def _activations(
    model: nn.Module,
    batch: Any,
    loss: Callable[[nn.Module, Any], Tensor],
    names: Mapping[str, str],
    seed: int,
    undone: Collection[str],
) -> dict[str, Tensor]:
    """Return the output of every measured module at its first call."""
    found: dict[str, Tensor] = {}

    def record(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            value = output_of(output)
            if value is not None and name not in found:
                found[name] = value.detach().clone()

        return hook

    handles = [
        # The hook runs before the plan's own hooks, whose factors are not part of the activation,
        # except for those that undo the user's own factors, which belong to the layer.
        module.register_forward_hook(record(names[path]), prepend=path not in undone)
        for path, module in model.named_modules()
        if path in names
    ]
    try:
        # The same dropout mask before and after training.
        with torch.no_grad(), fixed_seed(seed, gpus=True):
            loss(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _rms(value: Tensor) -> float:
    return float(value.double().square().mean().sqrt())
