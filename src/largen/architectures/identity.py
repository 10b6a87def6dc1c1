"""Fingerprints of networks, which identify them in saved files."""

from __future__ import annotations

import numpy as np

from largen.architectures.traits import Elementwise, Layer
from largen.architectures.walks import layers_of

# Points at which activations are compared: generic numbers on both sides of zero.
PROBES = (-2.3, -0.7, -0.1, 0.4, 1.1, 3.7)


def fingerprint(net: Layer) -> str:
    """Return the text of the network, followed by values of its activations.

    Functions of the same name may differ, and may be edited between two runs. Their values to five
    digits distinguish them, and are the same on all machines.

    Examples
    --------
    >>> import largen as lg
    >>> fingerprint(lg.Activation(lambda x: x)) == fingerprint(lg.Activation(lambda x: 1.001 * x))
    False
    """
    probes = np.array(PROBES, np.float32)
    activations = (layer for layer in layers_of(net) if isinstance(layer, Elementwise))
    values = (value for each in activations for value in np.asarray(each.activation(probes)))
    return " ".join([repr(net), *(f"{value:.4e}" for value in values)])
