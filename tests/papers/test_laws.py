"""Papers on learning curves and scaling laws: verdicts at reduced settings."""

import pytest

from papers import figure, find_images, produce


def claims(name, folder, images=()):
    data = {each: find_images(each, "digits") for each in images}
    done = produce(figure(name), data, folder, fast=True)
    assert all(path.stat().st_size for path in done.files)
    return done.claims


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "images"),
    [("2110.03922-modes", ["mnist"]), ("2402.01092-dynamics", []), ("2405.15074-phases", [])],
)
def test_what_papers_claim_is_not_refuted(name, images, tmp_path):
    found = claims(name, tmp_path, images)
    of_paper = [claim.agrees for claim in found if claim.whose == "paper"]
    assert False not in of_paper
    assert of_paper.count(True) > 0.5 * len(of_paper)
    assert not any(claim.agrees for claim in found if claim.whose == "alternative")


@pytest.mark.slow
def test_covariances_of_few_directions_do_not_predict_curves(tmp_path):
    """The error of a quadratic target is a hundred times that of the ansatz."""
    *_, linear, quadratic = claims("2510.14878-covariance", tmp_path)
    assert linear.agrees is False
    assert quadratic.agrees is False
    assert quadratic.low > 50 * float(quadratic.says.rsplit(":", 1)[1])
