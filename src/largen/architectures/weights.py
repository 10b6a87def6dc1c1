"""The places and the roles of a network's weights.

The rule table of a parameterization has one row for each weight. The powers of width depend on a
weight's *role*: which of its two sides grow with the width.

========  ==========  ==========  =============================================
role      fan-in      fan-out     weights
========  ==========  ==========  =============================================
input     data        width       the affine maps that read the data
hidden    width       width       every affine map between
output    width       outputs     the last affine map
========  ==========  ==========  =============================================
"""

from __future__ import annotations

from largen.architectures.traits import Layer
from largen.errors import InvalidInput, instance_of
from largen.programs.builder import program_of
from largen.programs.operations import Affine
from largen.programs.program import Program, Weight


def weight_sites(
    architecture: Layer, inputs: int | tuple[int, ...] | None = None
) -> tuple[Weight, ...]:
    """Return the weights of a network but for gains, from input to output.

    ``inputs``: shape of a sample, (*space, channels), or D. Without it (None) positions behind
    ``Flatten`` count as one, and shapes are not checked.

    Examples
    --------
    >>> import largen as lg
    >>> [weight.role for weight in weight_sites(lg.mlp(2, "tanh"))]
    ['input', 'hidden', 'output']
    """
    net = instance_of("net", architecture, Layer, "a network such as lg.mlp(2)")
    program = program_of(net, inputs)
    weights = tuple(weight for weight in program.weights if not weight.gain)
    for weight in weights[:1]:
        _check_own_place(weight, "first", "before")
    if len(weights) < 2:
        raise InvalidInput(
            f"net: wanted at least two affine maps, a read-in and a read-out, got {net!r}."
        )
    _check_own_place(weights[-1], "last", "behind")
    if any(weight.gain for weight in (program.weights[0], program.weights[-1])):
        raise InvalidInput(
            "net: it has trained gains before its first affine map or behind its last one; their "
            "place is between the two."
        )
    _check_read_out(program)
    if len(behind := program.signals[-1].space or ()) > 1:
        raise _outputs_in_space(behind)
    return weights


def output_positions(net: Layer, inputs: int | tuple[int, ...]) -> int | None:
    """Return the number of positions that have an output of their own; None for one output.

    Examples
    --------
    >>> import largen as lg
    >>> each = lg.serial(lg.Dense(), lg.layers.SelfAttention(), lg.Dense())
    >>> output_positions(each, (5, 3)), output_positions(lg.mlp(1), 3)
    (5, None)
    """
    space = program_of(net, inputs).signals[-1].space
    return space[0] if space else None


def check_one_output(net: Layer, inputs: int | tuple[int, ...]) -> None:
    """Check that a sample has one output, or one vector of them."""
    if space := program_of(net, inputs).signals[-1].space:
        raise _outputs_in_space(space)


def _outputs_in_space(space: tuple[int, ...]) -> InvalidInput:
    return InvalidInput(
        f"net: its outputs have spatial axes {space}; put a Flatten() or a GlobalAvgPool() "
        "before the last Dense()."
    )


def _check_own_place(weight: Weight, end: str, where: str) -> None:
    if weight.in_branch or weight.copies > 1:
        raise InvalidInput(
            f"net: its {end} affine map is inside a residual branch or a repetition; put a "
            f"Dense() of its own {where} it, or write branches of the data as a lg.layers.Graph."
        )


def _check_read_out(program: Program) -> None:
    """Check that the last affine map, which is in no repetition, makes the outputs alone."""
    last = max(n for n, each in enumerate(program.operations) if isinstance(each, Affine))
    if last not in program.cuts:
        raise InvalidInput(
            f"net: its last affine map, {program.sources[last]}, is in one of several branches, so "
            "that there is no read-out; put a Dense() behind them."
        )
    used = [weight for operation in program.operations for weight in operation.weights_used()]
    if used.count(program.operations[last].weights_used()[0]) > 1:
        raise InvalidInput(
            f"net: its read-out, {program.sources[last]}, has the weights of another node, of "
            "whose outputs there are as many as the width; give it weights of its own."
        )
    if program.weights[-1].width_ratio != 1:
        raise InvalidInput(
            f"net: its read-out, {program.sources[last]}, makes as many outputs as the data have; "
            "a width_ratio is for hidden layers."
        )
