"""Transformers: for images as in Bordelon et al. (2023), appendix A.3, and for characters."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from examples.models.residual_mlp import gaussian_linear


class Attention(nn.Module):
    """Softmax attention of several heads with logits q·k/√d_head; queries start at zero.

    The further factor 1/√d_head, which gives the 1/N_q of appendix A.3, is left to the
    parameterization. The number of heads is fixed, so that their dimension grows with the width.
    """

    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.num_heads, self.causal = heads, causal
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            gaussian_linear(width, width, std) for std in (0.0, 1.0, 1.0, 1.0)
        )

    def forward(self, h: Any) -> Any:
        """Return the attention's output for ``(sample, position, width)``, of the same shape."""
        q, k, v = (
            part(h).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        logits = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if self.causal:
            future = torch.ones(logits.shape[-2:], dtype=torch.bool, device=h.device).triu(1)
            logits = logits.masked_fill(future, float("-inf"))
        return self.out_proj((logits.softmax(-1) @ v).transpose(1, 2).flatten(-2))


class TransformerBlock(nn.Module):
    """h ↦ h + attention(norm(h)), then h ↦ h + MLP(norm(h)), with or without the norms."""

    def __init__(self, width: int, heads: int, norm: bool, causal: bool = False):
        super().__init__()
        self.norm_1, self.norm_2 = (
            nn.LayerNorm(width) if norm else nn.Identity() for _ in range(2)
        )
        self.attention = Attention(width, heads, causal)
        self.fc_1, self.fc_2 = gaussian_linear(width, 4 * width), gaussian_linear(4 * width, width)

    def forward(self, h: Any) -> Any:
        """Return the features after the block, of the same shape."""
        h = h + self.attention(self.norm_1(h))
        return h + self.fc_2(nn.functional.gelu(self.fc_1(self.norm_2(h))))


class ViT(nn.Module):
    """A vision transformer with two branches a block, as in Bordelon et al. (2023), A.3.

    Parameters
    ----------
    width
        The model's dimension N, a multiple of the number of heads.
    depth
        The number of blocks, each of an attention branch and an MLP branch.
    size, channels, patch, outputs
        Side and channels of the images, side of a patch, and the number of classes.
    heads
        The number of attention heads.
    norm
        Whether there is layer normalisation at the start of each branch and before the read-out.

    Examples
    --------
    >>> ViT(16, 2)(torch.ones(5, 3, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        width: int,
        depth: int,
        size: int = 8,
        channels: int = 3,
        patch: int = 2,
        outputs: int = 10,
        heads: int = 2,
        norm: bool = False,
    ):
        super().__init__()
        self.patch = patch
        self.embed = gaussian_linear(channels * patch**2, width)
        self.positions = nn.Parameter(0.1 * torch.randn((size // patch) ** 2, width))
        self.blocks = nn.ModuleList(TransformerBlock(width, heads, norm) for _ in range(depth))
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.read_out = gaussian_linear(width, outputs)

    def forward(self, x: Any) -> Any:
        """Return outputs ``(sample, class)`` of images ``(sample, channel, height, width)``."""
        p = self.patch
        tokens = x.unflatten(3, (-1, p)).unflatten(2, (-1, p)).permute(0, 2, 4, 1, 3, 5)
        h = self.embed(tokens.flatten(3).flatten(1, 2)) + self.positions
        for block in self.blocks:
            h = block(h)
        return self.read_out(self.norm(h).mean(1))


class CharacterGPT(nn.Module):
    """A small causal transformer on characters, with layer normalisation.

    Parameters
    ----------
    width, depth, heads
        As in :class:`ViT`.
    characters
        The number of different characters.
    context
        The largest number of positions.
    norm
        Whether there is layer normalisation.

    Examples
    --------
    >>> CharacterGPT(16, 2, characters=30)(torch.zeros(5, 12, dtype=torch.long)).shape
    torch.Size([5, 12, 30])
    """

    def __init__(
        self,
        width: int,
        depth: int,
        characters: int = 96,
        context: int = 32,
        heads: int = 2,
        norm: bool = True,
    ):
        super().__init__()
        self.embed = nn.Embedding(characters, width)
        self.positions = nn.Parameter(0.1 * torch.randn(context, width))
        self.blocks = nn.ModuleList(
            TransformerBlock(width, heads, norm, causal=True) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.read_out = gaussian_linear(width, characters)

    def forward(self, codes: Any) -> Any:
        """Return logits ``(sample, position, character)`` of codes ``(sample, position)``."""
        h = self.embed(codes) + self.positions[: codes.shape[-1]]
        for block in self.blocks:
            h = block(h)
        return self.read_out(self.norm(h))
