"""Fields of configurations by their usual names, and their values at a width and a depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = 16  # dimension of a head
# Fields that are multiples of the width.
WIDTHS: Mapping[str, float] = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim", "word_embed_proj_dim",
         "attention_hidden_size", "output_hidden_size", "d_attn", "lru_width",
         "qk_dim", "v_dim"), 1.0
    ),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim",
         "hidden_dim", "ffn_hidden_size", "d_inner", "speech_encoder_intermediate_size",
         "mlp_hidden_size", "ffn_intermediate_size"), 2.0
    ),
    **dict.fromkeys(
        ("moe_intermediate_size", "shared_expert_intermediate_size", "expert_intermediate_size"),
        1.0,
    ),
}  # fmt: skip
HEADS = frozenset({
    "num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads",
    "decoder_attention_heads", "num_decoder_attention_heads", "num_encoder_attention_heads",
    "num_key_value_heads", "num_kv_heads", "attention_heads", "mamba_n_heads",
})  # fmt: skip
HEAD_SIZES = frozenset({
    "head_dim", "d_kv", "kv_channels", "d_head", "attention_head_dim", "v_head_dim",
    "qk_nope_head_dim", "global_head_dim",
})  # fmt: skip
DEPTHS = frozenset({
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
    "num_decoder_layers", "num_encoder_layers",
})  # fmt: skip
# Sizes that are fixed while the model grows.
FIXED: Mapping[str, Any] = {
    "vocab_size": 61, "max_position_embeddings": 64, "n_positions": 64,
    "max_target_positions": 64, "max_source_positions": 16, "n_ctx": 64, "type_vocab_size": 2,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_group": 1, "topk_group": 1, "n_shared_experts": 1, "moe_num_experts": 4, "moe_top_k": 2,
    "moe_topk": 2, "num_shared_experts": 1,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "query_pre_attn_scalar": 16,
    "state_size": 8, "chunk_size": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "cls_token_id": 1, "sep_token_id": 2, "decoder_start_token_id": 1, "mask_token_id": 3,
    "image_size": 32, "patch_size": 8, "num_labels": 10, "num_mel_bins": 8, "use_mambapy": False,
    "feat_extract_dropout": 0.0, "conv_dim": (16, 16), "conv_stride": (5, 2),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "embedding_size": 16, "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": 61, "layerdrop": 0.0, "first_k_dense_replace": 1,
    "decoder_sparse_step": 1, "n_mels": 8, "attention_window": 8,
    "sliding_window": 8, "apply_spec_augment": False, "rotary_dim": HEAD,
}  # fmt: skip


def fields_at(config: Any, width: int, depth: int, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration at a width and a depth.

    Parameters
    ----------
    config
        A configuration with default values, which defines the fields.
    width, depth
        Width and depth of the model.
    own
        Fields with values of their own: numbers, or functions of width and depth; ``heads`` is a
        fixed number of heads, whose dimension then grows.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> config = SimpleNamespace(hidden_size=1, num_hidden_layers=1, num_heads=1, vocab_size=1)
    >>> fields_at(config, 64, 3, {})
    {'hidden_size': 64, 'num_hidden_layers': 3, 'num_heads': 4, 'vocab_size': 61}
    """
    own = dict(own)
    heads = own.pop("heads", width // HEAD)
    found: dict[str, Any] = {}
    renamed = dict(getattr(config, "attribute_map", {}))
    for name in dict.fromkeys((*vars(config), *renamed)):
        value = getattr(config, name, None)
        if name in WIDTHS:
            if not isinstance(value, (list, tuple)):
                found[name] = round(WIDTHS[name] * width)
        elif name in HEADS:
            found[name] = heads
        elif name in HEAD_SIZES:
            found[name] = width // heads
        elif name in DEPTHS:
            found[name] = depth
        elif name in FIXED:
            found[name] = FIXED[name]
    if "qk_rope_head_dim" in found and "head_dim" in found:
        found["head_dim"] = found["qk_rope_head_dim"]  # of the part of a head that is rotated
    found |= _of_kinds(config, depth)
    if hasattr(config, "num_labels"):
        found["num_labels"] = FIXED["num_labels"]
    of_stages = _of_stages(config, width, depth)
    if of_stages:
        found = {k: v for k, v in found.items() if k not in DEPTHS} | of_stages
    for name, value in own.items():
        found[name] = value(width, depth) if callable(value) else value
    for name, new in renamed.items():
        if new in found:
            found.pop(name, None)
    return found


def _of_kinds(config: Any, depth: int) -> dict[str, Any]:
    """Return the kinds of layers of a model that has several: the first two take turns.

    Few layers of a model would otherwise lack those kinds that only its deeper ones have.
    """
    kinds = list(dict.fromkeys(vars(config).get("layer_types") or ()))[:2]
    if len(kinds) < 2:
        return {}
    found = {"layer_types": [kinds[i % 2] for i in range(depth)]}
    if perceptrons := vars(config).get("mlp_layer_types"):
        found["mlp_layer_types"] = [perceptrons[-1]] * depth
    return found


def _of_stages(config: Any, width: int, depth: int) -> dict[str, Any]:
    """Return the fields of an image model that have one entry for each stage."""
    found: dict[str, Any] = {}
    stages = getattr(config, "depths", None)
    if not isinstance(stages, (list, tuple)):
        return found
    found["depths"] = [depth] * len(stages)
    for name in ("hidden_sizes", "embed_dims", "encoder_hidden_sizes"):
        if isinstance(getattr(config, name, None), (list, tuple)):
            found[name] = [width * 2**i // 2 for i in range(len(stages))]
    if isinstance(getattr(config, "num_heads", None), (list, tuple)):
        found["num_heads"] = [width * 2**i // HEAD for i in range(len(stages))]
    return found | {"image_size": 64, "patch_size": 4}
