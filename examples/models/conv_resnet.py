"""Residual convolutional networks with and without normalisation."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from examples.models.residual_mlp import gaussian_linear
from largen.errors import InvalidInput

STAGES = 4
NORMS = (None, "batch", "layer")


class ConvResNet(nn.Module):
    """The simplified ResNet of Bordelon et al. (2023), appendix A.1, with options of its A.2.

    The network consists of a 3 × 3 convolution of the image, four stages of residual blocks
    h + W ∗ φ(h), between which the image is pooled to half its size and a convolution doubles the
    channels, and a read-out of all positions. With ``norm``, the branch W ∗ φ(h) is normalised
    behind the convolution: by batch normalisation, or by layer normalisation of each channel's
    image.

    Parameters
    ----------
    width
        Channels of the last stage, a multiple of 8.
    depth
        The number of residual blocks, a multiple of 4.
    size, channels, outputs
        Side of the images, a multiple of 8, their channels, and the number of classes.
    norm
        None, ``"batch"`` or ``"layer"``.
    branch
        A constant factor of the branches, β₀.
    gamma
        γ₀, by which the outputs are divided.

    Examples
    --------
    >>> ConvResNet(16, 4)(torch.ones(5, 3, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        width: int,
        depth: int,
        size: int = 8,
        channels: int = 3,
        outputs: int = 10,
        norm: str | None = None,
        branch: float = 1.0,
        gamma: float = 1.0,
    ):
        super().__init__()
        if width % 2 ** (STAGES - 1) or depth % STAGES or size % 2 ** (STAGES - 1):
            raise InvalidInput(
                f"width, depth, size: wanted multiples of {2 ** (STAGES - 1)}, {STAGES} and "
                f"{2 ** (STAGES - 1)}, got {width}, {depth}, {size}."
            )
        self.gamma = gamma
        first = width // 2 ** (STAGES - 1)
        self.stem = gaussian_conv(channels, first)
        self.stages = nn.ModuleList(
            nn.Sequential(
                *(
                    ConvBlock(first * 2**s, size // 2**s, norm, branch)
                    for _ in range(depth // STAGES)
                )
            )
            for s in range(STAGES)
        )
        self.doublings = nn.ModuleList(
            gaussian_conv(first * 2**s, first * 2 ** (s + 1)) for s in range(STAGES - 1)
        )
        positions = (size // 2 ** (STAGES - 1)) ** 2
        self.read_out = gaussian_linear(width * positions, outputs)

    def forward(self, x: Any) -> Any:
        """Return outputs ``(sample, class)`` of images ``(sample, channel, height, width)``."""
        h = self.stages[0](self.stem(x))
        for doubling, stage in zip(self.doublings, list(self.stages)[1:], strict=True):
            h = stage(doubling(nn.functional.avg_pool2d(h, 2)))
        return self.read_out(torch.relu(h).flatten(1)) / self.gamma


class ConvBlock(nn.Module):
    """h ↦ h + β₀ norm(W ∗ φ(h))."""

    def __init__(self, channels: int, size: int, norm: str | None, branch: float):
        super().__init__()
        self.conv = gaussian_conv(channels, channels)
        self.norm = normalisation(norm, channels, size)
        self.branch = branch

    def forward(self, h: Any) -> Any:
        """Return the features after the block, of the same shape."""
        return h + self.branch * self.norm(self.conv(torch.relu(h)))


def normalisation(norm: str | None, channels: int, size: int) -> nn.Module:
    """Return a normalisation of ``(sample, channel, height, width)``, or none.

    Batch normalisation uses each batch's own moments, in evaluation as well.
    """
    match norm:
        case None:
            return nn.Identity()
        case "batch":
            return nn.BatchNorm2d(channels, track_running_stats=False)
        case "layer":
            return nn.LayerNorm([size, size], elementwise_affine=False)
        case _:
            raise InvalidInput(f"norm: wanted None, 'batch' or 'layer', got {norm!r}.")


def gaussian_conv(fan_in: int, fan_out: int) -> nn.Conv2d:
    """Return a 3 × 3 convolution without bias, with weights N(0, 1/(9 fan_in))."""
    layer = nn.Conv2d(fan_in, fan_out, 3, padding=1, bias=False)
    nn.init.normal_(layer.weight, std=(9 * fan_in) ** -0.5)
    return layer
