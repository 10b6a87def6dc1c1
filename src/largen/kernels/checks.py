"""Checks of the arguments of kernels: networks, pairs of sample sets, masks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from largen.architectures import Layer
from largen.arrays import floating, samples
from largen.errors import InvalidInput, instance_of
from largen.kernels.lower import Lowered, features_of
from largen.kernels.masked import masked
from largen.parameterizations import Parameterization


def check_network(net: Any, param: Any) -> None:
    """Check that these are a network and a parameterization, or None."""
    instance_of("net", net, Layer, "a network such as lg.mlp(3)")
    if param is not None:
        instance_of("param", param, Parameterization, "a parameterization such as lg.ntk()")


def checked_inputs(
    net: Any, inputs: tuple[Any, Any], param: Any, first: str = "x1"
) -> tuple[Any, Any]:
    """Check a network, samples of the same kind and a parameterization."""
    x1, x2 = samples(first, inputs[0]), inputs[1]
    if x2 is not None:
        x2 = floating("x2", x2, ndim=x1.ndim)
        if x1.shape[1:] != x2.shape[1:]:
            raise InvalidInput(
                f"x2: its samples have the shape {x2.shape[1:]}, those of x1 {x1.shape[1:]}; both "
                "hold the same kind of input."
            )
    check_network(net, param)
    return x1, x2


def checked_masks(masks: tuple[Any, Any], x1: Any, x2: Any, lowered: Lowered) -> tuple[Any, Any]:
    """Check masks; if only one of two sets has a mask, all positions of the other are present."""
    one = checked_mask("mask1", masks[0], x1, lowered)
    two = checked_mask("mask2", masks[1], x2, lowered)
    if x2 is None or (one is None) == (two is None):
        return one, two
    positions = (two if one is None else one).shape[1:]
    if one is None:
        return np.ones((len(x1), *positions), bool), two
    return one, np.ones((len(x2), *positions), bool)


def checked_mask(name: str, mask: Any, x: Any, lowered: Lowered) -> Any:
    """Check the mask of one set of samples against the network's positions."""
    mask = masked(name, mask, x).mask
    if mask is None:
        return None
    if x.ndim < 3:
        raise InvalidInput(f"{name}: its samples, of shape {x.shape[1:]}, have no positions.")
    wanted = jax.eval_shape(lambda x: features_of(lowered, x, None, x.dtype)[0], x).shape[:-1]
    if mask.shape != wanted:
        raise InvalidInput(
            f"{name}: wanted one entry for each position, shape {wanted}, got shape {mask.shape}."
        )
    empty = np.flatnonzero(~mask.reshape(len(mask), -1).any(axis=1))
    if len(empty):
        raise InvalidInput(f"{name}: sample {empty[0]} has no position at all.")
    return mask
