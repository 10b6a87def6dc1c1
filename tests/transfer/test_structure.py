"""Laying a shallow and a deep model side by side."""

import numpy as np
import pytest

from largen.errors import InvalidInput
from largen.transfer.initial import Moments, initial_distributions, measured
from largen.transfer.structure import Part, correspondence

LINEAR, NORM = Part("Linear", {"weight": (8, 8)}), Part("Norm", {"weight": (8,)})


def sequence(kind, *members):
    return Part(kind, {}, {str(i): member for i, member in enumerate(members)})


def test_indices_behind_repeated_blocks_shift():
    first, last = Part("Linear", {"weight": (8, 3)}), Part("Linear", {"weight": (1, 8)})
    shallow = sequence("Sequential", first, LINEAR, LINEAR, last)
    deep = sequence("Sequential", first, *[LINEAR] * 5, last)
    found = correspondence(shallow, deep)
    assert [found.parts[str(i)] for i in range(7)] == ["0", "1", "2", "2", "2", "2", "3"]
    assert found.blocks == ("1", "2", "3", "4", "5")
    assert found.depth_ratio(shallow, deep) == 2.5
    # One block of two is half of the way, and one of five is a fifth of it.
    assert found.early_blocks() == {"1"}
    assert correspondence(deep, deep).early_blocks() == set()


def test_blocks_of_two_kinds_repeat_together():
    def net(depth):
        return Part("Net", {}, {"h": sequence("ModuleList", *[LINEAR, NORM] * depth)})

    found = correspondence(net(2), net(4))
    assert found.repetitions[0].unit == 2
    assert found.parts["h.6"] == "h.2"
    assert found.parts["h.7"] == "h.3"
    assert found.depth_ratio(net(2), net(4)) == 2


def test_names_that_end_in_numbers_are_a_sequence():
    def net(depth):
        return Part("Net", {}, {"stem": NORM} | {f"h_{i}": LINEAR for i in range(depth)})

    found = correspondence(net(9), net(12))
    assert found.blocks == tuple(f"h_{i}" for i in range(12))
    assert found.parts["h_10"] == "h_8"


def layers(*shapes, reverse=False):
    """Return the weights of an nn.LSTM, two for each layer and direction."""
    ends = ("", "_reverse") if reverse else ("",)
    return {
        f"{kind}_l{i}{end}": shape
        for i, own in enumerate(shapes)
        for end in ends
        for kind, shape in (("ih", own), ("hh", (8, 2)))
    }


def test_numbered_weights_are_a_sequence():
    def net(depth):
        return Part("Net", {"scale": ()}, {"w": Part("ParameterList", dict(hidden(depth)))})

    def hidden(depth):
        return ((str(i), (8, 8)) for i in range(depth))

    found = correspondence(net(2), net(12))
    assert [found.parts[f"w.{i}"] for i in (0, 1, 2, 11)] == ["w.0", "w.1", "w.1", "w.1"]
    assert found.depth_ratio(net(2), net(12)) == 6
    assert [r.path for r in found.repetitions] == ["w.…"]

    two, four = (Part("LSTM", layers((8, 3), *[(8, 4)] * n, reverse=True)) for n in (1, 3))
    found = correspondence(Part("Net", {}, {"rnn": two}), Part("Net", {}, {"rnn": four}))
    assert found.parts["rnn.ih_l3_reverse"] == "rnn.ih_l1_reverse"
    assert found.parts["rnn.hh_l0"] == "rnn.hh_l0"
    assert found.depth_ratio(two, four) == 2
    with pytest.raises(InvalidInput, match="take a base that has every kind of block"):
        correspondence(Part("LSTM", layers((8, 3))), Part("LSTM", layers((8, 3), (8, 4))))
    with pytest.raises(InvalidInput, match=r"\['b'\] exist at one depth only"):
        correspondence(Part("", {"w0": (2,)}), Part("", {"w0": (2,), "w1": (2,), "b": (2,)}))


def test_stages_grow_by_themselves():
    def net(*depths):
        return Part("Net", {}, {"stages": sequence("List", *(sequence("List", *[LINEAR] * d)
                                                             for d in depths))})  # fmt: skip

    found = correspondence(net(2, 3), net(2, 9))
    assert found.blocks == tuple(f"stages.1.{i}" for i in range(9))


