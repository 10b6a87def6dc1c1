import os
import subprocess
import sys

import pytest

import largen as lg
from largen import kept_programs
from largen.errors import InvalidInput

# A process that has compiled before it is told where programs are kept.
PROCESS = """
import collections, sys
import jax, largen as lg
seen = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: seen.update([event.split("/")[-1]]))
jax.jit(lambda x: x + 1)(1.0)
lg.keep_programs(sys.argv[1])
jax.jit(lambda x: 3 * x**2 + 1)(1.0)
print(seen["cache_hits"], seen["cache_misses"])
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing_that_the_first_one_kept(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    said = [
        subprocess.run(
            [sys.executable, "-c", PROCESS, tmp_path / "programs"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert said == [["0", "1"], ["1", "0"]]


def test_every_kind_of_processor_has_a_folder(tmp_path, monkeypatch):
    names = set()
    for features in ("flags : fpu avx2\n", "flags : fpu avx2 avx512f\n"):
        listed = tmp_path / "cpuinfo"
        listed.write_text(f"model name : any\n{features}")
        monkeypatch.setattr(kept_programs, "_CPU", listed)
        names.add(kept_programs._processor())
    assert len(names) == 2


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InvalidInput, match="folder: cannot make the folder"):
        lg.keep_programs(file)
