"""Entries of a bibliography: those that the theories and the makers of a result name."""

import inspect
import re
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import ClassVar

import numpy as np
import pytest

import largen as lg
from largen._rooms import addresses
from largen.bibliography import references
from largen.errors import InvalidInput
from largen.runs import Theory

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
    assert "bahri2022les" in keys(lg.regression.KernelFlowRegressor)


def test_networks_are_not_cited_by_a_theory():
    nets = lg.train(run_in(lg.mean_field()), width=4, seeds=2, key=0)
    assert "golikov2020towards" not in keys(nets)


def test_the_deep_mean_field_is_cited_by_its_field_theory():
    assert "2205.09653" in lg.cite(lg.theories.DeepMeanField)
    assert "1806.07572" in lg.cite(lg.theories.KernelLimit)
    assert "2309.16620" in lg.cite(lg.theories.InfiniteDepth)
    assert "2405.15712" in lg.cite(lg.theories.AttentionMeanField)
    assert "1804.06561" in lg.cite(lg.theories.MeanField)


def test_a_result_is_cited_as_the_function_that_makes_it():
    points = lg.criticality.variance_fixed_points("tanh", weight_std=1.5)
    assert (
        keys(points)
        == keys(lg.criticality.variance_fixed_points)
        == keys(points, lg.criticality.variance_fixed_points)
    )
    assert len(keys(points)) > 2
    assert "yang2022tensor" in keys(lg.mup(gamma=2.0))


def test_entries_are_sorted_and_their_braces_are_balanced():
    years = [int(re.findall(r"year += \{(\d{4})\}", e)[0]) for e in references().values()]
    assert list(zip(years, references(), strict=True)) == sorted(
        zip(years, references(), strict=True)
    )
    for key, entry in references().items():
        assert entry.startswith("@")
        assert f"{{{key}," in entry
        assert entry.count("{") == entry.count("}")


def of_theories(kind=Theory):
    return [one for sub in kind.__subclasses__() for one in (sub, *of_theories(sub))]


def test_every_key_has_an_entry_and_every_theory_of_largen_names_one():
    named = [resolve_name(address) for address in addresses().values()]
    theories = [kind for kind in of_theories() if kind.__module__.startswith("largen.")]
    assert len(theories) == 10
    assert all(kind.papers for kind in theories)
    described = [one for one in named if inspect.isroutine(one) or inspect.isclass(one)]
    assert len(keys(*described, *theories)) > 20  # a key without an entry would be refused


def test_a_theory_of_the_users_own_names_keys_or_has_an_entry():
    entry = "@misc{me, title = {Mine}}"

    @dataclass(frozen=True, kw_only=True)
    class Catapulted(lg.theories.Theory):
        """The phases of networks with large steps."""

        name: ClassVar[str] = "catapulted"
        papers: ClassVar[tuple[str, ...]] = ("lewkowycz2020large", entry)

    assert keys(Catapulted)[1:] == ["lewkowycz2020large"]
    assert lg.cite(Catapulted).endswith(entry)
    Catapulted.papers = ("nobody",)
    with pytest.raises(InvalidInput, match="papers: 'nobody' is neither a key"):
        lg.cite(Catapulted)


@pytest.mark.parametrize("wrong", [3, "solve", np.eye(2), np.linalg.solve])
def test_what_is_no_result(wrong):
    with pytest.raises(InvalidInput, match="results: wanted"):
        lg.cite(wrong)
