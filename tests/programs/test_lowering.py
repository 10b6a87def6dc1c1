"""What layers say which operations they are, and that the shapes agree."""

import math

import numpy as np
import pytest
from tests.test_layer_contracts import EXAMPLES

import largen as lg
from largen.architectures import Layer, weight_sites
from largen.errors import InvalidInput, NoRule
from largen.programs import Affine, Data, Function, Repeat, Sum, program_of


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_every_layer_has_a_program(kind):
    example = EXAMPLES[kind]
    program = program_of(example.net, example.inputs)
    assert isinstance(program.operations[0], Data)
    for place, operation in enumerate(program.operations):
        assert all(read < place for read in operation.reads)
    for every, used in ((program.weights, "weights_used"), (program.seeds, "seeds_used")):
        indices = {i for operation in program.operations for i in getattr(operation, used)()}
        assert indices == {*range(len(every))}
    sites = weight_sites(example.net, example.inputs)
    matrices = [weight for weight in program.weights if not weight.gain]
    told = [(w.path, w.patch, w.in_branch, w.copies, w.width_ratio) for w in matrices]
    assert told == [(s.path, s.patch, s.in_branch, s.copies, s.width_ratio) for s in sites]


def test_networks_of_other_constants_have_equal_programs():
    one, two = (program_of(lg.mlp(3, "tanh", weight_std=std), 4) for std in (1.0, 2.0))
    assert one == two
    assert hash(one) == hash(two)
    assert one.weights[1].weight_std == 1
    assert two.weights[1].weight_std == 2
    assert one != program_of(lg.mlp(3, "relu"), 4)


def test_residual_blocks_are_sums_and_repetitions_stay_repetitions():
    program = program_of(lg.residual_mlp(math.inf, "tanh"), 4)
    copies = program.operations[2]
    assert isinstance(copies, Repeat)
    assert copies.times == math.inf
    kinds = [type(operation) for operation in copies.body.operations]
    assert kinds == [Data, Function, Affine, Sum]
    assert program.weights[copies.weights[0][0]].in_branch
    assert program.weights[copies.weights[0][0]].copies == math.inf


def test_cuts_and_parts_of_a_program():
    block = lg.Residual(lg.serial(lg.Activation("tanh"), lg.Dense()))
    program = program_of(lg.serial(lg.Dense(), block, lg.Dense()), 3)
    assert program.cuts == (0, 1, 4, 5)
    part = program.between(1, 4)
    assert [type(operation) for operation in part.operations] == [Data, Function, Affine, Sum]
    assert part.operations[3].reads == (0, 2)
    with pytest.raises(ValueError, match="depends"):
        program.between(2, 4)


def test_a_layer_without_operations_is_refused_by_name():
    class Mute(Layer):
        pass

    with pytest.raises(NoRule, match="Mute"):
        program_of(lg.serial(lg.Dense(), Mute(), lg.Dense()), 3)


def test_a_layer_whose_operations_have_another_shape_is_refused():
    class Shrunk(lg.Dense):
        def signal_behind(self, signal):
            return super().signal_behind(signal)

        def lower(self, program, value):
            return value

    with pytest.raises(InvalidInput, match="Shrunk"):
        program_of(lg.serial(lg.Dense(), Shrunk(width_ratio=np.float64(0.5)), lg.Dense()), 3)


def test_a_weight_inside_and_outside_of_copies_is_refused():
    class Both(lg.Dense):
        def lower(self, program, value):
            outside = super().lower(program, value)
            return program.repeat(outside, 3, super().lower)

    with pytest.raises(InvalidInput, match="inside of a repetition"):
        program_of(lg.serial(lg.Dense(), Both()), 3)
