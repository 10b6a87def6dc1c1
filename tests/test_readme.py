"""The README's example prints what the README says it prints, and its how-to does what it says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
HOW_TO = README.parent / "docs" / "how_to" / "tune_small.md"
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?")


@pytest.mark.long_loops
@pytest.mark.slow
def test_example_prints_what_it_says():
    code, printed = re.search(
        r"```python\n(.*?)```\nprints\n```\n(.*?)```", README.read_text(), re.DOTALL
    ).groups()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    got = out.getvalue()
    assert NUMBER.sub("#", got).split() == NUMBER.sub("#", printed).split()
    # Rounding differs between machines; what is estimated must not.
    for now, then in zip(NUMBER.findall(got), NUMBER.findall(printed), strict=True):
        assert float(now) == pytest.approx(float(then), rel=0.2, abs=0.02)


@pytest.mark.slow
def test_a_model_of_the_users_own_is_scaled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("torch")
    code = "".join(re.findall(r"```\{code-cell\} python\n(.*?)```", HOW_TO.read_text(), re.DOTALL))
    names, out = {"__name__": "readme"}, io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, names)
    assert "*.down.weight (8)  hidden in a branch" in out.getvalue()
    found, plan = names["found"], names["plan"]
    of_hidden = found.constants.lr.get("hidden", 1.0)
    # n⁻¹·l⁻¹, the branch's factor folded in.
    assert plan["1.down.weight"].lr == pytest.approx(of_hidden / 4 / 4)
    # The schedule ends at 0.
    assert {group["lr"] for group in names["optimizer"].param_groups} == {0.0}
    assert names["loss"] < 0.3
    assert "the best rate" in out.getvalue()
    assert out.getvalue().endswith("True True\n")
