"""The papers that docstrings cite, by the words with which they do so."""

from __future__ import annotations

import re
from typing import NamedTuple


class Paper(NamedTuple):
    """A paper, a book or lecture notes.

    Attributes
    ----------
    key
        The key of the BibTeX entry.
    short
        Authors and title in one line.
    cited_as
        Regular expression that matches a citation in a docstring.
    kind
        The type of the BibTeX entry.
    fields
        The fields of the entry.
    """

    key: str
    short: str
    cited_as: str
    kind: str
    fields: dict[str, str]

    def bibtex(self) -> str:
        """Return the BibTeX entry."""
        width = max(map(len, self.fields))
        rows = [f"  {name:<{width}} = {{{value}}}" for name, value in self.fields.items()]
        return f"@{self.kind}{{{self.key},\n" + ",\n".join(rows) + "\n}"


def _paper(
    key: str, cited_as: str, kind: str, author: str, title: str, year: int, **further: str
) -> Paper:
    """Return a paper; ``arxiv`` among the further fields is its number there."""
    families = [name.partition(",")[0] for name in author.split(" and ")]
    names = families[0] + (
        " et al." if len(families) > 2 else f" and {families[1]}" if len(families) == 2 else ""
    )
    fields = {"author": author, "title": f"{{{title}}}", "year": str(year)}
    if arxiv := further.pop("arxiv", None):
        fields |= {"eprint": arxiv, "archivePrefix": "arXiv"}
    plain = re.sub(r"[{}\\]", "", title)
    return Paper(key, f"{names} ({year}), {plain}", cited_as, kind, fields | further)


