"""Inputs that are generated for models that are called with keyword arguments."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from largen.transfer.torch.examples import made_up
from tools.audit.quiet import Quiet

IDS, FEATURES, WIDTH = 11, 5, 8


class EitherIdsOrFeatures(nn.Module):
    """As Pop2Piano, whose encoder takes one of the two."""

    def __init__(self, width):
        super().__init__()
        self.wte, self.out = nn.Embedding(IDS, width), nn.Linear(width, IDS)

    def forward(self, input_ids=None, input_features=None, decoder_input_ids=None):
        if (input_ids is None) == (input_features is None):
            raise ValueError("wanted ids or features")
        h = input_features if input_ids is None else self.wte(input_ids)
        return self.out(h.mean(1, keepdim=True) + self.wte(decoder_input_ids))


class TimeFirst(nn.Module):
    """Takes spectrograms as time × frequencies."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(FEATURES, width, 3)

    def forward(self, input_features):
        return self.conv(input_features.mT).mT


class Subsampled(nn.Module):
    """Takes spectrograms whose number of frequencies its configuration has."""

    def __init__(self, width):
        super().__init__()
        self.config = SimpleNamespace(num_mel_bins=6)
        self.sub, self.inp = nn.Conv2d(1, 2, 2, stride=2), nn.Linear(6, width)
        self.conv = nn.Conv1d(width, width, 1)

    def forward(self, input_features):
        h = self.sub(input_features[:, None]).transpose(1, 2).flatten(-2)
        return self.conv(self.inp(h).mT)


class Patches(nn.Module):
    """Takes images as sequences of patches, with a mask and their sizes."""

    def __init__(self, width):
        super().__init__()
        self.inp = nn.Linear(12, width)

    def forward(self, pixel_values=None, pixel_attention_mask=None, spatial_shapes=None):
        assert bool((spatial_shapes.prod(-1) == pixel_attention_mask.sum(-1)).all())
        return self.inp(pixel_values) * pixel_attention_mask[..., None]


class TableOfItsOwn(nn.Module):
    """Looks up a weight of no embedding layer."""

    def __init__(self, width):
        super().__init__()
        self.config = SimpleNamespace(vocab_size=IDS)
        self.table = nn.Parameter(torch.randn(IDS, width))

    def forward(self, input_ids):
        return F.embedding(input_ids, self.table)


class OverwritesItsCache(nn.Module):
    """Has no gradient with a cache."""

    def __init__(self, width):
        super().__init__()
        self.wte, self.out = nn.Embedding(IDS, width), nn.Linear(width, width)

    def forward(self, input_ids, use_cache=True):
        h = self.wte(input_ids)
        result = self.out(h)
        if use_cache:
            h.mul_(2)
        return result


class PassesOn(nn.Module):
    """Passes arguments on to a part that has a cache."""

    def __init__(self, width):
        super().__init__()
        self.config, self.part = SimpleNamespace(use_cache=True), OverwritesItsCache(width)

    def forward(self, input_ids, **others):
        if others.get("use_cache", self.config.use_cache):
            raise ValueError("no cache of this kind")
        return self.part(input_ids, **others)


class ImagesAtTheirOwnIds(nn.Module):
    """Takes images only where ids stand for them."""

    def __init__(self, width):
        super().__init__()
        self.wte, self.conv = nn.Embedding(IDS, width), nn.Conv2d(3, width, 2)

    def forward(self, input_ids, pixel_values=None):
        if pixel_values is not None:
            raise ValueError("no ids for the image")
        return self.wte(input_ids)


@pytest.mark.parametrize(
    "kind",
    [
        EitherIdsOrFeatures, TimeFirst, Subsampled, Patches, TableOfItsOwn, OverwritesItsCache,
        PassesOn, ImagesAtTheirOwnIds,
    ],
)  # fmt: skip
def test_models_are_called_and_trained_with_generated_inputs(kind):
    quiet = Quiet(kind, None)
    model = quiet(width=WIDTH)
    quiet.loss(model, 0).backward()  # with more samples than the inputs generated
    assert any(p.grad is not None and bool(p.grad.any()) for p in model.parameters())
    _, inputs = quiet.inputs_at({"width": WIDTH})
    assert {len(value) for value in inputs.values() if isinstance(value, torch.Tensor)} == {8}


def test_a_model_of_ids_and_images_is_called_with_both_first():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.conv = nn.Embedding(IDS, 4), nn.Conv2d(3, 4, 2)

        def forward(self, input_ids, pixel_values):
            return self.wte(input_ids)

    found = [set(kwargs) for _, kwargs in made_up(Both())]
    assert found[0] == {"input_ids", "pixel_values"}
    assert {"pixel_values"} in found
