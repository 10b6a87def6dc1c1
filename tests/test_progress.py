"""Who waits for a long call sees how far it is: a bar, or lines where there is no terminal."""

import re
import sys
from types import ModuleType, SimpleNamespace

import jax
import pytest

from largen import compilation, progress
from largen.progress import reporter


def test_lines_in_the_log_of_a_batch_job(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SILENCE", 0.0)
    monkeypatch.setattr(progress, "SETTLED", 0.0)
    with reporter(None, "networks") as report:
        for done in range(5):
            report(done, 4)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" after")[0] for line in lines] == [
        "networks: 0%",
        "networks: 25%",
        "networks: 50%",
        "networks: 75%",
    ]
    assert not any("left" in line for line in lines[:2])  # the first step includes compilation
    assert all("s left" in line for line in lines[2:])


@pytest.mark.parametrize("choice", [None, False])
def test_short_calls_say_nothing(choice, capsys):
    with reporter(choice, "networks") as report:
        report(1, 4)
        report(4, 4)
    assert capsys.readouterr().err == ""


def in_a_notebook(monkeypatch, *, widgets):
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setattr(progress, "find_spec", lambda name: "found" if widgets else None)


@pytest.mark.parametrize("choice", [None, True])
@pytest.mark.parametrize("widgets", [True, False])
def test_notebooks_have_bars_if_they_can_draw_them(widgets, choice, capsys, monkeypatch):
    in_a_notebook(monkeypatch, widgets=widgets)
    monkeypatch.setattr(progress, "SILENCE", 0.0)
    with reporter(choice, "networks") as report:
        report(1, 4)
    assert ("networks: 25%" in capsys.readouterr().err) == (not widgets)


class Clock:
    """A clock that the tests set."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_long_calls_are_announced_from_their_first_steps(clock, capsys):
    """Of 100 steps of 2 s, after a compilation of 40 s: 40 + 2·100 s, said at the third step."""
    said = []
    with reporter(None, "mean field", lambda seconds: f"half of it: {seconds / 2:.0f} s") as report:
        for step in range(101):
            clock.now = 0.0 if step == 0 else 40.0 + 2.0 * step
            report(step, 100)
            said += [(step, line) for line in capsys.readouterr().err.splitlines() if ";" in line]
    assert said == [(3, "mean field: about 4.0 min; half of it: 97 s")]


@pytest.mark.parametrize("seconds", [lambda n: 2.0, lambda n: 0.5 + 0.05 * n])
def test_remaining_times_hold_from_the_second_report(clock, capsys, seconds):
    """Compilation takes 40 s before the first step, and 15 s again before the 30th.

    Steps take equal times, or become slower: 5.5 s in the end for 0.5 s at the beginning.
    """
    ends = [0.0]
    for step in range(1, 101):
        ends.append(ends[-1] + seconds(step) + {1: 40.0, 30: 15.0}.get(step, 0.0))
    with reporter(None, "mean field") as report:
        for step, now in enumerate(ends):
            clock.now = now
            report(step, 100)
    lines = [line for line in capsys.readouterr().err.splitlines() if "left" in line]
    assert len(lines) > 4
    units = {"s": 1.0, "min": 60.0, "h": 3600.0}
    for line in lines:
        share, left, unit = re.match(r".*: (\d+)% after .*about ([\d.]+) (\w+) left", line).groups()
        true = ends[-1] - ends[int(share)]
        slower = 1 if seconds(1) == seconds(100) else 2
        assert 0.5 / slower < float(left) * units[unit] / true < 2, line


def test_remaining_times_hold_for_two_threads_that_report_in_pairs(clock):
    """Two steps take 2 s, and the second is reported a moment after the first."""
    forecast = progress.Forecast()
    for step in range(1, 101):
        clock.now = 40.0 + 2.0 * ((step + 1) // 2) + 0.01 * (step % 2 == 0)
        forecast.words(step, 100)
        left, true = forecast.left(), 142.0 - clock.now
        assert step < 4 or step > 97 or 0.5 < left / true < 2


def test_nothing_is_announced_from_the_first_moment_after_a_compilation(clock, capsys):
    """Its first steps wait for the other thread's; all in all the call takes 50 s."""
    with reporter(None, "mean field") as report:
        for step, now in enumerate(
            [0.0, 40.0, 40.1, 41.0, *(41.0 + 0.1 * i for i in range(1, 97))]
        ):
            clock.now = now
            report(step, 99)
    assert capsys.readouterr().err == "mean field: 1% after 40 s\n"


def test_more_work_than_announced_is_announced_again(clock, capsys):
    with reporter(None, "mean field") as report:
        for step in range(40):
            clock.now = 1.0 * step
            report(step, 40 if step < 30 else 400)
    announced = [line for line in capsys.readouterr().err.splitlines() if "left" not in line]
    assert announced == ["mean field: about 40 s", "mean field: about 6.2 min"]


def test_calls_of_half_a_minute_are_not_announced(clock, capsys):
    with reporter(None, "mean field") as report:
        for step in range(29):
            clock.now = 1.0 * step
            report(step, 29)
    assert capsys.readouterr().err == ""


def test_announcements_stand_above_bars(clock, capsys, monkeypatch):
    in_a_notebook(monkeypatch, widgets=True)
    with reporter(True, "networks") as report:
        for step in range(6):
            clock.now = 10.0 * step
            report(step, 100)
    assert "networks: about 17 min" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [None, "somewhere"])
def test_long_compilation_leads_to_the_cache_once(kept, capsys, monkeypatch):
    monkeypatch.setattr(compilation, "_mentioned", False)
    monkeypatch.setattr(compilation.jax, "config", SimpleNamespace(jax_compilation_cache_dir=kept))
    for seconds in (4.0, 12.0, 12.0):
        with reporter(None, "networks") as report:
            jax.monitoring.record_event_duration_secs(compilation.EVENT, seconds / 2)
            jax.monitoring.record_event_duration_secs("/jax/core/compile/other", 100.0)
            jax.monitoring.record_event_duration_secs(compilation.EVENT, seconds / 2)
            report(4, 4)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(";")[0] for line in lines] == (
        [] if kept else ["networks: 12 s of it was compilation"]
    )


def test_compilation_is_reported_by_jax_under_the_name_that_is_counted():
    seen = []
    listen = lambda event, seconds, **_: seen.append(event)  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(listen)
    jax.jit(lambda x: x * 3 + 1)(1.0)
    jax.monitoring.unregister_event_duration_listener(listen)
    assert compilation.EVENT in seen
