"""Files are there whole or as they were, whoever else writes and whatever happens on the way."""

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from largen.errors import CannotWrite, InvalidInput
from largen.files import save_arrays, save_text, write_whole

OLD = "what was there before"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def path(tmp_path):
    save_text(tmp_path / "file.txt", OLD)
    return tmp_path / "file.txt"


def _half_written(path, error):
    with write_whole(path) as file:
        file.write(b"half of ")
        raise error


def test_an_error_or_an_interrupt_inside_leaves_the_old_file(path):
    for error in (ValueError, KeyboardInterrupt, MemoryError):
        with pytest.raises(error):
            _half_written(path, error)
        assert path.read_text() == OLD
        assert names(path.parent) == ["file.txt"]


def test_a_full_disk_is_a_named_error_and_leaves_the_old_file(path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CannotWrite, match=r"file\.txt.*No space left"):
            save_text(path, "new")
    assert path.read_text() == OLD
    assert names(path.parent) == ["file.txt"]


LIMITED = """
    import resource, sys, numpy as np
    from pathlib import Path
    from largen.errors import CannotWrite
    from largen.files import save_arrays, save_dataset, save_figure, save_text
    import xarray
    from matplotlib.figure import Figure
    folder = Path(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    big = np.random.default_rng(0).normal(size=(100, 100))
    figure = Figure(figsize=(30, 30)); figure.subplots().imshow(big)
    tries = {
        "a.npz": lambda path: save_arrays(path, {"x": big, "y": big}),
        "b.nc": lambda path: save_dataset(path, xarray.Dataset({"x": (("i", "j"), big)})),
        "c.txt": lambda path: save_text(path, "1 2 3 " * 10_000),
        "d.png": lambda path: save_figure(path, figure),
    }
    for name, save in tries.items():
        try:
            save(folder / name)
        except CannotWrite as error:
            print(name, error)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no limits of file sizes")
def test_a_limit_of_file_sizes_is_a_named_error_for_all_kinds_of_files(tmp_path):
    kinds = ("a.npz", "b.nc", "c.txt", "d.png")
    for name in kinds:
        (tmp_path / name).write_text(OLD)
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        # A measurement of coverage could not write its own file.
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")},
    )
    assert told.returncode == 0, told.stderr
    assert told.stderr == ""
    for name, line in zip(kinds, told.stdout.splitlines(), strict=True):
        assert line.startswith(name)
        assert "File too large" in line
        assert (tmp_path / name).read_text() == OLD
    assert names(tmp_path) == sorted(kinds)


def test_many_writers_of_one_file_all_succeed(tmp_path):
    """Threads, which share the process's number; every write is a whole file of one writer."""
    target, failures = tmp_path / "shared.npz", []

    def write(mark):
        try:
            for _ in range(20):
                save_arrays(target, {"mark": np.full(500, mark)})
        except Exception as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(mark,)) for mark in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failures
    assert names(tmp_path) == ["shared.npz"]
    with np.load(target) as held:
        assert len(set(held["mark"])) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_drafts_of_the_killed_are_deleted_and_those_of_the_living_are_not(path):
    code = f"""
        import os, signal, time
        from largen.files import write_whole
        with write_whole({str(path)!r}) as file:
            file.write(b"half"); file.flush(); print("in", flush=True); time.sleep(60)
    """
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "in\n"
    save_text(path, "another")
    assert len(names(path.parent)) == 2  # the draft of a writer at work is left alone
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    save_text(path, "a third")
    assert names(path.parent) == ["file.txt"]
    assert path.read_text() == "a third"


def test_permissions_and_links_are_kept(path):
    path.chmod(0o640)
    link = path.with_name("link")
    link.symlink_to(path)
    save_text(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_what_is_no_place_for_a_file_is_refused(tmp_path):
    for wrong, words in (
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "x", "does not exist"),
        ("/dev/null", "not a regular file"),
        ("a\0b", "null character"),
    ):
        with pytest.raises(InvalidInput, match=words):
            save_text(wrong, "1")


def test_a_name_of_any_length_that_the_disk_takes(tmp_path):
    save_text(tmp_path / ("n" * 250), "1")
    assert names(tmp_path) == ["n" * 250]
    with pytest.raises((CannotWrite, InvalidInput), match="too long"):
        save_text(tmp_path / ("n" * 300), "1")
