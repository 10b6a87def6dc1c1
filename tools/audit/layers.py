"""Fields of configurations with one entry for each layer, or for each stage of an image model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WIDE = 256  # the width of stages to which lists of channels belong by default


def of_layers(
    given: Mapping[str, Any], layers: Any, depth: int, widths: Mapping[str, int]
) -> dict[str, Any]:
    """Return fields with one entry for each layer; the first two kinds of layers take turns.

    Few layers of a model would otherwise lack those kinds that only its deeper ones have, and a
    deeper model would be no repetition of the blocks of a shallow one.

    Parameters
    ----------
    given
        All fields of a configuration with their default values.
    layers
        The default number of layers; None if there is none, and the list of kinds sets it.
    depth
        The number of layers wanted.
    widths
        Names of fields → sizes at the width wanted.

    Examples
    --------
    >>> of_layers({"layer_types": ["linear"] * 3 + ["full"]}, 4, 2, {})
    {'layer_types': ['linear', 'full']}
    """
    found: dict[str, Any] = {}
    lists = {k: v for k, v in given.items() if isinstance(v, (list, tuple)) and v}
    kinds = {k: v for k, v in lists.items() if _are_kinds(k, v)}
    if "depths" in lists:
        return found
    for name, values in kinds.items():
        own = list(dict.fromkeys(values))
        if len(own) < 2:
            continue
        if layers is None:
            found[name] = own * depth
        elif len(values) < layers:  # one period, which the model repeats
            found[name] = own[:2]
        else:
            found[name] = [own[i % 2] for i in range(depth)]
    for name, values in lists.items():
        whole = layers is not None and len(values) == layers > 2
        if whole and name in widths:
            found[name] = [widths[name]] * depth
        elif (found and name.startswith("mlp_") and isinstance(values[-1], str)) or (
            whole and not isinstance(values[-1], (str, int))
        ):
            found[name] = [values[-1]] * depth
    for name in given:
        if name.endswith("_layer_period"):
            found[name] = 2
        elif name.endswith("_layer_offset"):
            found[name] = 1
        elif name in ("attn_layer_indices", "cross_attention_layers"):
            found[name] = list(range(1, depth, 2))
        elif name == "attention_types":  # GPT-Neo's: [[[kinds], number of repetitions]]
            found[name] = [[list(given[name][0][0]), depth // len(given[name][0][0])]]
    return found


def _are_kinds(name: str, values: Any) -> bool:
    """Whether a list names the kinds of layers, other than those of perceptrons."""
    if name.startswith("mlp_") or not all(isinstance(value, str) for value in values):
        return False
    return name.endswith(("_types", "_block_type", "attn_layers")) and "mtp" not in name


def of_stages(given: Mapping[str, Any], width: int, depth: int, head: int) -> dict[str, Any]:
    """Return the fields of an image model that have one entry for each stage.

    Parameters
    ----------
    given
        All fields of a configuration with their default values.
    width, depth
        The width of the second stage, or of the third one if the model doubles it, and the number
        of blocks of each stage.
    head
        The dimension of a head.
    """
    found: dict[str, Any] = {}
    lists = {k: v for k, v in given.items() if isinstance(v, (list, tuple)) and v}
    stages = lists.get("depths", lists.get("depth"))
    for name in ("depths", "depth", "stage_num_blocks", "num_block_repeats", "block_sizes"):
        if name in lists:
            found[name] = [depth] * len(lists[name])
    sizes: list[int] = []
    for name in ("hidden_sizes", "embed_dims", "encoder_hidden_sizes", "embed_dim"):
        if name in lists and stages is not None and "stage_out_channels" not in lists:
            extra = len(lists[name]) - len(stages)
            sizes = [width * 2**i // 2 for i in range(len(stages))]
            found[name] = sizes[:1] * extra + sizes
    for name in lists:
        channels = name.startswith(("stage_", "stem_")) and name.endswith("_channels")
        if channels or (name.endswith("hidden_sizes") and name not in found):
            found[name] = [v if v == 3 else max(v * width // WIDE, 1) for v in lists[name]]
    if stages is None:
        return found
    if not sizes:  # the model doubles its width from stage to stage
        sizes = [width * 2**i // 4 for i in range(len(stages))]
        if "embed_dim" in given:
            found["embed_dim"] = sizes[0]
    for name in ("num_heads", "num_attention_heads"):
        if name in lists:
            found[name] = [size // head for size in sizes]
    if "embedding_size" in given:
        found["embedding_size"] = width // 2
    if "window_size" in given:
        found["window_size"] = 2  # which divides the last stage
    for name, size in (("image_size", 64), ("patch_size", 4)):
        if name not in lists:
            found[name] = size
    if "image_size" in lists:
        found["image_size"] = [64] * len(lists["image_size"])
    return found
