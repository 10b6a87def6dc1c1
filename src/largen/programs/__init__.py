"""Networks as programs: graphs of operations that all theories read."""

from largen.programs.builder import Builder, program_of
from largen.programs.elementwise import join_elementwise
from largen.programs.operations import (
    BRANCH,
    Affine,
    Attend,
    Concatenate,
    Data,
    Flatten,
    Function,
    Gain,
    Mask,
    Maximum,
    MoveChannels,
    Normalise,
    Operation,
    Pool,
    Product,
    Repeat,
    Scale,
    Sum,
)
from largen.programs.program import Path, Program, Source, Weight, name_of
from largen.programs.refusals import no_rule
from largen.programs.shapes import (
    ResidualBlock,
    Step,
    blocks,
    check_independent,
    dense_chain,
    written_out,
)
from largen.programs.signals import Signal, signal_of
from largen.programs.windows import Slide, Window, slides

__all__ = [
    "BRANCH",
    "Affine",
    "Attend",
    "Builder",
    "Concatenate",
    "Data",
    "Flatten",
    "Function",
    "Gain",
    "Mask",
    "Maximum",
    "MoveChannels",
    "Normalise",
    "Operation",
    "Path",
    "Pool",
    "Product",
    "Program",
    "Repeat",
    "ResidualBlock",
    "Scale",
    "Signal",
    "Slide",
    "Source",
    "Step",
    "Sum",
    "Weight",
    "Window",
    "blocks",
    "check_independent",
    "dense_chain",
    "join_elementwise",
    "name_of",
    "no_rule",
    "program_of",
    "signal_of",
    "slides",
    "written_out",
]
