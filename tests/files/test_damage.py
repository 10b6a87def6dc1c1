"""Damaged files give the exact content or one named error, whatever bit or byte is wrong."""

import numpy as np
import pytest

import largen as lg
from largen.errors import DamagedFile, InvalidInput
from largen.files import json_with_checksum, load_arrays, read_json, save_arrays
from largen.files.checksums import LENGTH

RNG = np.random.default_rng(0)
ARRAYS = {"x": RNG.normal(size=(5, 3)), "text": np.array("a word"), "none": np.zeros((0, 2))}
PLAN = {"width": 64, "weights": [{"name": "0.weight", "lr": 1e-05, "σ": 0.1}], "note": None}


def damages(whole, count):
    """Yield versions of a file: bits flipped all over, cut short, zeroed in part, grown."""
    size = len(whole)
    for i in range(count):
        place = i * size // count
        flipped = bytearray(whole)
        flipped[place] ^= 1 << (i % 8)
        yield bytes(flipped)
    for place in range(max(size - LENGTH, 0), size):  # every byte of the checksum and its line
        yield whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        yield whole[:place] + b"\0" + whole[place + 1 :]
    for length in (0, 1, 7, *(size * k // 20 for k in range(1, 20)), size - LENGTH, size - 1):
        yield whole[:length]
    for start in range(0, size, max(size // 10, 1)):
        end = min(start + 512, size)
        zeroed = whole[:start] + bytes(end - start) + whole[end:]
        if zeroed != whole:  # HDF5 has long stretches of zeros
            yield zeroed
    yield whole + b"\0"
    yield whole + whole
    yield whole[size // 2 :]


def outcomes(read, same, versions):
    """Count exact contents and named errors; anything else is raised, or fails here."""
    counts = {"exact": 0, "damaged": 0}
    for version in versions:
        try:
            found = read(version)
        except DamagedFile:
            counts["damaged"] += 1
        else:
            assert same(found)
            counts["exact"] += 1
    return counts


@pytest.fixture(scope="module")
def trajectory():
    data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]), np.eye(3)[:2] + 1, np.ones(2))
    run = lg.Run(lg.mlp(1), lg.ntk(), data, optimizer=lg.gd(0.1), steps=3)
    f = RNG.normal(size=(4, 5))
    return lg.Trajectory.of(run, f[:, :3], f[:, 3:], theory="kernel", reason="a test")


@pytest.mark.slow
def test_damaged_trajectories(tmp_path, trajectory):
    path = trajectory.save(tmp_path / "t.nc")

    def read(content):
        path.write_bytes(content)
        return lg.Trajectory.load(path).to_xarray()

    whole, wanted = path.read_bytes(), trajectory.to_xarray()
    assert outcomes(read, wanted.identical, [whole]) == {"exact": 1, "damaged": 0}
    found = outcomes(read, wanted.identical, damages(whole, 300))
    assert found == {"exact": 0, "damaged": sum(found.values())}
    assert sum(found.values()) > 330


def test_damaged_arrays(tmp_path):
    path = tmp_path / "x.npz"
    save_arrays(path, ARRAYS)

    def read(content):
        path.write_bytes(content)
        return load_arrays(path)

    def same(found):
        return found.keys() == ARRAYS.keys() and all(
            found[k].tobytes() == ARRAYS[k].tobytes() and found[k].dtype == ARRAYS[k].dtype
            for k in ARRAYS
        )

    whole = path.read_bytes()
    assert outcomes(read, same, [whole]) == {"exact": 1, "damaged": 0}
    found = outcomes(read, same, damages(whole, 400))
    assert found["exact"] == 0


def test_damaged_json():
    text = json_with_checksum(PLAN)
    found = outcomes(read_json, PLAN.__eq__, damages(text.encode(), len(text)))
    # A flip may leave the meaning as it is: e and E in 1e-05.
    assert found["exact"] < 5
    assert found["damaged"] > len(text)
    for wrong in (None, 3, "[1]", "{}", b"\xff", "[" * 100_000):
        with pytest.raises(DamagedFile):
            read_json(wrong)


def test_json_is_what_it_was_whatever_its_names_and_numbers():
    content = {"z": {2: 1, 10: 0}, "q": [0.1, 1e300, -0.0], "a": {"b": (1, 2)}}
    assert read_json(json_with_checksum(content)) == {
        "z": {"2": 1, "10": 0},
        "q": [0.1, 1e300, -0.0],
        "a": {"b": [1, 2]},
    }


def test_files_without_a_checksum_are_told_apart(tmp_path, trajectory):
    """What was written before there were checksums is read; what has lost its own is damaged."""
    import xarray

    path = trajectory.save(tmp_path / "t.nc")
    path.write_bytes(path.read_bytes()[:-LENGTH])
    with pytest.raises(DamagedFile, match="checksum is missing"):
        lg.Trajectory.load(path)
    before = trajectory.to_xarray().assign_attrs(format=1)
    before.to_netcdf(path, engine="h5netcdf")
    assert lg.Trajectory.load(path).to_xarray().identical(trajectory.to_xarray())
    xarray.Dataset({"x": 1.0}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(InvalidInput, match="does not hold a trajectory"):
        lg.Trajectory.load(path)


def test_others_read_our_files(tmp_path, trajectory):
    """A checksum behind the end does not disturb HDF5, netCDF or NumPy."""
    import xarray

    path = trajectory.save(tmp_path / "t.nc")
    assert xarray.load_dataset(path, engine="h5netcdf").identical(trajectory.to_xarray())
    save_arrays(tmp_path / "x.npz", ARRAYS)
    with np.load(tmp_path / "x.npz") as held:
        np.testing.assert_array_equal(held["x"], ARRAYS["x"])
