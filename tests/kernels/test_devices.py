"""Tiles on several devices."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput


@pytest.mark.slow
def test_four_devices():
    """In a process of its own, since the number of devices is fixed when JAX starts."""
    script = Path(__file__).with_name("on_devices.py")
    source = Path(lg.__file__).parent.parent
    forced = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | forced | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("devices", ["cpu", [], [0], jax.devices()[:1] * 2])
def test_wrong_devices(devices):
    with pytest.raises(InvalidInput, match="devices: "):
        lg.kernel(lg.mlp(1), np.eye(2), devices=devices)
