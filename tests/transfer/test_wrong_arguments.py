"""The table of wrong arguments for every public name of transfer and sweeps."""

import pytest
from tests.test_wrong_arguments import faults, outcomes

import largen.sweeps
import largen.transfer
import largen.transfer.jax
import largen.transfer.torch

pytestmark = pytest.mark.slow  # the table takes half a minute

# Numbers of these are infinite, by their docstrings, where training diverged.
DIVERGED = ("result.start", "result.size", "result.change", "result.losses", "result.each",
            "result.data.loss", "result.data.margin_error")  # fmt: skip
# Records and tables, whose makers are other names.
MADE = {"Change", "CoordinateCheck", "Diagnosis", "ForwardMultiplier",
        "JaxPlan", "LayerSlopes", "Plan", "ROLES", "ScaledWeight", "TorchPlan"}  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return outcomes(tmp_path_factory.mktemp("table"), "transfer")


def test_every_public_name_has_an_example_that_works(found):
    working = {
        part for row in found if not row[1] and row[3] == "result" for part in row[0].split(".")
    }
    rooms = (largen.transfer, largen.transfer.jax, largen.transfer.torch, largen.sweeps)
    assert not {name for room in rooms for name in room.__all__} - working - MADE
    assert not [row for row in found if not row[1] and row[3] != "result"]


def test_no_argument_ends_in_a_traceback_or_a_number_that_is_none(found):
    assert len(found) > 800
    diverged = tuple(f"FAULT: {where}" for where in DIVERGED)
    assert not [row for row in faults(found) if not row[3].startswith(diverged)]
