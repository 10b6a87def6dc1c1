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


def test_a_model_of_the_users_own_is_scaled():
    torch = pytest.importorskip("torch")
    code = "".join(re.findall(r"```\{code-cell\} python\n(.*?)```", HOW_TO.read_text(), re.DOTALL))
    names, out = {"__name__": "readme"}, io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, names)
    assert "*.down.weight (8)  hidden in a branch" in out.getvalue()
    rates = [group["lr"] for group in names["optimizer"].param_groups]
    assert max(rates) == pytest.approx(3e-3)
    assert min(rates) == pytest.approx(3e-3 / 4 / 4)  # n⁻¹·l⁻¹, the branch's factor folded in
    model, x = names["model"], torch.ones(2, 64)
    before = model(x).detach()
    model(x).sum().backward()
    names["optimizer"].step()
    assert not torch.equal(model(x), before)


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert len(links) > 8
    assert [link for link in links if not (README.parent / link).exists()] == []
