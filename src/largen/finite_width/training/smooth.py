"""The condition under which a network can be expanded in the change of its parameters."""

from __future__ import annotations

from largen.architectures import Layer
from largen.errors import NoTheory
from largen.expectations.nodes import kinks_of
from largen.programs import Function, Maximum, program_of


def is_smooth(net: Layer) -> bool:
    """Whether a network is a smooth function of its parameters."""
    return _rough(net) is None


def check_smooth(net: Layer, what: str) -> None:
    """Check that a network is a smooth function of its parameters."""
    if (rough := _rough(net)) is not None:
        raise NoTheory(
            f"{what}: {rough}. About √n neurons pass such a place during training, which "
            "derivatives do not see: the mass δ(h) that φ'' has there is missing from them, and "
            "the prediction is worse than that of the constant kernel. lg.networks.linearize has "
            "the latter; lg.train trains the network."
        )


def _rough(net: Layer) -> str | None:
    """Say which layer is not smooth, and where; None if all are."""
    for operation, layer in program_of(net).with_sources():
        match operation:
            case Maximum():
                return f"{layer} is not smooth where two entries of a window are equal"
            case Function(phi=phi) if (kinks := kinks_of(phi)) or phi.jumps:
                return f"{layer} is not smooth at {', '.join(f'{kink:g}' for kink in kinks[:4])}"
    return None
