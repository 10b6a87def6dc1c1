"""What writes files is killed at random, again and again: nothing is lost, every bit is right.

    python -m benchmarks.kills            # 20 kills of each of five, some fifteen minutes
    python -m benchmarks.kills sweep 5    # five kills of a sweep

A sweep with a folder, a deep solution with a checkpoint, ``stored_kernel``, alone and with workers,
and ``Trajectory.save`` run in processes of their own, which SIGKILL ends at a time that is drawn
anew each time. Behind every kill, what was finished before is still there; in the end, the result
is that of a process that nobody has killed.
"""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import largen as lg

KILLS = 20
SEED = 0
RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(6, 4)), RNG.normal(size=6)


def digest(*arrays):
    """Return what tells arrays apart, bit by bit."""
    found = hashlib.sha256()
    for array in map(np.asarray, arrays):
        found.update(f"{array.shape} {array.dtype}".encode() + array.tobytes())
    return found.hexdigest()


def sweep(folder):
    """Twelve cells; those that are finished are files."""
    from examples.models import ResidualMLP
    from largen.sweeps import Grid, Task
    from largen.sweeps import sweep as swept

    x = np.random.default_rng(0).normal(size=(256, 64)).astype("float32")
    task = Task(x, (x[:, 0] > 0).astype(int), steps=150)
    grid = Grid(lrs=[2**-6, 2**-4, 2**-2], base=(16, 2), widths=[16, 24, 32, 64])
    found = swept(ResidualMLP, task, grid, checkpoint=folder / "cells", progress=False)
    return digest(*(found.data[name].values for name in sorted(map(str, found.data))))


def deep(folder):
    """Four replicates of a sweep of 120 steps, whose states are written every tenth of a second."""
    from largen.theories.mean_field.deep.restarts import sweep_state

    sweep_state.SECONDS = 0.1
    data = lg.Dataset(X, Y)
    run = lg.Run(lg.mlp(3, "tanh"), lg.mean_field(), data, optimizer=lg.gd(0.2), steps=120)
    found = lg.solve(
        run, particles=2048, replicates=4, max_particles=8192, method="sweep", progress=False,
        checkpoint=folder / "limit.npz",
    )  # fmt: skip
    return digest(found.f_train, found.f_train_error, found.ntk)


def stored(folder, jobs=1):
    """Some hundred blocks of a kernel."""
    x = np.random.default_rng(0).normal(size=(1200, 10))
    found = lg.regression.large.stored_kernel(
        folder / "kernel", lg.mlp(4, "relu"), x, block=80, jobs=jobs
    )
    return digest(found["nngp"][:], found["ntk"][:])


def workers(folder):
    """The same by two workers, which outlive the killed process for a moment."""
    return stored(folder, jobs=2)


def saved(folder):
    """Two trajectories that are saved over one another, 300 times."""
    both, path = trajectories(), folder / "limit.nc"
    for count in range(300):
        both[count % 2].save(path)
    return digest(lg.Trajectory.load(path).f_train)


def trajectories():
    """Return the two that are saved in turn."""
    run = lg.Run(lg.mlp(1), lg.ntk(), lg.Dataset(X, Y), optimizer=lg.gd(0.1), steps=2000)
    f = np.random.default_rng(2).normal(size=(2001, 6))
    return [lg.Trajectory.of(run, k * f, f[:, :0], theory="kernel", reason="-") for k in (1, 2)]


def cells(folder):
    """Return the cells that are there, by their content."""
    return {path.name: path.read_bytes() for path in folder.glob("cells/**/*.npz")}


def replicates(folder):
    """Return how many replicates the checkpoint has."""
    path = folder / "limit.npz"
    return {"kept": path.exists(), "states": len(list(folder.glob("limit.npz.states/*.npz")))}


def blocks(folder):
    """Return which chunks are there; drafts of the killed are deleted by whoever writes next."""
    files = (path for path in folder.glob("kernel/*/c/**/*") if path.is_file())
    return {path: True for path in files if path.suffix != ".part"}


def whole(folder):
    """Return which trajectory is there; both are whole."""
    path = folder / "limit.nc"
    if not path.exists():
        return {}
    found = lg.Trajectory.load(path).f_train
    assert any(np.array_equal(found, one.f_train) for one in trajectories())
    return {"a trajectory": True}


CASES = {"sweep": (sweep, cells), "deep": (deep, replicates), "stored": (stored, blocks),
         "workers": (workers, blocks), "saved": (saved, whole)}  # fmt: skip


def child(name, folder):
    """Return a process that says when it begins, and what it has found."""
    words = [sys.executable, "-m", "benchmarks.kills", "--child", name, str(folder)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def begun(process):
    """Wait until a process has imported everything."""
    assert process.stdout.readline() == "begins\n"
    return time.monotonic()


def killed(name, kills, rng):
    """Kill a case so many times, and run it to its end; return what came of it, in words."""
    with tempfile.TemporaryDirectory() as top:
        fresh, folder = Path(top, "fresh"), Path(top, "killed")
        fresh.mkdir()
        folder.mkdir()
        process = child(name, fresh)
        start = begun(process)
        wanted = process.communicate()[0].strip()
        length = time.monotonic() - start
        there, done, ended = {}, 0, 0
        stages = []
        while done < kills:
            process = child(name, folder)
            begun(process)
            time.sleep(rng.uniform(0, length))
            if process.poll() is not None:  # it has finished before: begin anew
                ended += 1
                assert process.communicate()[0].strip() == wanted, "another result"
                subprocess.run(["rm", "-rf", str(folder)], check=True)
                folder.mkdir()
                there = {}
                continue
            os.kill(process.pid, signal.SIGKILL)
            process.wait()  # for it alone: its workers have its output, and wait for work a while
            done += 1
            now = CASES[name][1](folder)
            lost = [key for key in there if key not in now or (there[key] and not now[key])]
            changed = [k for k in there if isinstance(there[k], bytes) and now.get(k) != there[k]]
            assert not lost, f"lost: {lost}"
            assert not changed, f"changed: {changed}"
            stages.append(sum(map(int, map(bool, now.values()))))
            there = now
        process = child(name, folder)
        begun(process)
        assert process.communicate()[0].strip() == wanted, "another result"
        left = [str(path) for path in folder.rglob("*.part")]
        return (
            f"{name}: {done} kills, {ended + 1} times to the end with every bit; what was there "
            f"behind each kill: {stages}; drafts left: {len(left)}"
        )


def main():
    """Run all cases, or the one that is named."""
    words = sys.argv[1:]
    if words[:1] == ["--child"]:
        print("begins", flush=True)
        print(CASES[words[1]][0](Path(words[2])))
        return
    kills = int(words[1]) if len(words) > 1 else KILLS
    rng = np.random.default_rng(SEED)
    for name in words[:1] or CASES:
        print(killed(name, kills, rng), flush=True)


if __name__ == "__main__":
    main()
