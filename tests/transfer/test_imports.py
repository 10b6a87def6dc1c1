"""Without PyTorch: everything else works, and asking for it says how to install it."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import largen, largen.transfer, largen.transfer.jax
print(largen.transfer.rule_table("mup", "adam").splitlines()[0])
try:
    import largen.transfer.torch
except ModuleNotFoundError as error:
    print(error)
"""


def test_without_torch():
    out = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert out[0] == "mup(gamma=1), adam, coupled decay"
    assert "pip install 'largen[torch]'" in out[1]


@pytest.mark.slow
def test_torch_is_not_imported_before_it_is_asked_for():
    code = "import sys, largen.transfer.jax; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


DOORS = """
from largen.errors import InvalidInput
from largen.transfer import plan_from_json, rule_table, warmup_cosine
from largen.transfer.torch import scale
from torch import nn
def net(width): return nn.Sequential(nn.Linear(3, width), nn.Linear(width, 2))
plan = scale(net, {"width": 4}, {"width": 8})
model = plan.build(seed=0)
for call in (
    lambda: scale(net, 64, {"width": 8}),
    lambda: scale(net, {"width": "8"}, {"width": 8}),
    lambda: scale(3, {"width": 4}, {"width": 8}),
    lambda: scale(net, {"width": 4}, {"width": 8}, optimizer=3),
    lambda: scale(net, {"width": 4}, {"width": 8}, scheme=3),
    lambda: plan.param_groups(model, lr=0.1, weight_decay="x"),
    lambda: plan_from_json(3),
    lambda: rule_table(3),
    lambda: warmup_cosine("x"),
):
    try:
        call()
        print("accepted")
    except InvalidInput as error:
        print(str(error).split(":")[0])
"""


@pytest.mark.slow
def test_doors_as_a_user_meets_them():
    out = subprocess.run([sys.executable, "-c", DOORS], capture_output=True, text=True, check=True)
    assert out.stdout.split() == [
        "base", "base['width']", "make_model", "optimizer", "scheme", "weight_decay", "text",
        "scheme", "steps",
    ]  # fmt: skip
