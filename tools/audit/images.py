"""Image models of timm as builders of a width and a depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from torch import nn

HEAD = 16


def _mixer(width: int, depth: int) -> nn.Module:
    mixers: Any = import_module("timm.models.mlp_mixer")
    own = {"img_size": 32, "patch_size": 8, "embed_dim": width, "num_blocks": depth}
    return mixers.MlpMixer(num_classes=10, **own)


def _made(name: str, at: Callable[[int, int], dict[str, Any]], width: int, depth: int) -> nn.Module:
    timm: Any = import_module("timm")
    return timm.create_model(name, num_classes=10, **at(width, depth))


def _vit(width: int, depth: int) -> dict[str, Any]:
    own = {"img_size": 32, "patch_size": 8, "embed_dim": width, "depth": depth}
    return {**own, "num_heads": width // HEAD}


def _convnext(width: int, depth: int) -> dict[str, Any]:
    return {"depths": (depth,) * 4, "dims": tuple(width * 2**i // 4 for i in range(4))}


def _swin(width: int, depth: int) -> dict[str, Any]:
    heads = (width // HEAD, 2 * width // HEAD)
    own = {"img_size": 32, "patch_size": 4, "window_size": 4, "embed_dim": width}
    return {**own, "depths": (depth, depth), "num_heads": heads}


def _resnet(width: int, depth: int) -> dict[str, Any]:
    channels = (width, width, 2 * width, 2 * width)
    own = {"stem_type": "deep", "stem_width": width // 2, "channels": channels}
    return {**own, "layers": (depth,) * 4}


MODELS: dict[str, tuple[str, Callable[[int, int], dict[str, Any]]]] = {
    "ViT": ("vit_tiny_patch16_224", _vit),
    "ViT with LayerScale": ("deit3_small_patch16_224", _vit),
    "ConvNeXt": ("convnext_atto", _convnext),
    "Swin": ("swin_tiny_patch4_window7_224", _swin),
    "Swin-v2": ("swinv2_tiny_window8_256", _swin),
    "ResNet": ("resnet18", _resnet),
}
TIMM: Mapping[str, Callable[..., nn.Module]] = {
    **{title: partial(_made, name, at) for title, (name, at) in MODELS.items()},
    "MLP-Mixer": _mixer,
}
