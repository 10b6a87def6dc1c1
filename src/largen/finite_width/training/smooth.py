"""The condition under which a network can be expanded in the change of its parameters."""

from __future__ import annotations

from largen.architectures import Elementwise, Layer, MaxPool, layers_of
from largen.errors import NoTheory
from largen.expectations.nodes import kinks_of


def check_smooth(net: Layer, what: str) -> None:
    """Check that a network is a smooth function of its parameters.

    Raises
    ------
    NoTheory
        The message names the layer that is not smooth.
    """
    for layer in layers_of(net):
        if isinstance(layer, MaxPool):
            where = "where two entries of a window are equal"
        elif isinstance(layer, Elementwise):
            kinks = kinks_of(layer.activation)
            if not kinks and not layer.activation.jumps:
                continue
            where = f"at {', '.join(f'{kink:g}' for kink in kinks[:4])}"
        else:
            continue
        raise NoTheory(
            f"{what}: {layer!r} is not smooth {where}. About √n neurons pass such a place during "
            "training, which derivatives do not see: the mass δ(h) that φ'' has there is missing "
            "from them, and the prediction is worse than that of the constant kernel. "
            "lg.linearize has the latter; lg.train trains the network."
        )
