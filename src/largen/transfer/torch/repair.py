"""What to change in a plan whose updates grow or fade with the size, by measured powers.

A slope p, rounded to halves, is removed by the power −p of one setting, the first that applies:

1. the start of a tensor inside: the initial values of the last weights before it that set its size
2. a weight's effect on its tensor: the weight's rate
3. the effect on the input of a module that grows with the width: the rate of the weight with the
   largest share
4. attention logits: the factor of queries or keys
5. the output, by weights that act inside first: the factor of the output
6. the output, by weights that act on it first: their rates

Under gradient descent, and in depth, rates alone are changed, by the effects on the output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import log2
from typing import Any

import torch
from torch import Tensor, nn

from largen.transfer.corrections import Correction
from largen.transfer.torch.effects import Pass, as_in_training, forward
from largen.transfer.torch.names import modules, parameters
from largen.transfer.torch.process import fixed_seed
from largen.transfer.torch.surveys import Specimens
from largen.transfer.verdicts import FADES, SINGLE, START, Layout, fades, grows, largest
from largen.transfer.verifying import Slopes

SETS_SIZE = 0.5  # change of log₂ of a size when weights are doubled, above which they set it
SHARE = 0.1  # of the sum over weights, above which a single weight's slope counts
EXACT = 1e-3
SIDES = ("input", "output")


def next_corrections(
    networks: Specimens, survey: Slopes, corrections: Sequence[Correction], tried: list[str]
) -> list[Correction]:
    """Return the corrections of the first kind that applies.

    ``tried``: tensors whose start was corrected, to which this one is added; each at most twice.
    """
    found = _starts(networks, survey, corrections, tried)
    if found:
        return found
    if networks.along == "depth" or networks.squares:
        return _rates(networks, survey)
    for kind in (_on_tensors, _on_inputs):
        found = kind(survey)
        if found:
            return found
    return _on_logits(networks, survey, corrections) or _on_output(survey)


def _half(fit: tuple[float, float] | None) -> float:
    """Return a slope rounded to halves."""
    return 0.0 if fit is None else round(2 * fit[0]) / 2


def _starts(
    networks: Specimens, survey: Slopes, corrections: Sequence[Correction], tried: list[str]
) -> list[Correction]:
    """Correct the initial values behind the first tensor that starts too large."""
    layout, letter = survey.layout, "l" if networks.along == "depth" else "n"
    places = [(i, path, side) for i, path in enumerate(layout.modules) for side in SIDES if path]
    for i, path, side in places:
        place = f"{side} of {path}"
        fit = survey.fits.get(("start", place, ""))
        skip = path in layout.final or tried.count(place) > 1
        if skip or not grows(fit) or not _half(fit):
            continue
        if side == "input" and not _widens(survey, path):
            continue
        tried.append(place)
        for names in _behind(layout, i, path, side):
            if _sets(networks, corrections, path, side, names):
                return [Correction("init", n, -_half(fit), letter) for n in names]
    return []


def _behind(layout: Layout, i: int, path: str, side: str) -> Iterator[list[str]]:
    """Yield the weights of the modules in front of a tensor, the last first; matrices first."""
    for other in reversed(layout.modules[: i + (side == "output")]):
        if side == "input" and f"{other}.".startswith(f"{path}."):
            continue
        names = [name for name, holder in layout.holders.items() if holder == other]
        vectors = [name for name in names if name in layout.vectors]
        matrices = [name for name in names if name not in layout.vectors]
        yield from (some for some in (matrices, vectors) if some)


def _widens(survey: Slopes, path: str) -> bool:
    """Whether the input of a module grows with the size."""
    return survey.largest.inputs.get(path, 0) > survey.layout.inputs.get(path, 0)


def _pass(
    networks: Specimens,
    corrections: Sequence[Correction],
    doubled: Collection[str] = (),
    module: str | None = None,
) -> Pass:
    """Call the largest network with some weights, or the output of a module, doubled."""
    args, kwargs = networks.inputs[-1]
    model = networks.plan(-1, corrections).build(seed=0, device="cpu")
    with torch.no_grad():
        for name, weight in parameters(model).items():
            if name in doubled:
                weight.mul_(2.0)
    if module is not None:
        modules(model)[module].register_forward_hook(_double, prepend=True)
    with as_in_training(model), fixed_seed(0):
        return forward(model, args, kwargs)


def _double(module: nn.Module, args: tuple, output: Any) -> Any:
    return 2 * output if isinstance(output, Tensor) else output


def _sets(
    networks: Specimens,
    corrections: Sequence[Correction],
    path: str,
    side: str,
    names: Sequence[str],
) -> bool:
    """Whether the size of a tensor follows these weights."""

    def size(doubled: Collection[str]) -> float:
        passed = _pass(networks, corrections, doubled)
        z = (passed.inputs if side == "input" else passed.outputs)[path]
        return float(z.detach().double().square().mean().sqrt())

    return log2(max(size(names), 1e-30) / max(size(()), 1e-30)) > SETS_SIZE


def _rates(networks: Specimens, survey: Slopes) -> list[Correction]:
    """Correct rates by the effects on the output."""
    letter, scale = ("l" if networks.along == "depth" else "n"), 2.0
    return [
        Correction("lr", place, -_half(fit), letter)
        for (kind, place, _), fit in survey.fits.items()
        if kind == "copies"
        and (grows(fit, START, scale) or fades(fit, FADES, scale))
        and _half(fit)
    ]


def _on_tensors(survey: Slopes) -> list[Correction]:
    """Correct the rates of weights by their effects on the tensors that they act on first."""
    found = []
    for name in survey.layout.inner:
        fit = survey.fits.get(("tensor", "", name))
        if fades(fit, FADES):
            fit = largest(survey.fits, survey.layout, name)
        alone = survey.layout.alone(name)
        if fit is not None and (grows(fit) or (alone and fades(fit, FADES))) and _half(fit):
            found.append(Correction("lr", name, -_half(fit)))
    return found


def _on_inputs(survey: Slopes) -> list[Correction]:
    """Correct the rate of the weight that moves the input of a later module most."""
    last = survey.rows[-1][0]
    for path in survey.layout.modules:
        if not (_widens(survey, path) and grows(survey.fits.get(("input", path, "")))):
            continue
        names = survey.layout.holders
        name = max(names, key=lambda name: last.get(("input", path, name), 0.0))
        fit = survey.fits.get(("input", path, name))
        if grows(fit) and _half(fit):
            return [Correction("lr", name, -_half(fit))]
    return []


def _on_logits(
    networks: Specimens, survey: Slopes, corrections: Sequence[Correction]
) -> list[Correction]:
    """Correct the factor of logits: on the key of PyTorch's attention, else in queries or keys."""
    found = []
    for (kind, place, name), fit in survey.fits.items():
        if kind != "logits" or name or not grows(fit) or not _half(fit):
            continue
        path, _, number = place.rpartition("#")
        power = -_half(fit)
        reference = _pass(networks, corrections)
        model = networks.plan(-1, ()).build(seed=0, device="cpu")
        if isinstance(modules(model).get(path), nn.MultiheadAttention):
            found.append(Correction("attention", path, power))
            continue
        logits = reference.logits[int(number)][1].detach()
        for module in reversed(survey.layout.modules):
            names = [w for w, holder in survey.layout.holders.items() if holder == module]
            if not any((kind, place, w) in survey.fits for w in names):
                continue
            again = _pass(networks, corrections, module=module).logits[int(number)][1].detach()
            if (again - 2 * logits).abs().max() < EXACT * logits.abs().max():
                found += [Correction(what, w, power) for w in names for what in ("init", "lr")]
                break
    return found


def _on_output(survey: Slopes) -> list[Correction]:
    """Correct the factor of the output, or the rates of weights that act on it first."""
    fits, layout, last = survey.fits, survey.layout, survey.rows[-1]
    sums = {n: sum(row.get(("output", "", n), 0.0) for row in last) for n in layout.inner}
    whole = sum(sums.values()) or 1.0
    heavy = [
        fits["output", "", n]
        for n in layout.inner
        if sums[n] > SHARE * whole and ("output", "", n) in fits
    ]
    top, fit = max(heavy, default=None), fits.get(("output", "inner", ""))
    fit = top if grows(top, SINGLE) else fit
    if fit is not None and (grows(fit, SINGLE) or fades(fit, FADES)) and _half(fit):
        return [Correction("output", "", -_half(fit))]
    found = []
    for name in layout.holders:
        fit = fits.get(("output", "", name)) if name in layout.last else None
        if fit is not None and (grows(fit, SINGLE) or fades(fit, FADES)) and _half(fit):
            found.append(Correction("lr", name, -_half(fit)))
    return found
