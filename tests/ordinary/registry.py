"""The table of calls: which public names they are of, and which networks and data they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.ordinary.data import Kind
from tests.ordinary.networks import Network
from tests.ordinary.settings import Setting


@dataclass(frozen=True)
class Call:
    """A call with the properties that are checked of it.

    Attributes
    ----------
    names
        The public names that it calls.
    check
        Makes the call and asserts what must hold.
    takes
        Whether a network is one that it is drawn with.
    needs
        Words by which ``settings.refusal`` knows refusals that are right.
    weight
        How often it is drawn.
    """

    name: str
    names: tuple[str, ...]
    check: Callable[[Setting], object]
    takes: Callable[[Network], bool]
    needs: str
    weight: float
    rows: bool

    def fits(self, network: Network, kind: Kind) -> bool:
        """Whether a network and a kind of data go together, and with this call."""
        spatial = not network.rows
        if kind.large and network.curved and self.name not in LARGE:
            return False  # one call with integrals is enough: a table for them takes a minute
        if spatial and (kind.table or kind.columns):
            return False
        return self.takes(network) and not (self.rows and spatial)


CALLS: dict[str, Call] = {}
# Calls that are made with large numbers as well where functions have no closed form.
LARGE = ("kernels", "outputs", "empirical_ntk", "tangent_kernel", "nngp_of_function", "expansions")


def call(
    *names: str,
    takes: Callable[[Network], bool] | tuple[str, ...],
    needs: str = "",
    weight: float = 1.0,
    rows: bool = False,
) -> Callable[[Callable[[Setting], object]], Callable[[Setting], object]]:
    """Put a function into the table."""
    chosen = (lambda network: network.name in takes) if isinstance(takes, tuple) else takes

    def put(check: Callable[[Setting], object]) -> Callable[[Setting], object]:
        name = check.__name__
        assert name not in CALLS
        CALLS[name] = Call(name, names, check, chosen, needs, weight, rows)
        return check

    return put


def with_kernels(network: Network) -> bool:
    return network.kernels


def with_tangents(network: Network) -> bool:
    return network.kernels and network.tangent


def finite(network: Network) -> bool:
    return network.finite
