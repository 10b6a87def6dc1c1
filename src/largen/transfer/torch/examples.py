"""Inputs with which a model can be called: the user's example, or generated inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, product
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn

from largen.errors import InvalidInput
from largen.text import shown
from largen.transfer.torch.process import fixed_seed
from largen.transfer.torch.recording import Record, record

BATCH = 2
LENGTHS = (13, 5, 3)
IMAGES = (32, 64, 224, 8, 28)
SOUNDS = (2000, 16000)
MOST_TRIES = 60  # with all inputs together; half as many with each choice of several
FREQUENCIES = ("num_mel_bins", "n_mels")  # fields of configurations
Inputs = tuple[tuple, dict[str, Any]]
# Arguments of Hugging Face's models, in the order in which they are passed.
IDS = ("input_ids", "decoder_input_ids")
HINTS = {
    "images": ("image", "pixel", "img"),
    "ids": ("token", "ids", "idx", "code", "text", "word", "input_ids"),
}


class NotCallable(Exception):
    """The model could not be called; the message has the inputs tried and the error raised."""


def record_call(model: nn.Module, example: Any, sizes: Mapping[str, Any]) -> tuple[Record, Inputs]:
    """Record a forward pass of a model on the user's example, or on generated inputs if None."""
    tried, error = [], None
    inputs = made_up(model) if example is None else [given(example, sizes)]
    for args, kwargs in inputs:
        try:
            with fixed_seed(0):
                found = record(model, args, kwargs)
        except InvalidInput:
            raise
        except Exception as raised:
            error = error or raised
            tried.append(_words(args, kwargs))
            continue
        if found.output is None:
            raise NotCallable("it returns no tensor of real numbers")
        return found, (args, kwargs)
    if not tried:
        raise NotCallable("it has no layer that says what it takes")
    what = "; ".join(tried[:3])
    raise NotCallable(f"it was called with {what}: {type(error).__name__}: {str(error)[:150]}")


def given(example: Any, sizes: Mapping[str, Any]) -> Inputs:
    """Return the arguments of a call from the example that the user passes."""
    if callable(example) and not isinstance(example, (Tensor, Mapping)):
        try:
            inspect.signature(example).bind(**sizes)
        except TypeError as error:
            wanted = f"example: wanted a function of {', '.join(sizes)}"
            raise InvalidInput(f"{wanted}, got {shown(example)}: {error}.") from None
        except ValueError:
            pass  # some functions written in C have no signature
        example = example(**sizes)
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    return (example,), {}


def _words(args: tuple, kwargs: Mapping[str, Any]) -> str:
    named = [*((None, value) for value in args), *kwargs.items()]
    return ", ".join(
        (f"{name}=" if name else "")
        + (f"{str(v.dtype)[6:]}{tuple(v.shape)}" if isinstance(v, Tensor) else type(v).__name__)
        for name, v in named
    )


def made_up(model: nn.Module) -> list[Inputs]:
    """Return inputs that a model might accept, the likelier ones first."""
    # A list, not a generator, which would hold PyTorch's random state between two items.
    with fixed_seed(0):
        return list(islice(_made_up(model), 2 * MOST_TRIES))


def _made_up(model: nn.Module) -> Iterator[Inputs]:
    parameters = list(inspect.signature(model.forward).parameters.values())
    yield from _by_name(model, parameters)
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p.name for p in parameters if p.kind in plain and p.default is p.empty]
    needed = needed or [p.name for p in parameters if p.kind in plain][:1] or ["x"]
    for values in product(*(_by_hint(model, name) for name in needed)):
        yield values, {}


