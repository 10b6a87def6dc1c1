"""What a large kernel takes beside its result."""

import subprocess
import sys

import pytest

PROGRAM = """
import jax.numpy as jnp, numpy as np, largen as lg

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))

x = jnp.asarray(np.random.default_rng(0).standard_normal((3000, 20)), jnp.float32)
net, kernel = lg.mlp(3, "erf"), lg.kernel
before = resident()
kernels = [np.asarray(k) for k in kernel(net, x)]
print(resident() - before, sum(k.nbytes for k in kernels) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and glibc alone can give back")
def test_what_compilation_leaves_behind_is_given_back():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    grown, result = map(float, done.stdout.split())
    assert grown < result + 60
