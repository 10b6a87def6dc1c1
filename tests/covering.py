"""Cases that have every value of several parameters, and those pairs of them that a rule asks for.

Products of parameters multiply: where what is tested depends on the kind of a parameter, the others
of the kind need be there once.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Case = TypeVar("Case")


def covering(cases: Iterable[Case], *features: Callable[[Case], Hashable]) -> list[Case]:
    """Return few of the cases that have between them every value of every feature.

    >>> from itertools import product
    >>> from operator import itemgetter
    >>> covering(product("ab", range(4)), itemgetter(0), itemgetter(1))
    [('a', 0), ('b', 1), ('a', 2), ('a', 3)]
    """
    left = list(cases)
    wanted = {(i, feature(case)) for case in left for i, feature in enumerate(features)}
    chosen = []
    while wanted:
        found = [{(i, feature(case)) for i, feature in enumerate(features)} for case in left]
        news = [len(values & wanted) for values in found]
        best = news.index(max(news))
        wanted -= found[best]
        chosen.append(left.pop(best))
    return chosen
