"""The table of rules of functions that multiply neurons by parameters."""

from largen.reading.torch.population import recurrent
from largen.reading.torch.population.maps import RULES

__all__ = ["RULES", "recurrent"]
