"""The rule of finite networks for the order of a sample's axes."""

from __future__ import annotations

import jax.numpy as jnp

from largen.architectures import Axes
from largen.networks.modules import Features, Frame, Module, Path, build, weightless


@build.register(Axes)
def axes(layer: Axes, frame: Frame, path: Path, features: Features) -> Module:
    """Return samples with the axis of channels last."""
    at = layer.channels
    behind = (*features[:at], *features[at + 1 :], features[at])
    return weightless(lambda x: jnp.moveaxis(x, at + 1, -1), behind)
