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

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from largen.architectures.traits import Affine, Layer, parts_of
from largen.errors import InvalidInput, instance_of
from largen.programs.builder import program_of
from largen.programs.program import Path, Program, Weight, name_of, weights_of
from largen.programs.signals import signal_of

Role = Literal["input", "hidden", "output"]


@dataclass(frozen=True)
class WeightSite:
    """A place in an architecture that holds weights.

    Attributes
    ----------
    path
        The indices of parts from the root to the layer: positions in ``serial``, 0 for the body of
        a ``Repeat``, 0 for the branch of a ``Residual`` and 1 for its shortcut, and the position of
        a branch.
    layer
        The layer that holds the weights.
    role
        Which sides of the weight grow with the width: input, hidden or output.
    in_branch
        Whether the layer is inside a residual branch, where the powers of depth apply.
    copies
        The number of copies that surrounding ``Repeat`` layers make of it; may be ``math.inf``.
    patch
        The number of features that each of its outputs sums over, per channel of the data or per
        unit of width: the size of a convolution's window, the number of positions behind
        ``Flatten``, the width ratio of the map before.
    """

    path: Path
    layer: Affine
    role: Role
    in_branch: bool
    copies: float
    patch: Fraction = Fraction(1)

    @property
    def width_ratio(self) -> Fraction:
        """The number of the layer's output features per unit of width."""
        return self.layer.width_ratio

    @property
    def name(self) -> str:
        """The path as text, such as ``"1.0.1"``."""
        return name_of(self.path)


def weight_sites(
    architecture: Layer, inputs: int | tuple[int, ...] | None = None
) -> tuple[WeightSite, ...]:
    """Return every place in a network that has weights, from input to output.

    Parameters
    ----------
    architecture
        The network.
    inputs
        Shape of a sample, (*space, channels), or D. Without it (None) positions behind
        ``Flatten`` count as one, and shapes are not checked.

    Raises
    ------
    InvalidInput
        If the network has fewer than two affine maps, or ends inside a residual branch, a
        repetition or one of several branches, or begins inside a repetition: it would have no
        separate read-in or read-out. If its read-out has a ratio of widths, or weights that are
        used elsewhere, a layer does not fit
        its input, or outputs have more than one spatial axis.

    Examples
    --------
    >>> import largen as lg
    >>> [site.role for site in weight_sites(lg.mlp(2, "tanh"))]
    ['input', 'hidden', 'output']
    """
    instance_of("net", architecture, Layer, "a network such as lg.mlp(2)")
    program = program_of(architecture, inputs)
    sites = [_site(architecture, weight) for weight in program.weights]
    if sites:
        _check_own_place(sites[0], "first", "before")
    if len(sites) < 2:
        raise InvalidInput(
            f"net: wanted at least two affine maps, a read-in and a read-out, got {architecture!r}."
        )
    _check_own_place(sites[-1], "last", "behind")
    if not _ends_with(program, len(sites) - 1):
        raise InvalidInput(
            f"net: its last affine map, {sites[-1].layer!r}, is in one of several branches, so "
            "that there is no read-out; put a Dense() behind them."
        )
    if sum(weights_of(operation).count(len(sites) - 1) for operation in program.operations) > 1:
        raise InvalidInput(
            f"net: its read-out, {sites[-1].layer!r}, has the weights of another node, of whose "
            "outputs there are as many as the width; give it weights of its own."
        )
    if sites[-1].width_ratio != 1:
        raise InvalidInput(
            f"net: its read-out, {sites[-1].layer!r}, makes as many outputs as the data have; a "
            "width_ratio is for hidden layers."
        )
    if len(behind := program.signals[-1].space or ()) > 1:
        raise _outputs_in_space(behind)
    sites[-1] = replace(sites[-1], role="output")
    return tuple(sites)


def output_positions(net: Layer, inputs: int | tuple[int, ...]) -> int | None:
    """Return the number of positions that have an output of their own; None for one output.

    Examples
    --------
    >>> import largen as lg
    >>> each = lg.serial(lg.Dense(), lg.SelfAttention(), lg.Dense())
    >>> output_positions(each, (5, 3)), output_positions(lg.mlp(1), 3)
    (5, None)
    """
    space = net.signal_behind(signal_of(inputs)).space
    return space[0] if space else None


def check_one_output(net: Layer, inputs: int | tuple[int, ...]) -> None:
    """Check that a sample has one output, or one vector of them.

    Raises
    ------
    InvalidInput
        If each of its positions has an output.
    """
    if space := net.signal_behind(signal_of(inputs)).space:
        raise _outputs_in_space(space)


def _outputs_in_space(space: tuple[int, ...]) -> InvalidInput:
    return InvalidInput(
        f"net: its outputs have spatial axes {space}; put a Flatten() or a GlobalAvgPool() "
        "before the last Dense()."
    )


def _check_own_place(site: WeightSite, end: str, where: str) -> None:
    if site.in_branch or site.copies > 1:
        raise InvalidInput(
            f"net: its {end} affine map is inside a residual branch or a repetition; put a "
            f"Dense() of its own {where} it."
        )


def _ends_with(program: Program, weight: int) -> bool:
    """Whether the output is a function of the affine map with a weight alone."""
    place = program.output
    while len(reads := program.operations[place].reads) == 1:
        if weight in weights_of(program.operations[place]):
            return True
        (place,) = reads
    return False


def _site(net: Layer, weight: Weight) -> WeightSite:
    layer = net
    for position in weight.path:
        layer = parts_of(layer)[position]
    assert isinstance(layer, Affine)
    role = "input" if weight.from_data else "hidden"
    return WeightSite(weight.path, layer, role, weight.in_branch, weight.copies, weight.patch)
