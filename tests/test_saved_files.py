"""Every file of numbers that a call or a command writes is read by ``lg.load``."""

import ast
from pathlib import Path

import numpy as np
import pytest
import xarray

import largen as lg
from largen.errors import DamagedFile, InvalidInput
from largen.experiments.quickstart import Quickstart
from largen.files import save_arrays, save_dataset, save_text

ROOT = Path(__file__).parents[1]
X, Y = np.eye(3), np.array([1.0, -1.0, 1.0])
# Modules that write, and what they write it with. All but the raw chunks of matrices on disk, which
# zarr reads, are read by lg.load: data sets and trees of them, arrays, and JSON.
WRITERS = {
    "largen/cli/quickstart.py": {"save_dataset", "save_figure", "save_text"},
    "largen/regression/large/iterative.py": {"save_arrays"},
    "largen/regression/large/store.py": {"write_whole"},
    "largen/results/protocol.py": {"save_dataset", "save_figure"},
    "largen/runs/saving.py": {"save_dataset"},
    "largen/runs/trajectory.py": {"save_dataset"},
    "largen/sweeps/store.py": {"save_arrays"},
    "largen/theories/mean_field/engine/marked_files.py": {"save_arrays"},
    "papers/production.py": {"save_dataset", "save_figure", "save_text"},
}
KNOWN = {"save_dataset", "save_arrays", "save_figure", "save_text", "write_whole"}
# Methods by which a module could write without these.
OTHERS = {"to_netcdf", "to_zarr", "savez", "savez_compressed", "savetxt", "tofile"}
OTHERS |= {"write_text", "write_bytes", "to_csv"}


def calls(path):
    """Return the names of all functions and methods that a module calls, if it may write."""
    text = path.read_text()
    if not any(name in text for name in (*KNOWN, *OTHERS)):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            if name:
                yield name


def test_what_writes_files_is_known():
    """A new writer takes its place here, with a file that is read below."""
    found = {}
    for folder in (ROOT / "src" / "largen", ROOT / "papers"):
        for path in folder.rglob("*.py"):
            if path.parent.name == "files":
                continue
            name = path.relative_to(folder.parent).as_posix()
            if used := set(calls(path)) & (KNOWN | OTHERS):
                found[name] = used
    assert found == WRITERS


def test_numbers_that_are_no_result(tmp_path):
    plain = xarray.Dataset({"a": ("b", np.arange(3.0))}, attrs={"title": "of a figure"})
    save_dataset(tmp_path / "plain.nc", plain)
    one = lg.load(tmp_path / "plain.nc")
    xarray.testing.assert_equal(one.to_xarray(), plain)
    assert one.kind == "Dataset"
    assert "of a figure" in str(one)
    groups = {"/one": plain, "/two/inner/0": plain, "/two/inner/1": plain}
    save_dataset(tmp_path / "tree.nc", xarray.DataTree.from_dict(groups))
    tree = lg.load(tmp_path / "tree.nc")
    assert sorted(tree) == ["one", "two"]
    assert len(tree["two"]["inner"]) == 2
    xarray.testing.assert_equal(tree["two"]["inner"][1].to_xarray(), plain)
    plain.to_netcdf(tmp_path / "foreign.nc", engine="h5netcdf")
    with pytest.raises(InvalidInput, match="does not hold a result of largen"):
        lg.load(tmp_path / "foreign.nc")


def test_arrays_and_summaries(tmp_path):
    save_arrays(tmp_path / "state.npz", {"f": X, "mark/run": "abc"})
    np.testing.assert_array_equal(lg.load(tmp_path / "state.npz")["f"], X)
    content = (tmp_path / "state.npz").read_bytes()
    (tmp_path / "state.npz").write_bytes(content[:50] + b"?" + content[51:])
    with pytest.raises(DamagedFile, match="checksum"):
        lg.load(tmp_path / "state.npz")
    save_text(tmp_path / "summary.json", '{"a": [1, 2]}')
    assert lg.load(tmp_path / "summary.json") == {"a": [1, 2]}
    save_text(tmp_path / "summary.json", "{")
    with pytest.raises(InvalidInput, match="not valid JSON"):
        lg.load(tmp_path / "summary.json")


@pytest.mark.slow
def test_the_file_of_the_quickstart(tmp_path):
    data = lg.Dataset(X, Y, X + 0.1, Y)
    limits, comparisons = {}, {}
    for case, param in {"ntk": lg.ntk(), "mean_field": lg.mean_field()}.items():
        run = lg.Run(lg.mlp(1, "tanh"), param, data, optimizer=lg.gd(0.5), steps=3)
        nets = [lg.train(run, width=n, seeds=4) for n in (8, 16)]
        limits[case] = lg.solve(run)
        comparisons[case] = lg.compare(limits[case], nets)
    save_dataset(tmp_path / "q.nc", Quickstart(limits, comparisons, 1.0).to_datatree())
    found = lg.load(tmp_path / "q.nc")
    for case, limit in limits.items():
        np.testing.assert_array_equal(found[case]["limit"].f_test, limit.f_test)
        assert str(found[case]["comparison"]) == str(comparisons[case])


@pytest.mark.slow
def test_checkpoints(tmp_path):
    run = lg.Run(
        lg.mlp(2, "tanh"), lg.mean_field(), lg.Dataset(X, Y), optimizer=lg.gd(0.5), steps=3
    )
    lg.solve(run, rtol=0.1, checkpoint=tmp_path / "state.npz")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert lg.load(path)
