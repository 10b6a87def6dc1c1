"""Weight roles: classes of tensors, by which of their sides grow with the width.

=========  ==========  ==========  ==========================================================
family     fan-in      fan-out     roles
=========  ==========  ==========  ==========================================================
input      fixed       grows       input, embedding, positional, depthwise
vector     –           grows       bias, norm
hidden     grows       grows       hidden, attention, grouped, recurrent
output     grows       fixed       output, router
shared     grows       fixed       shared
finite     fixed       fixed       scalar
=========  ==========  ==========  ==========================================================

A row of an embedding is looked up, not summed over, so that its fan-in does not enter. A
positional table, a class token and a depthwise filter are added to, or multiply, one channel at a
time: they have one growing side and the rules of an input weight. "norm" stands for every gain
that multiplies channels, whether behind a normalisation or not. A grouped convolution whose
number of groups is fixed has both sides growing. A router maps features to a fixed number of
logits, as the read-out does.

A matrix inside a model that maps features to a fixed number of features (keys and values of a
fixed number of heads under grouped queries, a state-space layer's B and C) is called "shared". It
is initialised as a hidden matrix, since its outputs are of order one.
"""

from __future__ import annotations

from largen.errors import one_of

FAMILIES = {
    "input": "input",
    "embedding": "input",
    "positional": "input",
    "depthwise": "input",
    "bias": "vector",
    "norm": "vector",
    "hidden": "hidden",
    "attention": "hidden",
    "grouped": "hidden",
    "recurrent": "hidden",
    "output": "output",
    "router": "output",
    "shared": "shared",
    "scalar": "finite",
}
ROLES = tuple(FAMILIES)


def family(role: str) -> str:
    """Return the family of a role."""
    return FAMILIES[one_of("role", role, ROLES)]


def role_of_sides(fan_in_grows: bool, fan_out_grows: bool) -> str:
    """Return the plain role of a matrix from its growing sides."""
    if fan_in_grows:
        return "hidden" if fan_out_grows else "output"
    return "input" if fan_out_grows else "scalar"
