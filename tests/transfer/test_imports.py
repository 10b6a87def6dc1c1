"""Without PyTorch: everything else works, and asking for it says how to install it."""

import subprocess
import sys

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


def test_torch_is_not_imported_before_it_is_asked_for():
    code = "import sys, largen.transfer.jax; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
