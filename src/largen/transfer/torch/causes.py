"""What is known of a model whose plan is wrong, and what no power of a setting corrects."""

from __future__ import annotations

import torch
from torch import Tensor

from largen.transfer.rules import branch_multiplier, ratios
from largen.transfer.shapes import Shapes
from largen.transfer.torch.facts import Facts
from largen.transfer.torch.layouts import fan_in_axes
from largen.transfer.torch.names import parameters
from largen.transfer.torch.surveys import Specimens, names_of
from largen.transfer.verdicts import CERTAIN, Fits, fades
from largen.transfer.verified import Verification

SHARE = 0.2  # of a layer's inputs, above which those of fixed size are said to be many


def cause_of(found: Verification, specimens: Specimens, fits: Fits) -> str:
    """Return the fault of the networks of a wrong verdict; empty if none is known."""
    if found.along == "depth":
        return _equal_copies(specimens) or _vanishing_branches(specimens, fits)
    return _mixed_inputs(specimens) if {e.kind for e in found.flags} == {"output"} else ""


def _equal_copies(specimens: Specimens) -> str:
    """Whether blocks start with the same random matrices, so that branches add up."""
    if specimens.request.scheme.branch >= 1:
        return ""
    plan, names = specimens.plan(-1, ()), names_of(specimens.facts[-1], specimens.along)
    weights, again = (parameters(plan.build(seed=seed, device="cpu")) for seed in (0, 1))
    first: dict[str, Tensor] = {}
    for name, weight in weights.items():
        other = first.setdefault(names[name], weight)
        random = weight.ndim > 1 and not torch.equal(weight, again[name])
        if other is not weight and random and torch.equal(weight, other):
            return (
                f"copies of {names[name]} start with equal values, as those of "
                "nn.TransformerEncoder do, so that l branches add up to l times one of them: draw "
                "the values of every block again in make_model, or take scheme='complete_p'"
            )
    return ""


def _vanishing_branches(specimens: Specimens, fits: Fits) -> str:
    """Whether the residual stream behind all blocks starts smaller in deeper models.

    Branches l^(−½) or larger keep their random sum, so that other faults make it smaller then.
    """
    if 2 * specimens.request.scheme.branch <= 1:
        return ""
    deepest = specimens.facts[-1]
    inside = tuple(f"{deepest.names[path]}." for path in deepest.blocks)
    for (kind, place, _), fit in fits.items():
        side, _, path = place.partition(" of ")
        outside = kind == "start" and side == "input" and not f"{path}.".startswith(inside)
        if outside and fades(fit, CERTAIN):
            factor = ratios(branch_multiplier(specimens.request.scheme))
            return (
                f"before training, the {place} fades by l^({fit[0]:+.2f} ± {fit[1]:.2f}): at the "
                "base's depth, random branches make much of the residual stream, and behind more "
                f"of them, × {factor}, less of it is left. Make the base's branches smaller beside "
                "its embeddings, or take scheme='depth_mup', which keeps their sum"
            )
    return ""


def _mixed_inputs(specimens: Specimens) -> str:
    """Name layers that read many features of fixed size beside those that grow."""
    largest = specimens.facts[-1]
    mixed = [
        f"{name} ({fixed} of {whole} at the base)"
        for name in largest.uses
        for fixed, whole in [_fixed_inputs(largest, largest.sizes, name)]
        if fixed > SHARE * whole
    ]
    if not mixed:
        return ""
    return (
        f"of the inputs of {', '.join(mixed[:3])} many have fixed sizes, which need the rate and "
        "the initial values of an input layer, beside features that grow: make two layers, one for "
        "each kind of inputs, whose outputs are added"
    )


def _fixed_inputs(facts: Facts, sizes: Shapes, name: str) -> tuple[int, int]:
    """Return the number of a weight's inputs that do not grow with the width, and of all."""
    own = facts.names[name]
    small, large = facts.shape("base", own), facts.shape("wide", own)
    module, leaf = facts.holder(name)
    axes = fan_in_axes(module, leaf, len(small), facts.summed_axes(name))
    pairs = [(small[i], large[i]) for i in axes if i < len(small) and small[i] != large[i]]
    if len(pairs) != 1:
        return 0, 1
    ((before, after),) = pairs
    grown = sizes.widening
    return max(0, round((grown * before - after) / (grown - 1))), before
