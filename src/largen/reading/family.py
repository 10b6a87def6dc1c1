"""Models of all widths as a reading takes them, from whichever library they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from largen.errors import InvalidInput
from largen.reading.calls import Record
from largen.reading.laws import Parameter
from largen.reading.nodes import Map, Nodes
from largen.reading.reader import Reader
from largen.reading.refusals import refused

LARGE = 2**14  # the factor of widths at which powers of the width are read, without entries

UNSEEN = "it follows no power of the width at small widths, and its function needs entries"


class Family(ABC):
    """A model of every width, or of one, with the laws of its parameters.

    ``x``: the samples with which it is read; ``alone``: whether there is one width only;
    ``rules``, ``reasons``: what functions are in a graph of nodes, and why others have no rule;
    ``of_nodes``: whether mean squares of parts are those of nodes, and not of modules.
    """

    rules: ClassVar[Mapping[str, Callable[..., Any]]]
    reasons: ClassVar[Mapping[str, str]]
    of_nodes: ClassVar[bool] = False
    alone: bool = False
    x: np.ndarray

    @property
    def sample(self) -> tuple[int, ...]:
        """The shape of a sample."""
        return self.x.shape[1:]

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the model."""

    @property
    def frozen(self) -> frozenset[str]:
        """The parameters that are not trained, by name."""
        return frozenset()

    @property
    @abstractmethod
    def takes_integers(self) -> bool:
        """Whether samples are numbers of the rows of an embedding."""

    @abstractmethod
    def at(self, width: int | None, *, meta: bool = False) -> dict[str, Parameter]:
        """Return the laws of the parameters at a width, by name.

        ``meta``: whether parameters are to have shapes but no entries.
        """

    @abstractmethod
    def recorded(self, width: int | None) -> Record:
        """Return the forward pass at a width."""

    def calls(self, width: int | None) -> Record:
        """Return the forward pass at a width as populations of neurons run it."""
        return self.recorded(width)

    @abstractmethod
    def kernels(
        self, last: Map, x: np.ndarray, width: int, seeds: range
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Return K and Θ of models at initialisation, and mean squares of what their parts make.

        K is f(x) f(x')/outputs, and Θ = Σ_k Var(θ_k) ∂f(x)/∂θ_k ∂f(x')/∂θ_k, (seed, n, n) each;
        mean squares of modules without parts are by path in the order of the forward pass, (seed,
        n), and of functions by node.
        """

    @abstractmethod
    def sampler(self, widths: tuple[int, int]) -> Any:
        """Return populations of neurons of the model, or refuse them by name."""

    def at_large(self, width: int) -> tuple[dict[str, Parameter], dict[str, Parameter]]:
        """Return the laws at a very large width and at twice that width."""
        real = self.at(width)
        found = []
        for factor in (LARGE, 2 * LARGE):
            far = self.at(width * factor, meta=True)
            # Functions that look at entries do nothing without them.
            found.append(
                {
                    name: p if _kind(p) == _kind(real[name]) else p._replace(law=None, why=UNSEEN)
                    for name, p in far.items()
                }
            )
        one, two = found
        return one, two

    def nodes(self, width: int | None) -> Nodes:
        """Return the nodes of the model at one width."""
        reader = Reader(self.recorded(width), self.at(width), alone=self.alone)
        return reader.read(self.rules, self.reasons)

    def nodes_at_two(self, widths: tuple[int, int]) -> tuple[Nodes, Nodes]:
        """Return the nodes of the model at two widths."""
        records = [self.recorded(width) for width in widths]
        _check_same(records[0], records[1], widths)
        small, large = (self.at(width) for width in widths)
        if all(small[name].shape == large[name].shape for name in small):
            raise InvalidInput(
                f"make: no axis of a parameter changes between the widths {widths[0]} and "
                f"{widths[1]}; it has to use its argument."
            )
        one = Reader(records[0], small, records[1], large).read(self.rules, self.reasons)
        two = Reader(records[1], large).read(self.rules, self.reasons)
        if found := one.difference(two):
            raise refused(
                found,
                f"constants or operations differ between the widths {widths[0]} and {widths[1]}, "
                "other than factors before or behind the weights of one affine map",
            )
        return one, two


def _kind(parameter: Parameter) -> str | None:
    return None if parameter.law is None else parameter.law.kind


def _check_same(one: Record, two: Record, widths: tuple[int, int]) -> None:
    """Check that two widths do the same operations."""
    for a, b in zip(one.calls, two.calls, strict=False):
        if (a.op, a.module) != (b.op, b.module):
            raise refused(
                a.place,
                f"the forward pass does something else at widths {widths[0]} and {widths[1]}, "
                f"first here, where the wider one does {b.op} in {b.module or 'forward'}",
            )
    if len(one.calls) != len(two.calls):
        raise refused(
            "forward",
            f"it has {len(one.calls)} operations at width {widths[0]} and {len(two.calls)} at "
            f"width {widths[1]}; wanted the same at all widths",
        )
