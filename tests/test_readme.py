"""The README's example prints what the README says it prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?")


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
    code = re.search(r"```python\n(import torch.*?)```", README.read_text(), re.DOTALL).group(1)
    names, out = {"__name__": "readme"}, io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, names)
    assert "*.down.weight (16)  hidden in a branch" in out.getvalue()
    rates = [group["lr"] for group in names["groups"]]
    assert max(rates) == pytest.approx(3e-3)
    assert min(rates) == pytest.approx(3e-3 / 8 / 4)  # n⁻¹·l⁻¹, the branch's factor folded in
    model, x = names["model"], torch.ones(2, 64)
    before = model(x).detach()
    model(x).sum().backward()
    names["optimizer"].step()
    assert not torch.equal(model(x), before)
