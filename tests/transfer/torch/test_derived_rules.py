"""Rules that are derived rather than published, on networks that feel nothing else.

Only the weights inside the residual branches are trained, so that what the output changes by is
their joint effect; and ε is so large that Adam is nothing but momentum divided by it.
"""

import pytest
import torch
from tests.transfer.torch_models import ResidualMLP

from largen.transfer.torch import coordinate_check

DEPTHS, WIDTHS = (8, 16, 32), (128, 256, 512)


def residual(alpha, trained="blocks"):
    """h + β W relu(h), with a β that is in the middle of the scheme's limit at the base."""

    class Net(ResidualMLP):
        def __init__(self, width, depth):
            super().__init__(width, depth)
            for name, p in self.named_parameters():
                p.requires_grad_(name.startswith(trained))

        def forward(self, x):
            x = self.inp(x)
            for block in self.blocks:
                x = x + 8**-alpha * block(torch.relu(x))
            return self.out(torch.relu(x))

    return Net


@pytest.fixture(scope="module")
def batches():
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(32, 64, generator=generator), torch.randn(32, 10, generator=generator))]


def loss(model, batch):
    # Linear in the output: its gradient is the same at every size.
    return (model(batch[0]) * batch[1]).sum(1).mean()


def in_depth(batches, alpha, **options):
    return coordinate_check(
        residual(alpha), {"width": 64, "depth": 8}, [{"width": 64, "depth": d} for d in DEPTHS],
        batches, loss, scheme=("mup", str(alpha)), seeds=3, **options,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.03), ("momentum", 0.02)])
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_rates_of_gradient_descent_in_depth(batches, alpha, optimizer, lr):
    check = in_depth(batches, alpha, optimizer=optimizer, lr=lr)
    assert abs(check["out"].change) < 0.15, str(check)


def test_without_its_power_of_depth_the_rate_is_wrong(batches):
    def same(groups):  # the rates of α = ½ under branches 1/l
        for group in groups:
            group["lr"] *= 8 / plan_depth(group)
        return torch.optim.SGD(groups)

    def plan_depth(group):
        return 8 * group["lr_factor"]  # l^(2α−1) = l

    check = in_depth(batches, 1.0, optimizer="sgd", lr=0.03, make_optimizer=same)
    assert check["out"].change < -0.7


class WithoutRule(torch.optim.AdamW):
    """One ε for all weights."""

    def __init__(self, groups):
        super().__init__([{**group, "eps": 1.0} for group in groups])


@pytest.mark.parametrize("rule", [True, False])
def test_eps_in_depth(batches, rule):
    # Far above every gradient: the update is η·g/ε, and g falls as l^(−α).
    options = {} if rule else {"make_optimizer": WithoutRule}
    check = in_depth(batches, 1.0, optimizer="adamw", lr=0.3, settings={"eps": 1.0}, **options)
    assert (abs(check["out"].change) < 0.15) == rule, str(check)
    assert rule or check["out"].change < -0.7


@pytest.mark.parametrize("rule", [True, False])
def test_eps_in_width(batches, rule):
    options = {} if rule else {"make_optimizer": WithoutRule}
    check = coordinate_check(
        residual(0.5, trained=("inp", "blocks")), {"width": 64, "depth": 8},
        [{"width": n, "depth": 8} for n in WIDTHS], batches, loss, scheme="mup",
        optimizer="adamw", lr=0.1, settings={"eps": 1.0}, seeds=3, **options,
    )  # fmt: skip
    changes = [check[layer].change for layer in ("inp", "blocks.0", "blocks.7")]
    if rule:
        assert max(map(abs, changes)) < 0.2, str(check)
    else:
        assert max(changes) < -0.7
