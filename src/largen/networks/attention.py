"""The rule of finite networks for self-attention, which has no weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from largen.architectures import SelfAttention
from largen.networks.modules import Features, Frame, Module, Path, build, weightless
from largen.networks.windows import EXACT


@build.register(SelfAttention)
def self_attention(layer: SelfAttention, frame: Frame, path: Path, features: Features) -> Module:
    """Return y_p = Σ_r softmax_r(s x_p·x_r/C) x_r over all positions."""

    def attended(x):
        tokens = x.reshape(len(x), -1, x.shape[-1])
        scale = layer.logit_scale / x.shape[-1]
        logits = scale * jnp.einsum("npc,nrc->npr", tokens, tokens, precision=EXACT)
        weights = jax.nn.softmax(logits, axis=-1)
        return jnp.einsum("npr,nrc->npc", weights, tokens, precision=EXACT).reshape(x.shape)

    return weightless(attended, features)
