"""Shrunk configurations of stock models: what grows with width and depth, and what is fixed."""

from functools import partial

import pytest
from torch import nn

from tools.audit import auditing
from tools.audit.fields import DEPENDENT, fields_at
from tools.audit.stock import StockModel


class Config:
    """A configuration as other libraries have them."""

    def __init__(self, **fields):
        vars(self).update(fields)

    @property
    def attribute_map(self):
        return {}

    def to_dict(self):
        return dict(vars(self))


def test_configurations_inside_configurations_are_shrunk():
    text = Config(hidden_size=512, num_hidden_layers=8, vocab_size=1000)
    found = fields_at(Config(text_config=text, image_token_id=999), 64, 2, {})
    assert found["image_token_id"] == 2  # within the vocabulary, and not drawn as an input
    assert vars(found["text_config"]) == {
        "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 61,
    }  # fmt: skip


@pytest.mark.parametrize("depth", [2, 4, 8])
def test_depths_are_whole_periods_of_kinds_of_layers(depth):
    kinds = ["linear"] * 3 + ["full"]
    config = Config(
        num_hidden_layers=8, layer_types=2 * kinds, mlp_layer_types=["dense"] + ["sparse"] * 7,
        sparsity=[0.9] * 4 + [0.0] * 4, attn_layer_period=8, attn_layer_offset=4,
    )  # fmt: skip
    found = fields_at(config, 64, depth, {})
    assert found["layer_types"] == ["linear", "full"] * (depth // 2)
    assert found["mlp_layer_types"] == ["sparse"] * depth
    assert found["sparsity"] == [0.0] * depth
    assert (found["attn_layer_period"], found["attn_layer_offset"]) == (2, 1)
    # A pattern that the model repeats, and kinds that set the depth.
    pattern = Config(num_hidden_layers=26, block_types=["recurrent", "recurrent", "attention"])
    assert fields_at(pattern, 64, depth, {})["block_types"] == ["recurrent", "attention"]
    lists = Config(layers_block_type=["linear", "moe", "full"])
    assert fields_at(lists, 64, depth, {})["layers_block_type"] == ["linear", "moe", "full"] * depth
    neo = Config(num_layers=24, attention_types=[[["global", "local"], 12]])
    assert fields_at(neo, 64, depth, {})["attention_types"] == [[["global", "local"], depth // 2]]


def test_sizes_that_belong_together():
    config = Config(
        hidden_size=512, embedding_size=512, entity_emb_size=64, expand=2, num_heads=16,
        head_dim=64, swa_num_attention_heads=8, num_experts_per_tok=1,
        conv_kernel=4, conv_dim=[512] * 7, mlp_only_layers=[0, 1],
    )  # fmt: skip
    found = fields_at(config, 64, 2, {})
    assert found["embedding_size"] == found["hidden_size"] == 64
    assert found["entity_emb_size"] == 16
    # The heads of a state-space layer divide its inner width.
    assert found["num_heads"] * found["head_dim"] == 2 * 64
    assert found["swa_num_attention_heads"] == 4
    assert found["num_experts_per_tok"] == 1
    assert "conv_kernel" not in found
    assert (found["conv_dim"], found["mlp_only_layers"]) == ([16, 16], [])
    assert fields_at(Config(languages=("en", "de"), default_language=None), 64, 2, {}) == {
        "default_language": "en",
    }  # fmt: skip
    rotated = {"num_heads": 4, "qk_rope_head_dim": 64}
    assert fields_at(Config(head_dim=64, **rotated), 64, 2, {})["head_dim"] == 8
    assert fields_at(Config(head_dim=512, **rotated), 64, 2, {})["head_dim"] == 16


def test_fields_that_depend_on_one_another():
    zamba = {"hidden_size": 3712, "num_attention_heads": 16, "attention_hidden_size": 7424}
    found = fields_at(Config(**zamba, attention_head_dim=464), 64, 2, DEPENDENT["zamba"])
    assert found["num_attention_heads"] * found["attention_head_dim"] == 2 * found["hidden_size"]
    mimo = Config(num_attention_heads=64, num_key_value_heads=4)
    found = fields_at(mimo, 64, 2, DEPENDENT["mimo_v2_flash"])
    assert found == {"num_attention_heads": 4, "num_key_value_heads": 2}


def test_sizes_of_stages():
    config = Config(
        depths=(2, 2), hidden_sizes=[32, 64], num_attention_heads=[1, 2], window_size=7,
        image_size=(224, 224), neck_hidden_sizes=[16, 32, 640],
    )  # fmt: skip
    assert fields_at(config, 64, 2, {}) == {
        "hidden_sizes": [32, 64], "num_attention_heads": [2, 4], "window_size": 2,
        "image_size": [64, 64], "neck_hidden_sizes": [4, 8, 160], "depths": [2, 2],
        "patch_size": 4,
    }  # fmt: skip
    channels = Config(depths=(2,), hidden_sizes=[256], stage_out_channels=[512], stem_channels=[3])
    found = fields_at(channels, 64, 2, {})
    assert (found["hidden_sizes"], found["stage_out_channels"]) == ([64], [128])
    assert found["stem_channels"] == [3]


def perceptron(sizes, width, depth):
    inner = [nn.Linear(16, 16) for _ in range(depth if "depth" in sizes else 1)]
    own = 16 if "width" not in sizes else width
    return nn.Sequential(nn.Linear(16, own), nn.Linear(own, 16), *inner)


def test_models_without_a_width_or_a_depth(monkeypatch):
    models = [
        StockModel("thin", "mine", "text", partial(perceptron, ("depth",))),
        StockModel("flat", "mine", "text", partial(perceptron, ("width",))),
    ]
    monkeypatch.setattr(auditing, "stock_models", lambda which: models)
    found = auditing.audit_stock(scheme="mup", seeds=2, steps=1, growth=(1, 2)).rows
    assert found[0].verdict == "not built"
    assert "recognised as a width" in found[0].failure
    assert found[1].width is not None
    assert found[1].depth is None
    assert "recognised as a depth" in found[1].notes[0]


def test_models_that_need_more_layers_are_audited_from_more(monkeypatch):
    depths = set()

    def deep(width, depth):
        if depth < 3:
            raise IndexError("list index out of range")
        depths.add(depth)
        return perceptron(("width", "depth"), width, depth)

    monkeypatch.setattr(
        auditing, "stock_models", lambda which: [StockModel("deep", "mine", "text", deep)]
    )
    (row,) = auditing.audit_stock(scheme="mup", seeds=2, steps=1, growth=(1, 2)).rows
    assert row.width is not None
    assert min(depths) == 4


def test_models_whose_first_and_last_layers_are_unlike_the_others():
    def ends(width, depth):
        inner = [nn.Linear(width, width) for _ in range(depth - 2)]
        return nn.Sequential(nn.Linear(16, width), *inner, nn.Linear(width, 16))

    at, base = auditing._base(StockModel("ends", "mine", "text", ends))
    assert at == {"width": 64, "depth": 4}
    assert len(list(base.children())) == 4
    at, _ = auditing._base(
        StockModel("all", "mine", "text", partial(perceptron, ("width", "depth")))
    )
    assert at == {"width": 64, "depth": 2}
