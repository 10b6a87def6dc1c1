"""The record of a figure of a paper: parts to compute, claims to check, a picture to draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from papers.claims import Claim
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
        The part's name in the saved data; a path with ``/`` for a group.
    key
        All that determines the result, as text: equal keys have equal results.
    cost
        Computing time, relative to the other parts of the figure.
    compute
        Function that computes the part; its argument is a function of (done, total) for progress.
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
        The paper's number and the figure's, such as ``"004-1"``.
    title
        Description of the figure.
    source
        The paper and the figure.
    images
        Names of the sets of images that it needs.
    settings, fast
        Settings of the default and of the fast computation; printed and saved with the results.
    parts
        ``parts(settings, images)`` → the parts to compute.
    claims
        ``claims(settings, found)`` → the claims, from the parts' results by name.
    draw
        ``draw(settings, found)`` → a matplotlib figure.
    notes
        Differences from the paper's settings.
    shares
        The name of the figure that has computed this one's parts, if there is one: their time is
        that figure's.
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
    shares: str = ""


def one_part(
    key: str, compute: Callable[[Any], xarray.Dataset]
) -> Callable[[Any, Mapping[str, Images]], Sequence[Part]]:
    """Return ``parts`` of a figure that needs no images and computes all at once.

    Parameters
    ----------
    key
        What is computed, as text; the settings are added to it.
    compute
        ``compute(settings)`` → the data of the part named ``"all"``.
    """

    def parts(settings: Any, images: Mapping[str, Images]) -> Sequence[Part]:
        return [Part("all", f"{key} {settings}", 1.0, lambda report: compute(settings))]

    return parts
