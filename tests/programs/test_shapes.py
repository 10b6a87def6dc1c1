"""Shapes of programs: sequences, blocks, and what is in the way of them."""

import math
from dataclasses import dataclass, replace

import pytest

import largen as lg
from largen.architectures import Layer
from largen.errors import NoRule, NoTheory
from largen.programs import (
    Affine,
    Product,
    Sum,
    blocks,
    check_independent,
    dense_chain,
    no_rule,
    program_of,
    written_out,
)

DENSE, TANH = lg.Dense(), lg.Activation("tanh")
BLOCK = lg.Residual(lg.serial(TANH, DENSE))


@dataclass(frozen=True, repr=False)
class Twofold(Layer):
    """φ(x) times the sum of x and a map of φ(x): both read φ(x)."""

    def lower(self, program, value):
        first = program.part(0, TANH, value)
        second = program.part(1, DENSE, first)
        return program.add(Product((first, program.add(Sum((value, second), (1.0, 1.0))))))


def test_blocks_are_operations_and_residual_blocks():
    steps = blocks(program_of(lg.serial(DENSE, BLOCK, TANH, DENSE), 3), "here")
    assert [type(step.operation).__name__ for step in steps] == [
        "Affine",
        "Sum",
        "Function",
        "Affine",
    ]
    assert [step.plain for step in steps] == [True, False, True, True]
    skip, branch, _ = steps[1].residual
    assert len(skip.operations) == 1
    assert [type(step.operation).__name__ for step in dense_chain(branch, "here")] == [
        "Function",
        "Affine",
    ]
    assert [step.weight.name for step in (steps[0], steps[3])] == ["0", "3"]


def test_what_is_in_the_way_is_named_with_its_place():
    with pytest.raises(NoRule, match=r"^here: no rule for a sum .*Residual.* at 1"):
        dense_chain(program_of(lg.serial(DENSE, BLOCK, DENSE), 3), "here")
    with pytest.raises(NoTheory, match=r"a product of values \(Twofold\(\) at 1\) reads values"):
        blocks(program_of(lg.serial(DENSE, Twofold(), DENSE), 3), "here")
    endless = program_of(lg.residual_mlp(math.inf, "tanh"), 3)
    with pytest.raises(NoTheory, match=r"repeat\(.*inf\) at 1: wanted a finite number"):
        written_out(endless)
    pool = program_of(lg.serial(DENSE, lg.layers.MaxPool((2,))), (4, 3))
    said = str(no_rule("here", pool.operations[2], pool.sources[2], [Affine, Sum]))
    assert said.startswith("here: no rule for a maximum over positions (MaxPool((2,)) at 1). It ")
    assert "Affine, Sum" in said


def test_a_weight_at_two_places_is_seen():
    program = written_out(program_of(lg.serial(DENSE, lg.repeat(lg.serial(TANH, DENSE), 3)), 3))
    check_independent(program, "here")  # copies have weights of their own
    shared = [
        replace(operation, weight=0) if isinstance(operation, Affine) else operation
        for operation in program.operations
    ]
    with pytest.raises(NoTheory, match=r"a weight at two places \(Dense\(\) at 0, Dense\(\) at 1"):
        check_independent(replace(program, operations=tuple(shared)), "here")
