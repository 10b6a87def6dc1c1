"""Every optimizer of PyTorch has its rule, or is refused by name."""

import pytest
import torch
from tests.transfer.torch_models import SmallNet

from largen.errors import InvalidInput
from largen.transfer.torch import check_optimizer, scale
from largen.transfer.updates import REFUSED, UPDATES, update

SIZES = {"width": 8, "depth": 2}, {"width": 16, "depth": 4}
EVERY = [
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and kind is not torch.optim.Optimizer
]


@pytest.mark.parametrize("name", EVERY)
def test_there_is_a_rule_or_a_reason(name):
    if name.lower() in REFUSED:
        with pytest.raises(InvalidInput, match=f"no rule for {name.lower()}: "):
            update(name)
    elif name != "SparseAdam":
        assert update(name).name in UPDATES


@pytest.mark.parametrize(
    ("plan", "make", "message"),
    [
        ({"optimizer": "adamw"}, torch.optim.AdamW, None),
        ({"optimizer": "adam", "decay": "decoupled"}, torch.optim.AdamW, None),
        ({"optimizer": "momentum"}, lambda g: torch.optim.SGD(g, momentum=0.9), None),
        ({"optimizer": "nadam"}, torch.optim.NAdam, None),
        ({"optimizer": "adamw"}, torch.optim.SGD, "plan for 'adamw'; plan for 'sgd'"),
        ({"optimizer": "adamw"}, torch.optim.Adafactor, "Adafactor has groups .* cut off at"),
        ({"optimizer": "adam"}, torch.optim.AdamW, "for coupled weight decay, .* is decoupled"),
        ({"optimizer": "adamw"}, torch.optim.Adam, "for decoupled weight decay, .* is coupled"),
        (
            {"optimizer": "sgd", "decay": "independent"},
            torch.optim.SGD,
            "for independent weight decay, and that of SGD is coupled",
        ),
    ],
)
def test_groups_get_the_optimizer_that_they_were_planned_for(plan, make, message):
    planned = scale(SmallNet, *SIZES, **plan)
    optimizer = make(planned.param_groups(planned.build(seed=0), lr=0.1, weight_decay=0.1))
    if message is None:
        assert check_optimizer(optimizer) is optimizer
    else:
        with pytest.raises(InvalidInput, match=message):
            check_optimizer(optimizer)


def test_optimizers_of_others_are_not_judged():
    class Own(torch.optim.SGD):
        pass

    own = Own([{"params": [torch.zeros(2)], "lr": 0.1, "moved_by": "lion"}])
    assert check_optimizer(own) is own
