"""The choice among the theories of infinite networks."""

from largen.theories.select import THEORIES, by_name, choose, solve

__all__ = ["THEORIES", "by_name", "choose", "solve"]
