"""Threads share PyTorch's random state, and the methods that tracing replaces."""

from concurrent.futures import ThreadPoolExecutor

import torch
from tests.transfer.torch_models import MLPBlock, SmallNet
from torch import nn

from largen.transfer.torch import scale
from largen.transfer.torch.branches import residual_branches

BASE, TARGET = {"width": 8, "depth": 2}, {"width": 64, "depth": 8}


def weights(model):
    return nn.utils.parameters_to_vector(model.parameters())


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


def test_a_thread_is_not_traced_by_another():
    model, x = SmallNet(**TARGET), torch.ones(4, 5)
    block = Meanwhile(8, lambda: model(x))
    assert {branch.end for branch in residual_branches(block)} == {"fc2"}
    assert torch.equal(block.found, model(x))


def test_threads_trace_one_after_another():
    blocks = [SmallNet(**BASE).blocks[0] for _ in range(100)]
    with ThreadPoolExecutor(4) as pool:
        ends = {branch.end for found in pool.map(residual_branches, blocks) for branch in found}
    assert ends == {"fc2"}
    assert nn.Module.__call__.__module__ == "torch.nn.modules.module"
