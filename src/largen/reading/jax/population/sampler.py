"""Populations of functions in JAX, which are traced from shapes alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.reading.engine.constants import Constants
from largen.reading.engine.sampler import Kernels, Outputs
from largen.reading.engine.sampler import Sampler as Base
from largen.reading.jax.elementwise import FUNCTIONS
from largen.reading.jax.population.rules import RULES
from largen.reading.jax.population.run import Population
from largen.reading.jax.tracing import computed


class Sampler(Base):
    """Populations of a family of functions."""

    elementwise = frozenset(FUNCTIONS)

    def __init__(self, family: Any, widths: tuple[int, int]):
        super().__init__(family, widths)
        self._functions = family
        self._programs: dict[Any, tuple[Any, Any, Any]] = {}

    def _population(
        self, constants: Constants, x: Any, seed: int, rates: Any
    ) -> tuple[Population, Kernels]:
        """Return a population behind a forward pass, and the kernels of its outputs."""
        with computed():
            x = np.asarray(x, self._functions.x.dtype)
            place = constants.neurons, x.shape
            if place not in self._programs:
                closed, whole = self._functions.program(constants.neurons, x)
                self._programs[place] = closed, list(whole), self._functions.shapes(place[0])
            closed, names, shapes = self._programs[place]
            run = Population(self._functions, shapes, constants, RULES, seed, rates)
            run.recorded(closed, names, x)
            return run, Outputs(run).kernels()
