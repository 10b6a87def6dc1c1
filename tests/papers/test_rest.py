"""Papers on networks at rest: verdicts at reduced settings."""

import numpy as np
import pytest
from scipy.optimize import minimize

from papers import figure, produce
from papers.rest.fischer import likeliest_kernel


def claims(name, folder):
    done = produce(figure(name), {}, folder, fast=True)
    assert all(path.stat().st_size for path in done.files)
    return done.claims


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2209.04882-scale", "2406.16689-coding", "2502.07998-adapted"])
def test_what_papers_claim_is_not_refuted(name, tmp_path):
    found = claims(name, tmp_path)
    of_paper = [claim.agrees for claim in found if claim.whose == "paper"]
    assert False not in of_paper
    assert True in of_paper
    assert {claim.agrees for claim in found if claim.whose == "alternative"} == {False}


@pytest.mark.slow
def test_the_likeliest_kernel_is_further_away_than_that_of_infinite_width(tmp_path):
    closer = [claim for claim in claims("2405.10761-likeliest", tmp_path) if "better" in claim.says]
    assert [claim.agrees for claim in closer] == [False, False]


def test_the_likeliest_kernel_has_the_lowest_action():
    """Along both eigenvectors of C, one of them y, with four neurons."""
    values, y, noise, width = np.array([2.0, 0.5]), np.array([1.5, 0.0]), 0.3, 4

    def action(logs):
        kernel = np.exp(logs)
        prior = np.sum(kernel / values - np.log(kernel / values) - 1)
        likelihood = np.sum(y**2 / (kernel + noise) + np.log(kernel + noise))
        return (width * prior + likelihood) / 2

    want = np.exp(minimize(action, np.log(values), tol=1e-12).x)
    found = likeliest_kernel(np.diag(values), y, noise, width)
    np.testing.assert_allclose(np.diag(found), want, rtol=1e-5)
    np.testing.assert_allclose(found[0, 1], 0.0, atol=1e-12)
