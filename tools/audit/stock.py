"""Stock models of other libraries as builders of a width and a depth, with shrunk configurations.

The usual names of a configuration's fields determine which are widths, numbers of heads, depths or
fixed sizes. Heads keep their dimension and grow in number, as in published families of models,
unless the model's name in this module indicates otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from largen.errors import InvalidInput, one_of
from tools.audit.fields import DEPENDENT, HEAD, fields_at
from tools.audit.images import TIMM

# Name → (kind of model in transformers, name of its configuration, fields that differ).
Own = dict[str, Any]
LANGUAGE: dict[str, tuple[str, str, Own]] = {
    "Llama": ("CausalLM", "llama", {}),
    "Llama, one head of keys": ("CausalLM", "llama", {"num_key_value_heads": 1}),
    "Mistral, two heads of keys": ("CausalLM", "mistral", {"num_key_value_heads": 2}),
    "Qwen2, two heads of keys": ("CausalLM", "qwen2", {"num_key_value_heads": 2}),
    "Qwen3": ("CausalLM", "qwen3", {}),
    "Qwen3, heads grow": ("CausalLM", "qwen3", {"heads": 4}),
    "Llama, heads grow": ("CausalLM", "llama", {"heads": 4}),
    "Gemma": ("CausalLM", "gemma", {}),
    "Gemma 2": ("CausalLM", "gemma2", {}),
    "Gemma 3": ("CausalLM", "gemma3_text", {}),
    "GPT-2": ("CausalLM", "gpt2", {}),
    "GPT-NeoX": ("CausalLM", "gpt_neox", {}),
    "OLMo": ("CausalLM", "olmo", {}),
    "OLMo 2": ("CausalLM", "olmo2", {}),
    "Phi": ("CausalLM", "phi", {}),
    "Phi-3": ("CausalLM", "phi3", {}),
    "OPT": ("CausalLM", "opt", {}),
    "Falcon": ("CausalLM", "falcon", {}),
    "Bloom": ("CausalLM", "bloom", {}),
    "Granite": ("CausalLM", "granite", {}),
    "Cohere": ("CausalLM", "cohere", {}),
    "Mixtral": ("CausalLM", "mixtral", {}),
    "Qwen2-MoE": ("CausalLM", "qwen2_moe", {}),
    "Qwen3-MoE": ("CausalLM", "qwen3_moe", {}),
    "DeepSeek-V3": ("CausalLM", "deepseek_v3", {}),
    "GPT-OSS": ("CausalLM", "gpt_oss", {}),
    "Mamba": ("CausalLM", "mamba", {}),
    "Mamba-2": ("CausalLM", "mamba2", {}),
    "BERT": ("MaskedLM", "bert", {}),
    "RoBERTa": ("MaskedLM", "roberta", {}),
    "ModernBERT": ("MaskedLM", "modernbert", {}),
    "T5": ("Seq2SeqLM", "t5", {}),
    "BART": ("Seq2SeqLM", "bart", {}),
}
OTHERS: dict[str, tuple[str, str, Own]] = {
    "ViT": ("ImageClassification", "vit", {}),
    "DINOv2": ("ImageClassification", "dinov2", {}),
    "ConvNeXt-V2": ("ImageClassification", "convnextv2", {}),
    "Whisper": ("SpeechSeq2Seq", "whisper", {}),
    "wav2vec 2.0": ("CTC", "wav2vec2", {}),
    "HuBERT": ("CTC", "hubert", {}),
}
# Options of the layers of x-transformers' decoders.
DECODERS: dict[str, Own] = {
    "decoder": {},
    "decoder, rotary and RMSNorm": {
        "rotary_pos_emb": True, "use_rmsnorm": True, "ff_glu": True, "ff_no_bias": True
    },
}  # fmt: skip
KINDS = {
    "text": ("CausalLM", "MaskedLM", "Seq2SeqLM"),
    "vision": ("ImageClassification",),
    "speech": ("SpeechSeq2Seq", "CTC"),
}
LARGEST = 30_000_000  # most weights of a base model: with more, shrinking has failed
BASE = {"width": 64, "depth": 2}


@dataclass(frozen=True)
class StockModel:
    """A model of another library.

    Attributes
    ----------
    name
        The model's name in tables.
    library
        The library that it comes from.
    kind
        ``"text"``, ``"vision"`` or ``"speech"``.
    make
        ``make(width, depth)`` → the model.
    """

    name: str
    library: str
    kind: str
    make: Callable[..., nn.Module]


def stock_models(which: str = "named") -> list[StockModel]:
    """Return stock models of the installed libraries.

    Parameters
    ----------
    which
        ``"named"``: one or two models of each common family; ``"all"``: every architecture for
        text, vision or speech in ``transformers``, with guessed configurations, besides those of
        ``timm`` and ``x-transformers``.

    Raises
    ------
    InvalidInput
        If ``which`` is not one of these, or no library is installed.

    Examples
    --------
    >>> stock_models("some")
    Traceback (most recent call last):
    largen.errors.InvalidInput: which: 'some' is not known. Known: all, named.
    """
    one_of("which", which, ("named", "all"))
    found = [*_transformers(which), *_timm(which), *_x_transformers()]
    if not found:
        raise InvalidInput("which: none of transformers, timm and x-transformers is installed.")
    return found


def _transformers(which: str) -> Iterator[StockModel]:
    if find_spec("transformers") is None:
        return
    kind_of = {task: kind for kind, tasks in KINDS.items() for task in tasks}
    rows: Mapping[str, tuple[str, str, Own]] = {**LANGUAGE, **OTHERS}
    if which == "all":
        rows = {f"{name} ({task})": (task, name, {}) for task, name in _architectures()}
    for name, (task, config, own) in rows.items():
        make = partial(_made, task, config, own)
        yield StockModel(name, "transformers", kind_of[task], make)


def _architectures() -> Iterator[tuple[str, str]]:
    """Yield the task and the name of every configuration in transformers, each once."""
    modeling_auto = import_module("transformers.models.auto.modeling_auto")
    lists = {
        "CausalLM": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
        "MaskedLM": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
        "Seq2SeqLM": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
        "ImageClassification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
        "SpeechSeq2Seq": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
        "CTC": "MODEL_FOR_CTC_MAPPING_NAMES",
    }
    seen: set[str] = set()
    for task, mapping in lists.items():
        for name in getattr(modeling_auto, mapping):
            if name not in seen:
                seen.add(name)
                yield task, name


def _made(task: str, name: str, own: Own, width: int, depth: int) -> nn.Module:
    """Build a model of transformers with a shrunk configuration."""
    transformers = import_module("transformers")
    auto = getattr(transformers, f"AutoModelFor{task}")
    try:
        default = transformers.AutoConfig.for_model(name)
        fields = fields_at(default, width, depth, {**DEPENDENT.get(name, {}), **own})
        return _built(auto, type(default)(**fields))
    except Exception as error:
        why = _why_not(transformers, auto, name)
        if why is None:
            raise
        raise InvalidInput(f"transformers' own default of it cannot be built: {why}") from error


def _built(auto: Any, config: Any) -> nn.Module:
    config.architectures = config.architectures or []  # of several classes the first one
    config._attn_implementation = "sdpa"
    try:
        return auto.from_config(config)
    except ValueError as error:
        if "attention" not in str(error):
            raise
        config._attn_implementation = "eager"
        return auto.from_config(config)


def _why_not(transformers: Any, auto: Any, name: str) -> str | None:
    """Return the error that the default configuration raises; None if it raises none."""
    try:
        with torch.device("meta"):
            _built(auto, transformers.AutoConfig.for_model(name))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _timm(which: str) -> Iterator[StockModel]:
    if find_spec("timm") is None:
        return
    for name, make in TIMM.items():
        yield StockModel(f"{name} (timm)", "timm", "vision", make)


def _x_transformers() -> Iterator[StockModel]:
    if find_spec("x_transformers") is None:
        return
    for name, own in DECODERS.items():
        title = f"{name} (x-transformers)"
        yield StockModel(title, "x-transformers", "text", partial(_decoder, own))


def _decoder(own: Own, width: int, depth: int) -> nn.Module:
    library: Any = import_module("x_transformers")
    layers = library.Decoder(dim=width, depth=depth, heads=width // HEAD, attn_dim_head=HEAD, **own)
    return library.TransformerWrapper(num_tokens=61, max_seq_len=64, attn_layers=layers)
