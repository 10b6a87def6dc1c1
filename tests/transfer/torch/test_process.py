"""Threads share PyTorch's random state, and none is part of another's record."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.transfer.torch_models import MLPBlock, SmallNet
from torch import nn

from largen.transfer.torch import scale
from largen.transfer.torch.recording import record
from largen.transfer.torch.streams import residual_sums

BASE, TARGET = {"width": 8, "depth": 2}, {"width": 64, "depth": 8}


def weights(model):
    return nn.utils.parameters_to_vector(model.parameters())


@pytest.mark.slow
def test_threads_build_what_one_thread_builds():
    plan = scale(SmallNet, BASE, TARGET)
    wanted = [weights(plan.build(seed=seed)) for seed in range(24)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda seed: weights(plan.build(seed=seed)), range(24)))
    assert all(map(torch.equal, found, wanted))


class Meanwhile(MLPBlock):
    """While its forward pass runs, another thread calls another model."""

    def __init__(self, width, call):
        super().__init__(width)
        self.call, self.found = call, None

    def forward(self, x):
        with ThreadPoolExecutor(1) as pool:
            self.found = pool.submit(self.call).result()
        return super().forward(x)


def ends(block):
    sums = residual_sums(record(block, (torch.ones(4, 8),), {}))
    return {name for own in sums for end in own.walk.ends.values() for name in end.weights}


def test_a_thread_is_not_recorded_by_another():
    model, x = SmallNet(**TARGET), torch.ones(4, 5)
    block = Meanwhile(8, lambda: model(x))
    assert ends(block) == {"fc2.weight"}
    assert torch.equal(block.found, model(x))


def test_threads_record_one_after_another():
    blocks = [SmallNet(**BASE).blocks[0] for _ in range(100)]
    with ThreadPoolExecutor(4) as pool:
        assert all(found == {"fc2.weight"} for found in pool.map(ends, blocks))
    assert torch.backends.mha.get_fastpath_enabled()
