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