def _by_name(model: nn.Module, parameters: list[inspect.Parameter]) -> Iterator[Inputs]:
    """Yield inputs by the names that Hugging Face's models give them."""
    names = [p.name for p in parameters]
    makers: dict[str, Callable[[nn.Module], Iterator[Tensor]]] = {
        "input_ids": _ids,
        "input_features": _features,
        "pixel_values": _patches,
        "input_values": _sounds,
        "decoder_input_ids": _ids,
    }
    known = {name: list(make(model)) for name, make in makers.items() if name in names}
    choices = _choices(known)
    for own in choices:
        tries = (
            ((), _with_sizes(names, dict(zip(own, values, strict=True))) | rest)
            for rest in _caches(model, parameters)
            for values in product(*own.values())
        )
        yield from islice(tries, MOST_TRIES // min(len(choices), 2))


def _choices(known: dict[str, list[Tensor]]) -> list[dict[str, list[Tensor]]]:
    """Return which inputs to pass together: all, without one of them, and ids alone."""
    left_out = [{name} for name in known if name != "decoder_input_ids"]
    more = [set(known) - set(IDS)]
    choices = [set(known)] if known else []
    for without in left_out + more:
        rest = set(known) - without
        if rest - {"decoder_input_ids"} and rest not in choices:
            choices.append(rest)
    return [{name: known[name] for name in known if name in own} for own in choices]


def _caches(model: nn.Module, parameters: list[inspect.Parameter]) -> list[dict[str, Any]]:
    """Return a hint about a cache of keys and values that is overwritten in place."""
    without = {"use_cache": False}
    if any(p.name == "use_cache" for p in parameters):
        return [without, {}]
    passed_on = any(p.kind is p.VAR_KEYWORD for p in parameters)
    stated = getattr(getattr(model, "config", None), "use_cache", None)
    return [{}, without] if passed_on and stated is not None else [{}]


def _by_hint(model: nn.Module, name: str) -> list[Tensor]:
    """Return tensors that an argument of this name might accept."""
    ids, images, rest = list(_ids(model)), list(_images(model)), list(_rows(model))
    if any(hint in name.lower() for hint in HINTS["images"]) and images:
        return images
    if any(hint in name.lower() for hint in HINTS["ids"]) and ids:
        return ids
    return [*ids, *images, *rest]


def _with_sizes(names: list[str], inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add the mask and the sizes that belong to images given as sequences of patches."""
    images = inputs.get("pixel_values")
    if images is None or images.ndim != 3:
        return inputs
    sides = torch.full((BATCH, 2), isqrt(images.shape[1]))
    own = {"pixel_attention_mask": torch.ones(images.shape[:2]).long(), "spatial_shapes": sides}
    return inputs | {name: value for name, value in own.items() if name in names}


def _ids(model: nn.Module) -> Iterator[Tensor]:
    """Yield token ids, if the model has an embedding, or its configuration has a vocabulary."""
    tables = sorted(
        m.num_embeddings for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))
    )
    stated = getattr(getattr(model, "config", None), "vocab_size", None)
    if not tables and isinstance(stated, int):
        tables = [stated]
    if tables:
        rows = next((rows for rows in tables if rows > 8), tables[-1])
        low = 3 if rows > 8 else 0  # the first ids are special tokens
        for length in LENGTHS:
            yield torch.randint(low, rows, (BATCH, length))


def _images(model: nn.Module) -> Iterator[Tensor]:
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    if convolutions:
        channels = convolutions[0].in_channels
        stated = [_image_side(m) for m in (model, *model.modules())]
        for side in dict.fromkeys((*filter(None, stated), *IMAGES)):
            yield torch.randn(BATCH, channels, side, side)


def _patches(model: nn.Module) -> Iterator[Tensor]:
    """Yield images, or sequences of patches for a model without convolutions."""
    images = list(_images(model))
    yield from images
    layer = next((m for m in model.modules() if isinstance(m, nn.Linear)), None)
    if not images and layer is not None:
        yield torch.randn(BATCH, 16, layer.in_features)


def _image_side(module: nn.Module) -> int | None:
    config = getattr(module, "config", None)
    for owner in (module, config):
        for name in ("img_size", "image_size"):
            value = getattr(owner, name, None)
            value = value[0] if isinstance(value, (tuple, list)) and value else value
            if isinstance(value, int):
                return value
    return None


def _sounds(model: nn.Module) -> Iterator[Tensor]:
    """Yield waves, without and with an axis of channels."""
    for length in SOUNDS:
        yield torch.randn(BATCH, length)
    for length in SOUNDS:
        yield torch.randn(BATCH, 1, length)


def _features(model: nn.Module) -> Iterator[Tensor]:
    """Yield spectrograms: frequencies × time, as Whisper takes them, and time × frequencies."""
    layer = next((m for m in model.modules() if isinstance(m, nn.Conv1d)), None)
    channels = [] if layer is None else [layer.in_channels]
    owners = [getattr(m, "config", None) for m in model.modules()]
    stated = (getattr(owner, name, None) for owner in owners for name in FREQUENCIES)
    longest = getattr(getattr(model, "config", None), "max_source_positions", 16)
    for size in dict.fromkeys((*channels, *(m for m in stated if isinstance(m, int)))):
        for length in (2 * longest, 64, 8 * LENGTHS[0]):  # the last one: 8 for each token id
            yield torch.randn(BATCH, size, length)
            yield torch.randn(BATCH, length, size)
    if layer is None:
        yield from _rows(model)


def _rows(model: nn.Module) -> Iterator[Tensor]:
    """Yield sequences and rows with the number of features that the first layers accept."""
    sizes: dict[int, None] = {}
    for module in model.modules():
        if isinstance(module, (nn.Conv1d, nn.Conv3d)) and not sizes:
            side = (BATCH, module.in_channels, *[16] * (1 if isinstance(module, nn.Conv1d) else 3))
            yield torch.randn(side)
        for name in ("in_features", "input_size", "embed_dim"):
            size = getattr(module, name, None)
            if isinstance(size, int) and not list(module.children()):
                sizes.setdefault(size)
    for parameter in model.parameters():
        for size in parameter.shape[::-1] if parameter.ndim in (1, 2) else ():
            sizes.setdefault(size)
    for size in islice(sizes, 6):
        yield torch.randn(BATCH, LENGTHS[0], size)
        yield torch.randn(BATCH, size)
    for side in filter(None, (_image_side(model), 8)):
        for channels in (3, 1):
            yield torch.randn(BATCH, channels, side, side)
