"""No accepted argument is without effect: another value changes the result, or is refused.

Every argument of every public name's example is given other values, one at a time. Values that
change nothing are listed with the reason, as are arguments that are not about numbers.
"""

import pytest
from tests.test_wrong_arguments import outcomes
from tests.wrong_arguments.effects import IDLE, QUICK

# Names whose other values are all refused, or are of one kind.
NEVER_CHANGED = {"Theory", "cite", "save", "stored_kernel", "theories.register"}


def check(found):
    """Check that no value is idle without a reason, and that no call ends in a raw error."""
    assert not [row for row in found if row[3].startswith("FAULT")]
    idle = [row for row in found if row[3] == "idle" and f"{row[0]}.{row[1]}" not in IDLE]
    assert not idle
    changed = {row[0] for row in found if row[3] == "changed"}
    assert changed >= {row[0] for row in found} - NEVER_CHANGED


def test_quick_calls(tmp_path):
    found = outcomes(tmp_path, "effects", *QUICK)
    assert {row[0] for row in found} == set(QUICK)
    check(found)
    # Parameterizations change kernels at finite width, or are refused.
    of_param = [row for row in found if row[:2] == ("width_corrections", "param")]
    assert {row[3] for row in of_param[:4]} == {"changed"}


@pytest.mark.slow
def test_all_calls(tmp_path):
    check(outcomes(tmp_path, "effects"))
