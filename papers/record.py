"""What a figure of a paper is: parts to compute, claims to check, a picture to draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from largen.experiments.claims import Claim
from papers.images import Images

if TYPE_CHECKING:
    import xarray

Report = Callable[[int, int], object]
Found = Mapping[str, "xarray.Dataset"]


@dataclass(frozen=True)
class Part:
    """A piece of the computation, kept on disk once it is done.

    Attributes
    ----------
    name
        What it is called in the saved data; a path with ``/`` for a group.
    key
        Everything that its result depends on, as text: equal keys have equal results.
    cost
        What it takes, in units of the other parts of the figure.
    compute
        Computes it; called with a function of (done, total) for progress.
    """

    name: str
    key: str
    cost: float
    compute: Callable[[Report], xarray.Dataset] = field(repr=False)


@dataclass(frozen=True)
class Figure:
    """A figure of a paper.

    Attributes
    ----------
    name
        Such as ``"004-1"``: the paper's number and the figure's.
    title
        What it shows.
    source
        The paper and the figure.
    images
        Names of the sets of images that it needs.
    settings, fast
        How much is computed by default, and quickly; printed and saved with the results.
    parts
        ``parts(settings, images)``: what is computed.
    claims
        ``claims(settings, found)`` of the parts' results by name.
    draw
        ``draw(settings, found)`` returns a matplotlib figure.
    notes
        Where the settings differ from the paper's.
    """

    name: str
    title: str
    source: str
    images: tuple[str, ...]
    settings: Any
    fast: Any
    parts: Callable[[Any, Mapping[str, Images]], Sequence[Part]] = field(repr=False)
    claims: Callable[[Any, Found], Sequence[Claim]] = field(repr=False)
    draw: Callable[[Any, Found], Any] = field(repr=False)
    notes: tuple[str, ...] = ()
