"""Ordinary data, networks and calls: each once here, any number of draws by hand.

``python -m tests.ordinary`` prints what makes a failed trial again.
"""

import subprocess
import sys
from datetime import date

import pytest
from tests.ordinary.data import KINDS, TARGETS
from tests.ordinary.networks import NETWORKS
from tests.ordinary.registry import CALLS
from tests.ordinary.trials import covering


def test_every_kind_network_and_call_is_in_the_fixed_draws():
    assert {trial.call for trial in covering()} == set(CALLS)
    assert {trial.network for trial in covering()} == set(NETWORKS)
    assert {trial.kind for trial in covering()} == set(KINDS)
    assert {trial.target for trial in covering()} == set(TARGETS)


def trials_of(*options: str) -> tuple[int, str]:
    """Return exit status and output of trials in a process whose arguments are of any type."""
    command = [sys.executable, "-m", "tests.ordinary", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--closed",), ()])
def test_fixed_draws(options):
    status, output = trials_of("--fixed", *options)
    assert status == 0, output


@pytest.mark.slow
@pytest.mark.daily
@pytest.mark.parametrize(
    "options",
    [
        ("--draws", "120"),
        # Two thousand with few networks, which compile once.
        ("--draws", "2800", "--closed", "--block", "2"),
    ],
)
def test_draws(options):
    """Other trials each day: what is printed of one that fails makes it again."""
    seed = 3000 * (date.today() - date(2026, 1, 1)).days
    status, output = trials_of(*options, "--seed", str(seed))
    assert status == 0, output
