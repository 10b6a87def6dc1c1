"""Fields of configurations by their usual names, and their values at a width and a depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.audit.layers import of_layers, of_stages

HEAD = 16  # dimension of a head
VOCABULARY = 61
# Fields that are multiples of the width.
WIDTHS: Mapping[str, float] = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim", "word_embed_proj_dim",
         "attention_hidden_size", "output_hidden_size", "d_attn", "lru_width", "qk_dim", "v_dim",
         "d_latents", "hidden_size_global", "conv_channels", "audio_hidden_size",
         "text_hidden_size", "vision_hidden_size", "encoder_hidden_size",
         "decoder_hidden_size", "cross_hidden_size"), 1.0
    ),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim",
         "hidden_dim", "ffn_hidden_size", "d_inner", "speech_encoder_intermediate_size",
         "mlp_hidden_size", "ffn_intermediate_size", "feed_forward_size",
         "shared_intermediate_size", "mamba_d_ssm"), 2.0
    ),
    **dict.fromkeys(
        ("moe_intermediate_size", "shared_expert_intermediate_size", "expert_intermediate_size",
         "shared_experts_intermediate_size", "moe_shared_expert_intermediate_size"),
        1.0,
    ),
    **dict.fromkeys(("intra_bottleneck_size", "true_hidden_size"), 1 / 2),
    **dict.fromkeys(("time_step_rank", "mamba_dt_rank"), 1 / 16),
    # Factors of all widths of a convolutional network.
    **dict.fromkeys(("depth_multiplier", "width_multiplier", "width_coefficient"), 1 / 256),
}  # fmt: skip
# Fields that are the width if they are by default, and of a fixed size otherwise.
PERHAPS_WIDTHS = frozenset({
    "embedding_size", "embedding_dim", "projection_size", "projection_dim", "entity_emb_size",
    "upsample_groups",
})  # fmt: skip
HEADS = frozenset({
    "n_head", "num_heads", "n_heads", "attention_heads", "num_kv_heads", "linear_num_key_heads",
    "linear_num_value_heads", "linear_num_heads",
})  # fmt: skip
ENDS_OF_HEADS = ("attention_heads", "key_value_heads")
# Heads of state-space layers, which divide their inner width, a multiple of the model's.
INNER_HEADS = frozenset({"mamba_n_heads", "mamba_num_heads", "n_mamba_heads"})
HEAD_SIZES = frozenset({
    "head_dim", "d_kv", "kv_channels", "d_head", "attention_head_dim", "v_head_dim",
    "qk_nope_head_dim", "global_head_dim", "swa_head_dim", "linear_key_head_dim",
    "linear_value_head_dim", "linear_head_dim", "attention_head_size", "mamba_d_head",
    "mamba_head_dim", "mamba_headdim", "swa_v_head_dim",
    "cross_head_dim",
})  # fmt: skip
DEPTHS = frozenset({
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
    "num_decoder_layers", "num_encoder_layers", "num_sparse_encoder_layers",
    "num_sparse_decoder_layers", "num_self_attends_per_block",
})  # fmt: skip
# Sizes that are fixed while the model grows.
FIXED: Mapping[str, Any] = {
    "max_position_embeddings": 64, "n_positions": 64,
    "max_target_positions": 64, "max_source_positions": 16, "n_ctx": 64, "type_vocab_size": 2,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_group": 1, "topk_group": 1, "n_shared_experts": 1, "moe_num_experts": 4, "moe_top_k": 2,
    "moe_topk": 2, "num_shared_experts": 1, "num_expert_group": 1, "num_experts_per_token": 2,
    "top_k_experts": 2, "q_lora_rank": 16, "kv_lora_rank": 16, "o_lora_rank": 16,
    "qk_rope_head_dim": 8, "query_pre_attn_scalar": 16,
    "index_n_heads": 4, "index_head_dim": 16, "index_topk": 8,
    "state_size": 8, "chunk_size": 16, "n_groups": 1, "mamba_n_groups": 1, "mamba_ngroups": 1,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "cls_token_id": 1, "sep_token_id": 2, "decoder_start_token_id": 1, "mask_token_id": 3,
    "image_size": 32, "patch_size": 8, "num_labels": 10, "num_mel_bins": 8, "use_mambapy": False,
    "feat_extract_dropout": 0.0, "conv_dim": (16, 16), "conv_stride": (5, 2),
    "conv_kernel": (10, 3), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "embedding_size": 16, "hidden_size_per_layer_input": 16,
    "layerdrop": 0.0, "first_k_dense_replace": 1, "mlp_only_layers": (), "num_kv_shared_layers": 0,
    "subsample_layers": (0,), "decoder_sparse_step": 1, "encoder_sparse_step": 1, "n_mels": 8,
    "input_feat_per_channel": 8, "subsampling_conv_channels": 16, "attention_window": 8,
    "window_size": 4, "num_latents": 16, "sliding_window": 8, "apply_spec_augment": False,
    "rotary_dim": HEAD, "num_groups": 4,
    "entity_emb_size": 16, "context_size": 32, "n_layers_per_attn_res_block": 2,
    "mm_tokens_per_image": 4,
    "depth_divisible_by": 1, "min_depth": 1, "depth_divisor": 1,
}  # fmt: skip


def _width(width: int, depth: int) -> int:
    return width


# Fields of architectures that depend on one another in ways that their names do not tell: numbers,
# or functions of width and depth.
DEPENDENT: Mapping[str, Mapping[str, Any]] = {
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}},
    },
    "dbrx": {"attn_config": {"rope_theta": 1e4, "clip_qkv": 8.0}},
    "dia": {"decoder_config": {"num_channels": 1}, "delay_pattern": [0]},
    "dots3_note": {
        "vision_config": {"adapter_in_dim": _width, "adapter_out_dim": _width},
        "audio_config": {"adapter_input_size": _width, "adapter_out_dim": _width},
    },
    # Repeats besides the first block of each stage, which has no residual sum.
    "efficientnet": {
        "num_block_repeats": lambda width, depth: [depth + 1] * 7, "depth_coefficient": 1.0,
        "hidden_dim": lambda width, depth: 1280 * width // 256,
    },
    "fun_asr_nano": {
        "adaptor_config": {"intermediate_size": lambda width, depth: width // 4},
    },
    "granitemoehybrid": {"mamba_chunk_size": 16, "mamba_d_state": 16},
    # Four convolutions of stride 2 make the patches.
    "levit": {"image_size": 128, "patch_size": 16},
    "lfm2_moe": {
        "layer_types": lambda width, depth: ["conv", "full_attention"] * (depth // 2),
        "num_dense_layers": 0,
    },
    # Twice as many heads of keys in layers of sliding attention.
    "mimo_v2_flash": {"num_key_value_heads": lambda width, depth: width // HEAD // 2},
    "moonshine_streaming": {"num_key_value_heads": lambda width, depth: width // HEAD},
    # Sequences are padded to whole blocks.
    "pegasus_x": {"block_size": 8, "num_global_tokens": 4},
    # A factor of all widths but the last one.
    "pp_lcnet": {
        "scale": lambda width, depth: width / 256, "divisor": 1,
        "class_expand": lambda width, depth: 5 * width,
    },
    # Windows of 2 n frames.
    "qwen3_asr": {"n_window": 8},
    "reformer": {
        "is_decoder": True, "axial_pos_shape": [8, 8],
        "axial_pos_embds_dim": lambda width, depth: [width // 4, 3 * width // 4],
    },
    "shieldgemma2": {"yes_token_index": 3, "no_token_index": 4},
    "textnet": {"stem_out_channels": lambda width, depth: width // 2},
    # Attention is over the features and the embedding, side by side.
    "zamba": {
        "attention_hidden_size": lambda width, depth: 2 * width,
        "attention_head_dim": 2 * HEAD, "head_dim": 2 * HEAD,
    },
}  # fmt: skip
# Sizes that are not larger than by default.
MOST = frozenset(
    {"num_experts_per_tok", "moe_top_k", "moe_topk", "num_experts_per_token", "patch_size"}
)


def fields_at(config: Any, width: int, depth: int, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration at a width and a depth.

    Configurations inside a configuration, such as those of a tower of images, are made for the same
    width and depth.

    Parameters
    ----------
    config
        A configuration with default values, which defines the fields.
    width, depth
        Width and depth of the model.
    own
        Fields with values of their own: numbers, functions of width and depth, or, for a
        configuration inside, its own fields; ``heads`` is a fixed number of heads, whose dimension
        then grows.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> config = SimpleNamespace(hidden_size=1, num_hidden_layers=1, num_heads=1, vocab_size=1)
    >>> fields_at(config, 64, 3, {})
    {'hidden_size': 64, 'num_hidden_layers': 3, 'num_heads': 4, 'vocab_size': 61}
    """
    own = dict(own)
    heads = own.pop("heads", width // HEAD)
    renamed = dict(getattr(config, "attribute_map", {}))
    given = {name: value for name, value in vars(config).items() if not name.startswith("_")}
    given |= {alias: given[name] for alias, name in renamed.items() if name in given}
    found: dict[str, Any] = {}
    for name, value in given.items():
        if hasattr(value, "attribute_map") and hasattr(value, "to_dict"):
            found[name] = type(value)(**fields_at(value, width, depth, own.pop(name, {})))
            continue
        new = _field(name, value, given, width, depth, heads)
        if new is not None:
            found[name] = new
    if "qk_rope_head_dim" in found and "head_dim" in found:
        found["head_dim"] = _of_rotated(given, found)
    layers = next((given[name] for name in given if name in DEPTHS), None)
    found |= of_layers(given, layers, depth, {k: round(v * width) for k, v in WIDTHS.items()})
    if hasattr(config, "num_labels"):
        found["num_labels"] = FIXED["num_labels"]
    for name, value in given.items():
        several = given.get(f"{name.removeprefix('default_')}s")
        if name.startswith("default_") and value is None and several:
            found[name] = several[0]  # such as the language, of several languages
    if getattr(config, "is_heterogeneous", False):
        found["per_layer_config"] = {}  # all layers alike
    stages = of_stages(given, width, depth, HEAD)
    if stages:
        found = {k: v for k, v in found.items() if k not in DEPTHS} | stages
    for name, value in own.items():
        found[name] = value(width, depth) if callable(value) else value
    for name, new in renamed.items():
        if new in found:
            found.pop(name, None)
    return found


def _field(
    name: str, value: Any, given: Mapping[str, Any], width: int, depth: int, heads: int
) -> Any:
    """Return the value of one field; None if its default is to be left."""
    several = isinstance(value, (list, tuple))
    if name in PERHAPS_WIDTHS and value in _widths(given):
        return width
    if name in WIDTHS and not several:
        size = WIDTHS[name] * width
        return size if isinstance(value, float) else round(size)
    if (name in INNER_HEADS or (name == "num_heads" and "expand" in given)) and not several:
        return int(given.get("mamba_expand", given.get("expand", 2))) * width // HEAD
    if (name in HEADS or name.endswith(ENDS_OF_HEADS)) and not several:
        return heads
    if name in HEAD_SIZES:
        return width // heads
    if name in DEPTHS:
        return depth
    if name in FIXED:
        return _fixed(FIXED[name], name, value)
    if isinstance(value, int) and value > VOCABULARY:
        if name.endswith(("vocab_size", "_vocab")):
            return VOCABULARY
        if name.endswith(("_token_id", "_token_index", "_token_idx")):
            return FIXED["eos_token_id"]
    return VOCABULARY if name in ("vocab_size", "vocab_size_per_layer_input") else None


def _of_rotated(given: Mapping[str, Any], found: Mapping[str, Any]) -> int:
    """Return the dimension of a head, or of the part of it that is rotated, if that is meant."""
    if given["head_dim"] in (None, given["qk_rope_head_dim"]):
        return found["qk_rope_head_dim"]
    return found["head_dim"] + ("qk_nope_head_dim" in found) * found["qk_rope_head_dim"]


def _widths(given: Mapping[str, Any]) -> list[Any]:
    return [given[name] for name in ("hidden_size", "d_model", "n_embd") if name in given]


def _fixed(size: Any, name: str, value: Any) -> Any:
    """Return a fixed size in the form, one number or several, that the default has."""
    several = isinstance(value, (list, tuple))
    if isinstance(size, tuple):
        return type(value)(size) if several else None
    if several:
        return [size] * len(value)
    return min(size, value) if name in MOST and isinstance(value, int) else size