def test_stages_in_one_sequence_grow_together():
    def net(depth):
        wide, other = Part("Linear", {"weight": (9, 9)}), Part("Linear", {"weight": (9, 8)})
        return sequence("List", *[LINEAR] * depth, other, *[wide] * depth, NORM)

    found = correspondence(net(2), net(4))
    assert [found.parts[str(i)] for i in range(10)] == list("0111234445")
    assert found.blocks == tuple("01235678")
    assert found.depth_ratio(net(2), net(4)) == 2
    assert found.early_blocks() == {"0", "3"}
    longer = sequence("List", *[LINEAR] * 4, NORM, LINEAR)
    with pytest.raises(InvalidInput, match="one stretch of equal members is longer"):
        correspondence(sequence("List", LINEAR, NORM, *[LINEAR] * 2), longer)


def test_blocks_stacked_in_one_array():
    shallow, deep = (Part("dict", {"w": (depth, 8, 8), "b": (8,)}) for depth in (2, 6))
    found = correspondence(shallow, deep)
    assert found.stacked == {"w": 0}
    assert found.depth_ratio(shallow, deep) == 3


def test_what_is_no_repetition_is_refused():
    with pytest.raises(InvalidInput, match="no block of it is simply repeated"):
        correspondence(sequence("S", LINEAR, NORM), sequence("S", NORM, LINEAR, NORM, LINEAR))
    with pytest.raises(InvalidInput, match="3 members at one depth and 2 at another"):
        correspondence(sequence("List", *[LINEAR] * 3), sequence("List", *[LINEAR] * 2))
    with pytest.raises(InvalidInput, match="exist at one depth only"):
        correspondence(Part("Net", {"a": (3,)}), Part("Net", {"b": (3,)}))


def test_measured_powers_of_initialisation():
    def moments(std, count=40_000):
        return Moments(count, 0.0, count * std**2)

    distributions = initial_distributions(
        {"a": moments(0.5), "b": moments(0.02), "c": moments(0.5)},
        {"a": moments(0.5 * 2**-0.5 * 1.01), "b": moments(0.02), "c": moments(0.5 * 2**-0.11)},
        {"a": moments(0.5), "b": moments(0.02 * 2**-0.5), "c": moments(0.5 * 2**-0.25)},
        {"a": 2.0, "b": 2.0, "c": 2.0},
        2.0,
    )
    assert (distributions["a"].width, distributions["a"].depth) == (-0.5, 0)
    assert (distributions["b"].width, distributions["b"].depth) == (0, -0.5)
    assert distributions["c"].width == pytest.approx(-0.11)  # no simple power: as measured
    assert distributions["c"].depth == -0.25


def test_few_entries_tell_no_power():
    few, fewer = Moments(8, 0.0, 8.0), Moments(8, 0.0, 8.0 / 4)
    distribution = initial_distributions({"a": few}, {"a": fewer}, {"a": fewer}, {"a": 2.0}, 2.0)[
        "a"
    ]
    assert (distribution.width, distribution.depth) == (0, 0)


NAMES = {n: n for n in ("large", "small", "one", "constant", "one constant")}


def recorded(std):
    """Draws of a large weight, a small one, one entry, and a constant; and which were requested."""
    requests = []

    def draw(number, wanted):
        requests.append(wanted)
        random = np.random.default_rng(number)
        made = {
            "large": random.normal(size=900),
            "small": std * random.normal(size=50),
            "one": random.normal(size=1),
            "constant": np.full(3, 7.0),
            "one constant": np.full(1, 0.3),
        }
        return [(n, v) for n, v in made.items() if wanted is None or n in wanted]

    return draw, requests


def test_only_what_is_small_and_random_is_drawn_again():
    draw, requests = recorded(0.5)
    found = measured(draw, NAMES, 400)
    counts = {"large": 900, "small": 400, "one": 400, "constant": 3, "one constant": 2}
    assert {name: m.count for name, m in found.items()} == counts
    assert found["small"].std == pytest.approx(0.5, rel=0.1)
    assert found["one"].std == pytest.approx(1.0, rel=0.1)
    assert found["constant"].std == found["one constant"].std == 0
    assert [set(wanted) for wanted in requests[1:]] == (
        [{"small", "one", "one constant"}] + [{"small", "one"}] * 6 + [{"one"}] * 392
    )


def test_a_builder_seen_before_is_known_by_its_first_draw():
    draw, _ = recorded(0.5)
    before = measured(draw, NAMES, 400)
    for std, entries, known in ((0.5, 400, True), (0.6, 400, False), (0.5, 300, False)):
        draw, requests = recorded(std)
        found = measured(draw, NAMES, entries)
        assert (len(requests) == 1) == known
        assert (found == before) == known
