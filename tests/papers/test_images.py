"""The user's own copy of images: where it is looked for, what is in it, what is said if not."""

import numpy as np
import pytest

from largen.errors import InvalidInput
from papers import figure, find_images
from papers.bordelon.panels import small_images


def write(path, shape=(28, 28), labels=10, **extra):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 255, (50, *shape)).astype(np.uint8),
        "y_train": np.arange(50) % labels,
        "x_test": rng.integers(0, 255, (20, *shape)).astype(np.uint8),
        "y_test": (np.arange(20) % labels)[:, None],
    }
    np.savez(path, **{**arrays, **extra})


def test_found_by_folder_file_and_environment(tmp_path, monkeypatch):
    write(tmp_path / "mnist_small.npz")
    for where in (tmp_path, tmp_path / "mnist_small.npz", str(tmp_path)):
        images = find_images("mnist", where)
        assert images.x_train.shape == (50, 28, 28)
        assert images.y_test.shape == (20,)
    monkeypatch.setenv("LARGEN_DATA", str(tmp_path))
    assert find_images("mnist").digest == images.digest


def test_a_draw_is_balanced_and_standardised(tmp_path):
    write(tmp_path / "mnist.npz")
    images = find_images("mnist", tmp_path)
    x, y, z, t = images.choose((3, 7), 8, 3)
    assert np.bincount(y).tolist() == [4, 4]
    assert len(z) == len(t) == 3
    assert (x.mean(), x.std()) == pytest.approx((0, 1), abs=1e-9)
    everything = images.choose(None, 1000, 1000)
    assert (len(everything[0]), len(everything[2])) == (50, 20)


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LARGEN_DATA", raising=False)
    write(tmp_path / "cifar10_8x8.npz", shape=(8, 8, 3))
    for where in (None, tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InvalidInput, match=r"cifar10.npz with x_train[^.]*32 × 32 × 3"):
            find_images("cifar10", where)
    (tmp_path / "mnist.npz").write_text("not an archive")
    with pytest.raises(InvalidInput, match="cannot read"):
        find_images("mnist", tmp_path)
    with pytest.raises(InvalidInput, match="figure: '004-9'"):
        figure("004-9")


def test_digits_take_the_place_of_any_set():
    digits = find_images("cifar10", "digits")
    assert digits.x_train.shape == (1200, 8, 8)
    assert digits.choose((3, 8), 10, 5)[0].shape == (10, 64)
    assert small_images(digits, steps=2, batch_size=4).x.shape == (1200, 1, 8, 8)
