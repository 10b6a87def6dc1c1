"""A plan that is read from text is the one that was written, or an error by name."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from largen.errors import DamagedFile, InvalidInput
from largen.files import json_with_checksum
from largen.transfer import Hints, Plan, plan_from_json
from largen.transfer.jax import JaxPlan, scale

# What is put in the place of each value.
WRONG = (
    None, True, -1, 0, 2.5, 1e300, 1e-300, float("nan"), float("inf"), 10**400, "", "x", "0.5",
    "\ud800", [], ["x"], [-1], [[1]], {}, {"x": 1}, {"lr": "x"},
)  # fmt: skip


def init(key, width, depth):
    blocks = [{"up": jnp.ones((width, width)), "gain": jnp.ones(width)} for _ in range(depth)]
    return {"embed": jnp.ones((5, width)), "blocks": blocks}


@pytest.fixture(scope="module")
def plan():
    sizes = {"width": 4, "depth": 1}, {"width": np.int64(8), "depth": 2}
    return scale(
        init, *sizes, hints=Hints(branches=["blocks.*.up"]), layout="in_out", tied=["embed"]
    )


def test_text_holds_the_whole_plan(plan):
    text = plan.to_json()
    assert plan_from_json(text) == plan_from_json(text.encode())
    again = JaxPlan.from_json(text, init)
    assert again == plan
    assert str(again) == str(plan)
    assert plan.multipliers


def test_a_plan_has_a_data_set_and_a_picture(plan, tmp_path):
    data = plan.to_xarray()
    for name in ("init_std", "lr", "weight_decay", "eps"):
        for weight in plan.weights:
            assert data[name].sel(weight=weight.name) == getattr(weight, name)
    figure = plan.plot(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 2000
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert all(row in str(plan) for row in rows)
    assert len(rows) == len(set(data["row"].values)) == 3


def test_damaged_text_is_called_damaged(plan):
    whole = plan.to_json().encode()
    draw = np.random.default_rng(0)
    versions = [whole[:n] for n in range(0, len(whole), len(whole) // 100)]
    for bit, place in enumerate(draw.integers(len(whole), size=300)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << bit % 8
        versions.append(bytes(flipped))
    for start in draw.integers(len(whole), size=50):
        versions.append(whole[:start] + draw.bytes(9) + whole[start + 9 :])
    equal = 0
    for version in versions:
        try:
            equal += plan_from_json(version) == Plan(**vars_of(plan))
        except DamagedFile:
            continue
    assert len(versions) > 400
    assert equal < 10  # a flip may turn e into E, or a blank into a tab


def vars_of(plan):
    return {name: getattr(plan, name) for name in Plan.__dataclass_fields__}


def places(content, path=()):
    """Yield the path of every value."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in pairs:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


def changed(text, path, value):
    """Return the text with another value, or without any if it is ..., and a right checksum."""
    content = json.loads(text)
    del content["checksum"]
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json_with_checksum(content)


@pytest.mark.slow
def test_wrong_values_with_a_right_checksum(plan):
    text = plan.to_json()
    content = json.loads(text)
    content["weights"] = content["weights"][:2]
    refused = taken = 0
    for path in places({k: v for k, v in content.items() if k != "checksum"}):
        for value in (..., *WRONG):
            version = changed(text, path, value)
            try:
                found = plan_from_json(version)
            except InvalidInput:
                refused += 1
                continue
            assert str(found)
            assert plan_from_json(found.to_json()) == found
            taken += 1
    assert refused > 1000
    assert taken < 0.2 * refused  # another name, a note, a shape, a factor are as good


def test_what_no_plan_has_is_named(plan):
    text = plan.to_json()
    for path, value, message in (
        (("weights", 0, "lr"), float("nan"), r"weights\[0\]: lr: wanted a finite number"),
        (("weights", 0, "lr"), -1.0, "lr: wanted a finite number > 0"),
        (("weights", 1, "init"), float("inf"), "init: wanted a finite number"),
        (("weights", 1, "role"), "hiden", "role: 'hiden' is not known. Did you mean 'hidden'"),
        (("optimizer",), "adafactor", "no rule for adafactor"),
        (("notes",), "text", "notes: wanted a list"),
        (("version",), 1, "of version 2"),
        (("lr",), 1, "the field 'lr' is not known"),
        (("weights", 0, "lr"), ..., "the field 'lr' is missing"),
    ):
        with pytest.raises(InvalidInput, match=message):
            plan_from_json(changed(text, path, value))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "nothing", "[" * 10**5, '{"version": 1}', b"\xff"]
)
def test_text_without_a_checksum_is_damaged(text):
    with pytest.raises(DamagedFile, match="the plan is damaged"):
        plan_from_json(text)
