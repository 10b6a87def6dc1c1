"""What other rooms of the library say of a model, as lines of its report."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from largen.criticality import critical_initialization, variance_fixed_points
from largen.errors import LargenError, NotGaussian
from largen.programs import Affine, Function, join_elementwise, program_of

if TYPE_CHECKING:
    from largen.criticality import FixedPoint
    from largen.reading.model import Model


def sections(net: Model) -> Iterator[str]:
    """Yield a line or more for each question; one says why it does not apply."""
    for name, section in SECTIONS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotGaussian)  # the report says it
                lines = list(section(net))
        except (LargenError, jax.errors.JAXTypeError) as error:  # the latter inside a jit
            said = str(error).partition("\n")[0].removeprefix("lg.read: ").removeprefix("net: ")
            lines = [f"does not apply: {said}"]
        yield from (f"{name}: {line}" for line in lines)


def _width(net: Model) -> int | None:
    """Return the width whose constants are shown where there is no limit, or it says too little."""
    return net.widths[0] if net.widths else None


def _where(net: Model, width: int | None) -> str:
    if not net.widths:
        return "with the constants of the module"
    return "in the limit" if width is None else f"with the constants of width {width}"


def _signal(net: Model) -> Iterator[str]:
    width = _width(net) if net.why_not else None
    found = net.propagation(width=width)
    variance, chi = found.variance.mean(axis=1), found.chi_perp.mean(axis=1)
    growth = float(np.nanprod(chi[:-1]))
    shown_at = np.unique(np.linspace(0, len(variance) - 1, min(len(variance), 6)).astype(int))
    numbers = " → ".join(f"{variance[i]:.3g}" for i in shown_at)
    first, before, last = found.layers[0], found.layers[-2:][0], found.layers[-1]
    back = f"; mean square of gradients × {growth:.3g} from {before} back to {first}"
    yield (
        f"variance {numbers} from {first} to {last} {_where(net, width)}"
        f"{back if before != first else ''}."
    )


def _depth(net: Model) -> Iterator[str]:
    found = net.depth(width=_width(net) if net.why_not else None)
    yield repr(found).removeprefix("Depth: ") + "."


def _criticality(net: Model) -> Iterator[str]:
    """Yield what the constants of affine maps behind functions of affine maps do."""
    width = _width(net) if net.why_not else None
    graph = net.layer if width is None else net.at(width)
    program = join_elementwise(program_of(graph, net.inputs))
    found: dict[tuple[Any, float, float], list[str]] = {}
    depth = 0
    for place in program.cuts[2:-1]:
        operation, before = program.operations[place], program.operations[place - 1]
        fed = program.operations[before.reads[0]] if isinstance(before, Function) else None
        if isinstance(operation, Affine) and isinstance(fed, Affine) and place - 1 in program.cuts:
            weight = program.weights[operation.weight]
            constants = (before.phi, weight.weight_std, weight.bias_std)  # pyright: ignore
            found.setdefault(constants, []).append(program.sources[place].node)
            depth += 1
    if not found:
        yield (
            "does not apply: no hidden affine map follows a function of another one without "
            "normalisations and skips."
        )
    for (phi, weight_std, bias_std), names in found.items():
        where = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} (×{len(names)})"
        best = critical_initialization(phi, depth=max(depth, 1))
        points = variance_fixed_points(phi, weight_std=weight_std, bias_std=bias_std)
        fixed = points.reached_from(1.0)
        yield (
            f"{where}, {phi}: σ_w {weight_std:.3g}, σ_b {bias_std:.3g}: {_phase(fixed)}; critical "
            f"σ_w {best.weight_std:.4g}, σ_b {best.bias_std:.3g}."
        )


def _phase(point: FixedPoint | None) -> str:
    if point is None:
        return "variances grow without bound"
    scale = point.correlation_depth
    name = "ordered" if point.chi_perp < 1 else "chaotic"
    if abs(point.chi_perp - 1) < 1e-6:
        name = "critical"
    size = "" if np.isinf(scale) else f", correlations settle by e in {abs(scale):.3g} layers"
    return f"{name}, K → {point.variance:.3g}, χ_⊥ {point.chi_perp:.4g} a layer{size}"


def _class(net: Model) -> Iterator[str]:
    for optimizer in ("gd", "adam"):
        found = net.classify(optimizer)
        rate = found.stable_rate
        behind = "" if rate is None else f", and stable if all rates fall as width^(-{rate})"
        yield f"{optimizer} at one rate for all parameters: {found.kind}{behind}."


def _rates(net: Model) -> Iterator[str]:
    width = _width(net)
    rate = net.critical_rate(width=width)
    where = "" if width is None else f" at width {width}"
    yield (
        f"gradient descent on the {len(net.family.x)} samples{where} is stable below {rate:.3g} "
        "for the mean of ½(f − y)², one rate for all parameters, as long as the tangent kernel "
        "stays what it is at initialisation. It is no bound for Adam, which rescales gradients."
    )


def _corrections(net: Model) -> Iterator[str]:
    if not net.widths:
        yield "does not apply: one module says nothing of other widths."
        return
    found = net.corrections(width=net.widths[0])
    text = "; ".join(" ".join(line.split()) for line in repr(found).splitlines()[1:])
    yield f"at width {net.widths[0]}, of single networks relative to the mean: {text}."


SECTIONS: dict[str, Callable[[Any], Iterator[str]]] = {
    "signal": _signal,
    "depth": _depth,
    "criticality": _criticality,
    "class": _class,
    "rates": _rates,
    "finite width": _corrections,
}
