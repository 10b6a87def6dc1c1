"""Usual names of the modules and weights that produce the queries of attention."""

from __future__ import annotations

QUERIES = frozenset({"q_proj", "q", "query", "to_q", "wq", "w_q", "q_lin", "query_proj"})
FUSED = frozenset({"qkv", "c_attn", "in_proj", "wqkv", "to_qkv", "qkv_proj", "query_key_value"})


def is_query_name(path: str) -> bool:
    """Whether the last component of a path is a usual name for queries."""
    return path.rpartition(".")[2].lower() in QUERIES | FUSED
