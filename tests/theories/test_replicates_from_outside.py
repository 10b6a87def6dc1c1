"""A theory from outside has error bars, threads, interrupts and checkpoints as others have."""

from dataclasses import dataclass
from threading import get_ident
from typing import Any, ClassVar

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NumericalFailure
from largen.theories.mean_field import from_outside

X = np.random.default_rng(0).standard_normal((5, 3))
DATA = lg.Dataset(X[:3], np.array([1.0, -1.0, 0.5]), X[3:], np.zeros(2))
RUN = lg.Run(lg.mlp(1), lg.ntk(), DATA, optimizer=lg.gd(0.5), steps=4)
TRUTH = np.linspace(0, 1, 5)[:, None] * np.arange(1.0, 6)  # (step, sample)


@dataclass(frozen=True, kw_only=True)
class Noisy(lg.theories.Theory):
    """Outputs that are known, with independent noise in every replicate."""

    name: ClassVar[str] = "noisy"
    noise: float = 1.0
    rtol: float = 0.1
    replicates: int | None = None
    key: Any = 0
    checkpoint: Any = None
    progress: Any = None

    @classmethod
    def pose(cls, run):
        return lg.theories.Posed(run, "it was asked for", None)

    def outputs(self, rng, tell):
        tell(0.5)
        THREADS.add(get_ident())
        return TRUTH + self.noise * rng.standard_normal(TRUTH.shape)

    def solve(self, posed, *, throw=True):
        return lg.theories.solve_by_replicates(self, posed, self.outputs, throw=throw)


THREADS = set()


def test_replicates_are_added_until_the_interval_is_that_of_rtol():
    limit = lg.solve(RUN, theory=Noisy(), rtol=0.05)
    both = np.concatenate([limit.f_train, limit.f_test], 1)
    margin = np.concatenate([limit.f_train_margin, limit.f_test_margin], 1)
    assert 0.02 < np.linalg.norm(margin) / np.linalg.norm(TRUTH) / 1.96 < 0.06
    assert np.mean(np.abs(both - TRUTH) < margin) > 0.8
    assert (np.abs(both - TRUTH) < 5 * margin).all()
    assert "95% interval" in limit.notes[0]
    again = lg.solve(RUN, theory=Noisy(), rtol=0.05)
    np.testing.assert_array_equal(again.f_train, limit.f_train)
    other = lg.solve(RUN, theory=Noisy(key=1), rtol=0.05)
    assert np.abs(other.f_train - limit.f_train).max() > 0


def test_as_many_as_are_asked_for_at_the_same_time(monkeypatch):
    monkeypatch.setattr(from_outside, "cores", lambda: 3)
    THREADS.clear()
    limit = lg.solve(RUN, theory=Noisy(replicates=6))
    assert limit.notes[0].startswith("6 replicates")
    assert get_ident() not in THREADS


def test_an_interrupted_call_resumes_to_the_same_result(tmp_path):
    whole, path = lg.solve(RUN, theory=Noisy()), tmp_path / "limit.npz"

    def interrupt(done, total):
        if done > 500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lg.solve(RUN, theory=Noisy(checkpoint=path, progress=interrupt))
    assert path.exists()
    told = []
    resumed = Noisy(checkpoint=path, progress=lambda *now: told.append(now))
    np.testing.assert_array_equal(lg.solve(RUN, theory=resumed).f_train, whole.f_train)
    assert told[0][0] > 400
    for other, words in (
        (Noisy(checkpoint=path, noise=0.5), "another noise"),
        (Noisy(checkpoint=path, key=3), "another key"),
    ):
        with pytest.raises(InvalidInput, match=words):
            lg.solve(RUN, theory=other)
    with pytest.raises(InvalidInput, match="another number of steps"):
        lg.solve(RUN.with_changes(steps=5), theory=Noisy(checkpoint=path))


def test_what_a_replicate_returns_is_checked():
    @dataclass(frozen=True, kw_only=True)
    class Wrong(Noisy):
        name: ClassVar[str] = "of another shape"

        def outputs(self, rng, tell):
            return TRUTH[:, :3]

    @dataclass(frozen=True, kw_only=True)
    class Infinite(Noisy):
        name: ClassVar[str] = "infinite"

        def outputs(self, rng, tell):
            return np.where(np.arange(5)[:, None] < 2, TRUTH, np.inf)

    with pytest.raises(InvalidInput, match=r"one: wanted outputs of shape \(5, 5\), got \(5, 3\)"):
        lg.solve(RUN, theory=Wrong())
    with pytest.raises(NumericalFailure, match=r"'infinite' diverges: .* before time index 2"):
        lg.solve(RUN, theory=Infinite())
    assert lg.solve(RUN, theory=Infinite(), throw=False).status != "ok"


def test_options_and_arguments_are_checked():
    posed = Noisy.pose(RUN)
    for theory, one, most, words in (
        (Noisy(), lambda rng: TRUTH, 9, "one"),
        (Noisy(rtol=0), Noisy().outputs, 9, "rtol: wanted"),
        (Noisy(replicates=0), Noisy().outputs, 9, "replicates: wanted"),
        (Noisy(), Noisy().outputs, 2, "most: wanted"),
    ):
        with pytest.raises(InvalidInput, match=words):
            lg.theories.solve_by_replicates(theory, posed, one, most=most)
