"""The experiments' models: what plans make of them, and that they learn."""

from functools import partial

import numpy as np
import pytest
import torch

from examples.models import CharacterGPT, ConvResNet, ViT
from examples.models.transformer import Attention
from examples.tasks import characters_task
from largen.errors import InvalidInput
from largen.sweeps import Grid, sweep
from largen.transfer.torch import scale

BASE, TARGET = {"width": 8, "depth": 4}, {"width": 16, "depth": 8}


@pytest.mark.slow
def test_the_residual_network_is_scaled_as_in_table_1():
    plan = scale(ConvResNet, BASE, TARGET, scheme="depth_mup", optimizer="sgd")
    branch = plan["stages.2.1.conv.weight"]
    assert (branch.role, branch.in_branch, branch.lr) == ("hidden", True, 0.5)
    assert branch.init_std == pytest.approx(0.5)  # n^(−½) l^(−½)
    assert plan["stem.weight"].lr == 2.0
    assert plan["read_out.weight"].role == "output"
    assert plan["read_out.weight"].init_std == pytest.approx(0.5)
    assert not plan["doublings.1.weight"].in_branch
    with pytest.raises(InvalidInput, match="multiples"):
        ConvResNet(12, 4)


@pytest.mark.parametrize("norm", [None, "batch", "layer"])
def test_normalised_branches(norm):
    torch.manual_seed(0)
    model = ConvResNet(16, 4, norm=norm, branch=3.0)
    h = torch.randn(32, 2, 8, 8)
    block = model.stages[0][0]
    change = (block(h) - h) / 3.0
    if norm == "batch":
        over = (0, 2, 3)
    else:
        over = (2, 3)
    if norm is not None:
        assert change.mean(over).abs().max() < 1e-4
        assert (change.var(over, unbiased=False) - 1).abs().max() < 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("norm", [False, True])
def test_the_vision_transformer_is_scaled_as_in_appendix_a3(norm):
    base = {"width": 8, "depth": 2}
    target = {"width": 32, "depth": 8}
    plan = scale(partial(ViT, norm=norm), base, target, scheme="depth_mup", optimizer="adam")
    # Adam moves hidden weights by 1/n, in branches by l^(−½) less; queries take n^(−½) besides.
    assert plan["blocks.3.fc_1.weight"].lr == pytest.approx(1 / 4 / 2)
    queries, keys = (plan[f"blocks.3.attention.{q}_proj.weight"] for q in "qk")
    assert queries.lr / keys.lr == pytest.approx(1 / 2)
    assert plan["positions"].role == "positional"
    model = plan.build(seed=0)
    assert model.blocks[0].attention.q_proj.weight.abs().max() == 0


def test_attention_is_softmax_attention():
    torch.manual_seed(0)
    attention = Attention(8, 2, causal=True)
    torch.nn.init.normal_(attention.q_proj.weight)
    h = torch.randn(3, 5, 8)
    q, k, v = (
        part(h).reshape(3, 5, 2, 4).transpose(1, 2)
        for part in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    wanted = attention.out_proj(wanted.transpose(1, 2).reshape(3, 5, 8))
    torch.testing.assert_close(attention(h), wanted)


def test_a_small_gpt_learns_characters(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("to be, or not to be: that is the question. " * 40)
    task = characters_task(text, steps=40, batch_size=8, context=8)
    np.testing.assert_array_equal(task.x[:, 1:], task.y[:, :-1])
    make = partial(CharacterGPT, characters=int(task.y.max()) + 1, context=8)
    grid = Grid(lrs=[2**-6], base=(8, 2), widths=[16], depths=[2], schemes=["complete_p"])
    found = sweep(make, task, grid, optimizer="adamw")
    assert float(found.data["loss"].squeeze()) < 0.9 * found.data.attrs["chance"]
    with pytest.raises(InvalidInput, match="no file"):
        characters_task(tmp_path / "nothing.txt", steps=1)