PAPERS = (
    _paper(
        "pehlevan2023lecture",
        r"Pehlevan and Bordelon",
        "misc",
        "Pehlevan, Cengiz and Bordelon, Blake",
        "Lecture Notes on Infinite-Width Limits of Neural Networks",
        2023,
    ),
    _paper(
        "bordelon2023depthwise",
        r"Bordelon et al\.|Bordelon, Noci",
        "misc",
        "Bordelon, Blake and Noci, Lorenzo and Li, Mufan and Hanin, Boris and Pehlevan, Cengiz",
        "Depthwise Hyperparameter Transfer in Residual Networks: Dynamics and Scaling Limit",
        2023,
        arxiv="2309.16620",
    ),
    _paper(
        "hanin2026primer",
        r"Hanin's (?:primer|lectures)|Hanin, lectures|Hanin, \*?Neural",
        "misc",
        "Hanin, Boris",
        "Neural Networks: a Primer for Mathematicians",
        2026,
    ),
    _paper(
        "bahri2022les",
        r"Bahri and Hanin",
        "misc",
        "Bahri, Yasaman and Hanin, Boris and Brossollet, Antonin and Erba, Vittorio and "
        "Keup, Christian and Pacelli, Rosalba and Simon, James B.",
        "Les Houches Lectures on Deep Learning at Large \\& Infinite Width",
        2022,
    ),
    _paper(
        "golikov2020towards",
        r"Golikov",
        "inproceedings",
        "Golikov, Eugene A.",
        "Towards a General Theory of Infinite-Width Limits of Neural Classifiers",
        2020,
        booktitle="International Conference on Machine Learning",
    ),
    _paper(
        "williams1997computing",
        r"Williams 1997",
        "inproceedings",
        "Williams, Christopher K. I.",
        "Computing with Infinite Networks",
        1997,
        booktitle="Advances in Neural Information Processing Systems",
    ),
    _paper(
        "cho2009kernel",
        r"Cho (?:&|and) Saul",
        "inproceedings",
        "Cho, Youngmin and Saul, Lawrence K.",
        "Kernel Methods for Deep Learning",
        2009,
        booktitle="Advances in Neural Information Processing Systems",
    ),
    _paper(
        "poole2016exponential",
        r"Poole et al\.",
        "inproceedings",
        "Poole, Ben and Lahiri, Subhaneil and Raghu, Maithra and Sohl-Dickstein, Jascha and "
        "Ganguli, Surya",
        "Exponential Expressivity in Deep Neural Networks through Transient Chaos",
        2016,
        booktitle="Advances in Neural Information Processing Systems",
    ),
    _paper(
        "schoenholz2017deep",
        r"Schoenholz et al\.",
        "inproceedings",
        "Schoenholz, Samuel S. and Gilmer, Justin and Ganguli, Surya and Sohl-Dickstein, Jascha",
        "Deep Information Propagation",
        2017,
        booktitle="International Conference on Learning Representations",
    ),
    _paper(
        "pennington2017resurrecting",
        r"Pennington, Schoenholz",
        "inproceedings",
        "Pennington, Jeffrey and Schoenholz, Samuel S. and Ganguli, Surya",
        "Resurrecting the Sigmoid in Deep Learning through Dynamical Isometry: Theory and Practice",
        2017,
        booktitle="Advances in Neural Information Processing Systems",
    ),
    _paper(
        "hron2020infinite",
        r"Hron, Bahri",
        "inproceedings",
        "Hron, Jiri and Bahri, Yasaman and Sohl-Dickstein, Jascha and Novak, Roman",
        "Infinite Attention: {NNGP} and {NTK} for Deep Attention Networks",
        2020,
        booktitle="International Conference on Machine Learning",
    ),
    _paper(
        "lewkowycz2020large",
        r"Lewkowycz",
        "misc",
        "Lewkowycz, Aitor and Bahri, Yasaman and Dyer, Ethan and Sohl-Dickstein, Jascha and "
        "Gur-Ari, Guy",
        "The Large Learning Rate Phase of Deep Learning: the Catapult Mechanism",
        2020,
        arxiv="2003.02218",
    ),
    _paper(
        "yang2021tensor",
        r"Yang and Hu",
        "inproceedings",
        "Yang, Greg and Hu, Edward J.",
        "Tensor Programs {IV}: Feature Learning in Infinite-Width Neural Networks",
        2021,
        booktitle="International Conference on Machine Learning",
    ),
    _paper(
        "zavatone2021exact",
        r"Zavatone-Veth",
        "inproceedings",
        "Zavatone-Veth, Jacob A. and Pehlevan, Cengiz",
        "Exact Marginal Prior Distributions of Finite {B}ayesian Neural Networks",
        2021,
        booktitle="Advances in Neural Information Processing Systems",
    ),
    _paper(
        "yang2022tensor",
        r"Yang et al\. 2022",
        "misc",
        "Yang, Greg and Hu, Edward J. and Babuschkin, Igor and Sidor, Szymon and Liu, Xiaodong and "
        "Farhi, David and Ryder, Nick and Pachocki, Jakub and Chen, Weizhu and Gao, Jianfeng",
        "Tensor Programs {V}: Tuning Large Neural Networks via Zero-Shot Hyperparameter Transfer",
        2022,
        arxiv="2203.03466",
    ),
    _paper(
        "roberts2022principles",
        r"Roberts, Yaida",
        "book",
        "Roberts, Daniel A. and Yaida, Sho and Hanin, Boris",
        "The Principles of Deep Learning Theory",
        2022,
        publisher="Cambridge University Press",
    ),
    _paper(
        "li2022neural",
        r"Li, Nica and Roy",
        "inproceedings",
        "Li, Mufan and Nica, Mihai and Roy, Daniel M.",
        "The Neural Covariance {SDE}: Shaped Infinite Depth-and-Width Networks at Initialization",
        2022,
        booktitle="Advances in Neural Information Processing Systems",
    ),
    _paper(
        "yang2023spectral",
        r"Yang, Simon",
        "misc",
        "Yang, Greg and Simon, James B. and Bernstein, Jeremy",
        "A Spectral Condition for Feature Learning",
        2023,
    ),
    _paper(
        "bordelon2024transformer",
        r"Bordelon, Chaudhry and Pehlevan",
        "inproceedings",
        "Bordelon, Blake and Chaudhry, Hamza Tahir and Pehlevan, Cengiz",
        "Infinite Limits of Multi-head Transformer Dynamics",
        2024,
        booktitle="Advances in Neural Information Processing Systems",
        arxiv="2405.15712",
    ),
    _paper(
        "dey2025dont",
        r"Dey et al\.",
        "misc",
        "Dey, Nolan and others",
        "Don't be Lazy: {CompleteP} Enables Compute-Efficient Deep Transformers",
        2025,
        arxiv="2505.01618",
    ),
)


def papers_in(text: str) -> tuple[Paper, ...]:
    """Return the papers that a docstring cites, the oldest first.

    Examples
    --------
    >>> [paper.key for paper in papers_in("Golikov, Theorem 1; Bahri and Hanin, eq. (32).")]
    ['golikov2020towards', 'bahri2022les']
    """
    words = " ".join(text.split())
    found = [paper for paper in PAPERS if re.search(paper.cited_as, words)]
    return tuple(sorted(found, key=lambda paper: (paper.fields["year"], paper.key)))
