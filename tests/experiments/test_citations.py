"""Entries of a bibliography: they follow from the docstrings of what a result was computed with."""

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import largen as lg
from largen.bibliography import PAPERS
from largen.errors import InvalidInput

DATA = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))


def keys(*results):
    return re.findall(r"^@\w+\{(\w+),$", lg.cite(*results), re.MULTILINE)


def run_in(param):
    return lg.Run(lg.mlp(1, "erf"), param, DATA, optimizer=lg.gd(0.5), steps=1)


def test_a_limit_is_cited_by_its_theory_and_its_parameterization():
    found = keys(lg.solve(run_in(lg.mup()), rtol=1e-2))
    assert found[0] == "largen"
    assert {"golikov2020towards", "yang2021tensor", "yang2022tensor"} <= set(found)
    assert "bahri2022les" not in found
    assert "bahri2022les" in keys(lg.KernelFlowRegressor)


def test_networks_are_not_cited_by_a_theory():
    nets = lg.train(run_in(lg.mean_field()), width=4, seeds=2, key=0)
    assert "golikov2020towards" not in keys(nets)


def test_each_paper_once_and_every_key_once():
    twice = keys(lg.fixed_points, lg.fixed_points, lg.fixed_points("tanh", weight_std=1.5))
    assert len(twice) == len(set(twice)) > 2
    assert len({paper.key for paper in PAPERS}) == len(PAPERS)


def test_braces_of_every_entry_are_balanced():
    for paper in PAPERS:
        assert paper.bibtex().count("{") == paper.bibtex().count("}")
        assert re.fullmatch(r"(19|20)\d\d", paper.fields["year"])


def test_a_theory_of_the_users_own_is_cited_by_its_docstring():
    @dataclass(frozen=True, kw_only=True)
    class Catapulted(lg.Theory):
        """The phases of Lewkowycz et al. 2020."""

        name: ClassVar[str] = "catapulted"

    assert keys(Catapulted)[1:] == ["lewkowycz2020large"]


@pytest.mark.parametrize("wrong", [3, "solve", np.eye(2), np.linalg.solve])
def test_what_is_no_result(wrong):
    with pytest.raises(InvalidInput, match="results: wanted"):
        lg.cite(wrong)
