"""Models of the user's own as networks: what infinite width says of a model as it is."""

from largen.reading.check import Check
from largen.reading.depth import Depth
from largen.reading.in_jax import InJax, as_jax
from largen.reading.model import Model
from largen.reading.modules import read
from largen.reading.population import Population

__all__ = ["Check", "Depth", "InJax", "Model", "Population", "as_jax", "read"]
