"""Every result shows itself in a few lines, and as HTML in notebooks."""

import warnings

import numpy as np
import pytest
from jaxtyping import TypeCheckError
from tests.wrong_arguments.examples import examples

import largen as lg
from largen.results import brief, in_notebooks

MOST_LINES = 20


def test_arrays_are_described_not_printed():
    found = lg.kernel(lg.mlp(1, "relu"), np.random.default_rng(0).normal(size=(200, 3)))
    text = repr(found)
    assert "nngp  (200, 200), from " in text
    assert text.count("\n") == 2
    smallest, largest = found.nngp.min(), found.nngp.max()
    assert f"from {smallest:.4g} to {largest:.4g}" in text


def test_entries_that_are_not_finite_are_counted():
    steps = lg.regression.relaxation_times(np.diag([1.0, 0.0]))
    assert "1 not finite" in brief(steps)


def test_notebooks_escape_what_is_no_markup():
    class Odd:
        def __str__(self):
            return "1 < 2"

    assert in_notebooks(Odd()) == "<pre>1 &lt; 2</pre>"


@pytest.mark.slow  # calls every public function
def test_all_results():
    shown = set()
    for name, example in examples().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = example.call(**example.arguments)
            except TypeCheckError:  # of the tests: lists where annotations say arrays
                continue
        kind = type(result)
        if not kind.__module__.startswith("largen"):
            continue
        assert repr(result).count("\n") < MOST_LINES, name
        if isinstance(result, tuple) or hasattr(result, "to_xarray"):
            assert result._repr_html_().startswith("<pre>"), name  # pyright: ignore[reportAttributeAccessIssue]
            shown.add(kind)
    assert len(shown) > 20
