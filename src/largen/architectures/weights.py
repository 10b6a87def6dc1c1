"""Where a network's weights are, and what part each of them plays.

The rule table of a parameterization has one row for each weight. A weight's *role* is what the
powers of width depend on: which of its two sides grow.

========  ==========  ==========  =============================================
role      fan-in      fan-out     weights
========  ==========  ==========  =============================================
input     data        width       the first affine map
hidden    width       width       every affine map between
output    width       outputs     the last affine map
========  ==========  ==========  =============================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from largen.architectures.layers import Dense, Layer, Repeat, Residual, Serial
from largen.errors import InvalidInput

Role = Literal["input", "hidden", "output"]
Path = tuple[int, ...]


@dataclass(frozen=True)
class WeightSite:
    """A place in an architecture that holds weights.

    Attributes
    ----------
    path
        The way from the root to the layer: positions in ``serial``, and 0 into the branch of a
        ``Residual`` or the body of a ``Repeat``.
    layer
        The layer that holds the weights.
    role
        Which sides grow with the width.
    in_branch
        Whether it sits inside a residual branch, where the powers of depth apply.
    copies
        How many copies a surrounding ``Repeat`` makes of it.
    """

    path: Path
    layer: Layer
    role: Role
    in_branch: bool
    copies: int

    @property
    def name(self) -> str:
        """The path in words, such as ``"1.0.1"``."""
        return ".".join(map(str, self.path)) or "0"


def weight_sites(architecture: Layer) -> tuple[WeightSite, ...]:
    """Return every place that holds weights, from input to output.

    Raises
    ------
    InvalidInput
        If the network has fewer than two affine maps, or begins or ends inside a residual branch
        or a repetition: its input and output would have no place of their own.

    Examples
    --------
    >>> import largen as lg
    >>> [site.role for site in weight_sites(lg.mlp(2, "tanh"))]
    ['input', 'hidden', 'output']
    """
    sites = list(_walk(architecture, (), False, 1))
    if len(sites) < 2:
        raise InvalidInput(
            f"net: wanted at least two affine maps, a read-in and a read-out, got {architecture!r}."
        )
    for site, end in ((sites[0], "first"), (sites[-1], "last")):
        if site.in_branch or site.copies > 1:
            raise InvalidInput(
                f"net: its {end} affine map is inside a residual branch or a repetition; put a "
                f"Dense() of its own {'before' if end == 'first' else 'behind'} it."
            )
    sites[0] = replace(sites[0], role="input")
    sites[-1] = replace(sites[-1], role="output")
    return tuple(sites)


def depth(architecture: Layer) -> int:
    """Return L, the number of residual branches on the way, repetitions counted; 0 without any.

    Examples
    --------
    >>> import largen as lg
    >>> depth(lg.residual_mlp(16)), depth(lg.mlp(3))
    (16, 0)
    """
    match architecture:
        case Serial(layers):
            return sum(map(depth, layers))
        case Repeat(layer, times):
            return times * depth(layer)
        case Residual():
            return 1
    return 0


def _walk(layer: Layer, path: Path, in_branch: bool, copies: int) -> Iterator[WeightSite]:
    match layer:
        case Serial(layers):
            for position, inner in enumerate(layers):
                yield from _walk(inner, (*path, position), in_branch, copies)
        case Repeat(inner, times):
            yield from _walk(inner, (*path, 0), in_branch, copies * times)
        case Residual(branch):
            yield from _walk(branch, (*path, 0), True, copies)
        case Dense():
            yield WeightSite(path, layer, "hidden", in_branch, copies)
