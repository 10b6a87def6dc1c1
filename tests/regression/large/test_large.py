"""Low rank, conjugate gradients and kernels on disk, against the small dense case."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import zarr

import largen as lg
from largen.errors import CannotWrite, DamagedFile, InvalidInput, NumericalFailure
from largen.regression.large import on_disk, store
from largen.regression.large.preconditioners import partial_cholesky

RNG = np.random.default_rng(4)
X, X_TEST = RNG.normal(size=(60, 3)), RNG.normal(size=(7, 3))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)
NET = lg.mlp(1, "erf", bias_std=0.5)
KERNEL = lg.nngp_kernel(NET, X)
HEADS = lg.serial(lg.layers.MultiHeadAttention(), lg.Flatten(), lg.Dense())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nngp", pytest.param("ntk-gp", marks=pytest.mark.slow)])
def test_all_samples_as_landmarks_are_exact(kind):
    exact = lg.posterior(NET, X, Y, kind=kind, noise=0.05).predict(X_TEST)
    every = lg.regression.large.low_rank_posterior(NET, X, Y, kind=kind, noise=0.05, landmarks=60)
    got = every.predict(X_TEST)
    np.testing.assert_allclose(got.mean, exact.mean, atol=1e-7)
    np.testing.assert_allclose(got.variance, exact.variance, atol=1e-7)
    assert every.residual < 1e-9


def test_low_rank_is_the_formula():
    """Q = K_nm K_mm⁻¹ K_mn in the place of K, by dense algebra; equal rows do no harm."""
    chosen = np.array([3, 3, 10, 20, 41])
    given = lg.regression.large.low_rank_posterior(NET, X, Y[:, 0], noise=0.05, landmarks=chosen)
    cross, test = lg.nngp_kernel(NET, X, X[chosen]), lg.nngp_kernel(NET, X_TEST, X[chosen])
    inverse = np.linalg.pinv(lg.nngp_kernel(NET, X[chosen]), rcond=1e-10)
    q, q_test = cross @ inverse @ cross.T, test @ inverse @ cross.T
    solve = np.linalg.inv(q + 0.05 * np.eye(60))
    mean, variance, _ = given.predict(X_TEST)
    np.testing.assert_allclose(mean, q_test @ solve @ Y[:, 0], atol=1e-9)
    own = np.diagonal(lg.nngp_kernel(NET, X_TEST))
    np.testing.assert_allclose(variance, own - np.sum(q_test @ solve * q_test, axis=1), atol=1e-9)
    assert given.rank == 4
    np.testing.assert_allclose(
        given.residual, np.mean(np.diagonal(KERNEL) - np.diagonal(q)), atol=1e-9
    )


@pytest.mark.slow
def test_more_landmarks_come_closer():
    exact = lg.posterior(NET, X, Y, noise=0.05).predict(X_TEST)
    off = []
    for count in (5, 15, 40):
        given = lg.regression.large.low_rank_posterior(
            NET, X, Y, noise=0.05, landmarks=count, key=1
        )
        off.append(np.abs(given.predict(X_TEST).mean - exact.mean).max())
    assert off[2] < 0.2 * off[1] < 0.2 * off[0]


def test_conjugate_gradients_solve_and_the_preconditioner_helps():
    want = np.linalg.solve(KERNEL + 1e-4 * np.eye(60), Y)
    plain = lg.regression.large.solve_kernel(KERNEL, Y, noise=1e-4, rank=0)
    helped = lg.regression.large.solve_kernel(KERNEL, Y, noise=1e-4, rank=30)
    for found in (plain, helped):
        assert found.residual < 1e-7
        np.testing.assert_allclose(found.weights, want, atol=1e-5 * np.abs(want).max())
    assert helped.steps < plain.steps / 2
    one = lg.regression.large.solve_kernel(KERNEL, Y[:, 0], noise=1e-4, rank=30)
    np.testing.assert_allclose(one.weights, helped.weights[:, 0], atol=1e-5 * np.abs(want).max())
    with pytest.raises(NumericalFailure, match="residual") as caught:
        lg.regression.large.solve_kernel(KERNEL, Y, noise=1e-4, rank=0, max_steps=3)
    assert caught.value.result.status == "not converged"
    assert caught.value.result.steps == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_an_operator_is_its_matrix(kind):
    """One triangle of blocks, of unequal sizes, is the product with the whole kernel."""
    dense = {"nngp": lg.nngp_kernel, "ntk": lg.ntk_kernel}[kind]
    whole, vectors = dense(NET, X), RNG.normal(size=(60, 2))
    operator = lg.regression.large.kernel_operator(NET, X, kind=kind, block=25)
    np.testing.assert_allclose(operator @ vectors, whole @ vectors, rtol=1e-12)
    np.testing.assert_allclose(operator @ vectors[:, 0], whole @ vectors[:, 0], rtol=1e-12)
    across = lg.regression.large.kernel_operator(NET, X_TEST, X, kind=kind, block=25)
    np.testing.assert_allclose(across @ vectors, dense(NET, X_TEST, X) @ vectors, rtol=1e-12)
    with pytest.raises(InvalidInput, match="wanted 60 rows"):
        across @ vectors[:7]
    with pytest.raises(InvalidInput, match="without x2"):
        lg.regression.large.solve_kernel(across, Y, noise=0.1)


def test_an_operator_with_masks():
    x, there = RNG.standard_normal((5, 4, 2)), np.arange(4) < np.array([[4], [2], [3], [1], [4]])
    net = lg.serial(lg.Conv((3,)), lg.Activation("relu"), lg.Flatten(), lg.Dense())
    whole = lg.ntk_kernel(net, x, mask1=there)
    operator = lg.regression.large.kernel_operator(net, x, mask1=there, block=3)
    np.testing.assert_allclose(operator @ np.eye(5), whole, rtol=1e-12)


def test_an_operator_is_solved_like_its_matrix():
    """The preconditioner with all samples as landmarks is the inverse itself."""
    operator = lg.regression.large.kernel_operator(NET, X, kind="nngp", block=60)
    want = np.linalg.solve(KERNEL + 1e-2 * np.eye(60), Y)
    steps = []
    for rank in (5, 40, 60):
        found = lg.regression.large.solve_kernel(operator, Y, noise=1e-2, rank=rank)
        np.testing.assert_allclose(found.weights, want, atol=1e-6 * np.abs(want).max())
        steps.append(found.steps)
    assert steps[2] <= 2 < steps[1] < steps[0] / 2


@pytest.mark.parametrize("stored", [True, False])
def test_a_solution_goes_on_from_its_checkpoint(tmp_path, stored):
    """Interrupted in its fourth product, it makes the other steps only, to the same numbers."""
    matrix = (
        KERNEL if stored else lg.regression.large.kernel_operator(NET, X, kind="nngp", block=60)
    )
    given = {"noise": 1e-2, "rank": 10, "checkpoint": tmp_path / "state.npz"}
    want = lg.regression.large.solve_kernel(matrix, Y, noise=1e-2, rank=10)
    parts = []

    def stop(done, total):
        parts.append((done, total))
        if len(parts) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        lg.regression.large.solve_kernel(matrix, Y, progress=stop, **given)
    assert "the same call resumes" in stopped.value.__notes__[0]
    found = lg.regression.large.solve_kernel(
        matrix, Y, progress=lambda *part: parts.append(part), **given
    )
    np.testing.assert_array_equal(found.weights, want.weights)
    assert found.steps == want.steps
    assert len(parts) == want.steps + 2  # one was made twice, and one gives the residual
    assert parts[-1] == (want.steps + 1,) * 2
    with pytest.raises(InvalidInput, match="not of this matrix"):
        lg.regression.large.solve_kernel(matrix, 2 * Y, **given)


def test_partial_cholesky():
    """It takes the largest diagonal entry, and stops where the rank ends."""
    root = partial_cholesky(KERNEL, 60)
    np.testing.assert_allclose(root @ root.T, KERNEL, atol=1e-11)
    errors = [np.trace(KERNEL - r @ r.T) for r in (root[:, :5], root[:, :20])]
    assert errors[1] < 0.1 * errors[0]
    low = X[:, :2] @ X[:, :2].T
    assert partial_cholesky(low, 10).shape == (60, 2)


@pytest.mark.parametrize("block", [25, 60])
def test_on_disk(tmp_path, block):
    seen = []
    stored = lg.regression.large.stored_kernel(
        tmp_path / "k", NET, X, block=block, progress=lambda done, total: seen.append((done, total))
    )
    nngp, ntk = lg.kernel(NET, X)
    np.testing.assert_allclose(stored["nngp"][:], nngp, atol=1e-14)
    np.testing.assert_allclose(stored["ntk"][:], ntk, atol=1e-14)
    assert seen[-1] == (len(seen), len(seen)) == ({25: 6, 60: 1}[block],) * 2
    found = lg.regression.large.solve_kernel(stored["nngp"], Y, noise=0.1, rank=20)
    np.testing.assert_allclose(
        found.weights, np.linalg.solve(nngp + 0.1 * np.eye(60), Y), atol=1e-6
    )


@pytest.mark.slow
def test_on_disk_with_masks(tmp_path):
    x, there = RNG.standard_normal((5, 4, 2)), np.arange(4) < np.array([[4], [2], [3], [1], [4]])
    net = lg.serial(lg.Conv((3,)), lg.Activation("relu"), lg.GlobalAvgPool(), lg.Dense())
    for name, inputs in (("one", {"mask1": there}), ("two", {"x2": x[:3], "mask1": there})):
        stored = lg.regression.large.stored_kernel(tmp_path / name, net, x, **inputs, block=2)
        for kind, want in lg.kernel(net, x, **inputs)._asdict().items():
            np.testing.assert_allclose(stored[kind][:], want, rtol=1e-12)
    with pytest.raises(InvalidInput, match="another kernel"):
        lg.regression.large.stored_kernel(tmp_path / "one", net, x, mask1=there[::-1], block=2)


def test_a_disk_that_refuses_is_told_and_gone_on_with(tmp_path):
    lg.regression.large.stored_kernel(tmp_path, NET, X[:6], block=3)
    chunks = tmp_path / "ntk" / "c"
    shutil.rmtree(chunks)
    chunks.write_text("a file where a folder has to be")
    with pytest.raises(CannotWrite, match="cannot make the folder"):
        lg.regression.large.stored_kernel(tmp_path, NET, X[:6], block=3)
    chunks.unlink()
    stored = lg.regression.large.stored_kernel(tmp_path, NET, X[:6], block=3)
    np.testing.assert_allclose(stored["ntk"][:], lg.ntk_kernel(NET, X[:6]), rtol=1e-12)


def test_processes_on_one_folder_share_the_blocks(tmp_path, monkeypatch):
    """One begins, another one computes all that is left, and the first finds it done."""
    calls, real_kernel, begun = [], on_disk.kernel, []

    def counting(*args, **kwargs):
        calls.append(args)
        return real_kernel(*args, **kwargs)

    def another(done, total):
        if not begun:
            begun.append(done)
            lg.regression.large.stored_kernel(tmp_path, NET, X, block=25)

    monkeypatch.setattr(on_disk, "kernel", counting)
    lg.regression.large.stored_kernel(tmp_path, NET, X, block=25, progress=another)
    assert begun == [1]
    assert len(calls) == 6


def test_a_group_that_another_process_makes_in_the_same_moment(tmp_path, monkeypatch):
    whole = lg.regression.large.stored_kernel(tmp_path, NET, X[:5])["ntk"][:]
    group, get = zarr.open_group(store.WholeFiles(tmp_path), mode="r+"), zarr.Group.__getitem__
    missed = []

    def late(self, name):
        if self.store == group.store and name not in missed:
            missed.append(name)
            raise KeyError(name)
        return get(self, name)

    monkeypatch.setattr(zarr.Group, "__getitem__", late)
    np.testing.assert_array_equal(
        lg.regression.large.stored_kernel(tmp_path, NET, X[:5])["ntk"][:], whole
    )
    assert missed == ["nngp", "ntk"]


def test_interrupted_and_resumed(tmp_path, monkeypatch):
    """Only what is missing is computed; another kernel in the same folder is refused."""
    calls, real_kernel = [], on_disk.kernel

    def counting(*args, **kwargs):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(args)
        return real_kernel(*args, **kwargs)

    monkeypatch.setattr(on_disk, "kernel", counting)
    with pytest.raises(KeyboardInterrupt):
        lg.regression.large.stored_kernel(tmp_path, NET, X, X_TEST, block=20)
    calls[:] = []
    stored = lg.regression.large.stored_kernel(tmp_path, NET, X, X_TEST, block=20)
    assert len(calls) == 1  # two of the three blocks of 60 by 7 had been written
    # One entry is near 0 by cancellation, and knows the rounding of entries of order one.
    np.testing.assert_allclose(
        stored["ntk"][:], lg.ntk_kernel(NET, X, X_TEST), rtol=1e-12, atol=1e-14
    )
    for change in ({"block": 30}, {"param": lg.mean_field()}):
        with pytest.raises(InvalidInput, match="holds another kernel"):
            lg.regression.large.stored_kernel(tmp_path, NET, X, X_TEST, **({"block": 20} | change))
    with pytest.raises(InvalidInput, match="holds another kernel"):
        lg.regression.large.stored_kernel(tmp_path, NET, X + 1e-9, X_TEST, block=20)


@pytest.mark.slow
def test_damaged_files_are_computed_again_or_refused_by_name(tmp_path):
    """Bits are flipped in, and ends cut off, every file of a stored kernel."""
    x = X[:5]
    wanted = lg.regression.large.stored_kernel(tmp_path, NET, x, block=3)
    wanted = {name: wanted[name][:] for name in ("nngp", "ntk")}
    whole = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(whole) == 1 + 2 * (1 + 4)  # descriptions of the group and of two matrices, chunks
    outcomes = {"exact": 0, "damaged": 0}
    for path, content in whole.items():
        size = len(content)
        flips = [(k * size // 6, 1 << k) for k in range(6)]
        versions = [content[:p] + bytes([content[p] ^ bit]) + content[p + 1 :] for p, bit in flips]
        for version in [*versions, b"", content[: size // 2], content[:-1]]:
            path.write_bytes(version)
            try:
                found = lg.regression.large.stored_kernel(tmp_path, NET, x, block=3)
            except DamagedFile:
                outcomes["damaged"] += 1
                path.write_bytes(content)
                continue
            outcomes["exact"] += 1
            for name, matrix in wanted.items():
                assert found[name][:].tobytes() == matrix.tobytes()
    assert outcomes["exact"] >= 9 * 8  # all of the chunks
    assert outcomes["damaged"] > 15


def test_a_group_that_was_not_finished_is_gone_on_with(tmp_path):
    """Killed between the description of the group and those of its matrices."""
    whole = lg.regression.large.stored_kernel(tmp_path / "k", NET, X[:5])["ntk"][:]
    for name in ("nngp", "ntk"):
        shutil.rmtree(tmp_path / "k" / name)
        np.testing.assert_array_equal(
            lg.regression.large.stored_kernel(tmp_path / "k", NET, X[:5])["ntk"][:], whole
        )


@pytest.mark.slow
def test_another_function_of_the_same_name_is_another_kernel(tmp_path):
    def network(scale):
        def phi(x):
            return jnp.tanh(scale * x)

        return lg.mlp(1, phi)

    one, other = network(1.0), network(1.01)
    assert repr(one) == repr(other)
    lg.regression.large.stored_kernel(tmp_path, one, X[:4])
    lg.regression.large.stored_kernel(tmp_path, network(1.0), X[:4])
    with pytest.raises(InvalidInput, match="holds another kernel"):
        lg.regression.large.stored_kernel(tmp_path, other, X[:4])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: lg.regression.large.low_rank_posterior(NET, X, Y, noise=0.0),
            "noise: wanted a finite number > 0",
        ),
        (
            lambda: lg.regression.large.low_rank_posterior(NET, X, Y, noise=1.0, kind="ntk"),
            "kind: 'ntk'",
        ),
        (
            lambda: lg.regression.large.low_rank_posterior(NET, X, Y, noise=1.0, landmarks=[60]),
            "positions from 0",
        ),
        (
            lambda: lg.regression.large.low_rank_posterior(NET, X, Y, noise=1.0, landmarks=0),
            "landmarks: wanted",
        ),
        (
            lambda: lg.regression.large.solve_kernel(KERNEL[:3], Y, noise=1.0),
            "matrix: wanted a square",
        ),
        (
            lambda: lg.regression.large.stored_kernel("nowhere", HEADS, X[:, None]),
            "drawn for all samples together",
        ),
        (lambda: lg.regression.large.solve_kernel(KERNEL, Y[:3], noise=1.0), "y: has 3 rows"),
    ],
)
def test_wrong_input(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


def test_landmarks_of_networks_with_dropout_are_refused():
    net = lg.serial(lg.Dense(), lg.Activation("relu"), lg.layers.Dropout(0.2), lg.Dense())
    with pytest.raises(InvalidInput, match=r"^net: Dropout\(rate=0.2\) draws a mask"):
        lg.regression.large.low_rank_posterior(net, np.eye(3), np.ones(3), noise=0.1)
