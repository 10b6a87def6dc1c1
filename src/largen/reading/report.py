"""What was read of a model, as text."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING

from largen.errors import LargenError
from largen.kernels.nngp_ntk import prepare
from largen.parameterizations import ntk
from largen.reading.laws import Constant
from largen.reading.sections import sections
from largen.text import aligned

if TYPE_CHECKING:
    from largen.reading.model import Model
    from largen.reading.weight import Weight

HEAD = ("weight", "fan-in", "law", "σ_w²", "bias", "σ_b²")


def report(net: Model) -> str:
    """Return the report of a model: its affine maps with their constants, and what follows."""
    rows = [HEAD, *(_row(net, weight) for weight in net.weights)]
    how = "read as it is, where all hidden layers are taken to grow"
    if net.widths:
        how = f"read at widths {net.widths[0]} and {net.widths[1]}"
    title = f"{net.name}, {how}: {len(net.weights)} affine maps"
    return "\n".join([title, *aligned(rows), *_notes(net)])


def _row(net: Model, weight: Weight) -> tuple[str, ...]:
    bias = weight.bias_law
    return (
        weight.map.weight,
        _fan_in(net, weight),
        _law(weight.law.kind, weight.law.relative_error),
        _constant(weight.weight_variance, net.widths),
        "none" if bias is None else _law(bias.kind, bias.relative_error),
        "" if bias is None else _constant(weight.bias_variance, net.widths),
    )


def _law(kind: str, error: float) -> str:
    return f"{kind} ±{100 * error:.1g} %" if error else kind


def _fan_in(net: Model, weight: Weight) -> str:
    """Return the fan-in as a multiple of the width n, or as a number."""
    sizes = [
        prod(net.family.at(width)[weight.map.weight].shape[axis] for axis in weight.map.fan_in)
        for width in net.widths or (None,)
    ]
    if len(set(sizes)) == 1:
        return str(sizes[0])
    share = Fraction(sizes[0], net.widths[0])
    return "n" if share == 1 else f"{share} n"


def _constant(constant: Constant, widths: tuple[int, ...]) -> str:
    value, power = constant
    if not power or not value:
        return f"{value:.4g}"
    return f"{value:.3g} (n/{widths[0]})^({power})"


def _notes(net: Model) -> Iterator[str]:
    """Yield what follows from the constants, a line each."""
    biases = [w for w in net.weights if w.bias_variance.value and (w.bias_variance.power or 0) < 0]
    if biases:
        names = ", ".join(str(w.map.bias) for w in biases)
        yield (
            f"vanishing biases: {names}. They may still be most of the variance at the width in "
            "hand: net.kernel(x, width=n) has them, net.kernel(x) has not."
        )
    for weight in net.not_gaussian:
        yield (
            f"not Gaussian: {weight.node}, sums of {weight.fan_in} numbers, excess kurtosis about "
            f"{weight.excess:.2g}. net.kernel(x) integrates over their law where the inputs are "
            "vectors and a function follows; net.layer has a Gaussian read-in."
        )
    yield from _of_matrices(net)
    if frozen := [w.map.weight for w in net.weights if w.map.weight in net.family.frozen]:
        yield (
            f"frozen: {', '.join(frozen)}. The NTK of net.kernel(x) is over all parameters; "
            "net.kernel(x, width=n, rates=1.0) is over those that are trained."
        )
    yield f"no limit: {net.why_not}." if net.why_not else _of_kernels(net)
    if net.unread:
        yield f"other theories: none. {net.unread}"
        return
    yield from sections(net)


def _of_matrices(net: Model) -> Iterator[str]:
    """Yield what is said of orthogonal and of shared weights."""
    if orthogonal := [w.map.weight for w in net.weights if w.law.kind == "orthogonal"]:
        yield f"orthogonal: {', '.join(orthogonal)}, which have the limit of independent entries."
    if shared := [n for n, does in net.nodes.does.items() if isinstance(does, tuple)]:
        yield (
            f"weights used again: in {', '.join(shared)}. Kernels know shared weights; theories of "
            "training beyond kernels do not."
        )


def _of_kernels(net: Model) -> str:
    """Return whether the network has kernels, and if not, why."""
    if net.unread:
        return (
            "kernels: net.kernel(x) runs the model at populations of neurons, with error bars. "
            "net.check() draws the model and compares."
        )
    try:
        with net.named():
            prepare(net.layer, ntk(), net.inputs)
    except LargenError as error:
        sampled = "populations of neurons, with error bars" if net.widths else "none"
        return f"kernels: {sampled}. {error}"
    return "kernels: net.kernel(x). net.check() draws the model and compares."
