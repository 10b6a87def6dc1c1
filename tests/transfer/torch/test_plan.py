"""Plans for PyTorch models: the table, what is built, and that training does not notice folding."""

import copy
from functools import partial
from itertools import product

import pytest
import torch
from tests.covering import covering
from tests.transfer.torch_models import (
    Captioner,
    ResidualMLP,
    SmallNet,
    images_and_tokens,
)
from torch import nn

from largen.errors import DamagedFile, InvalidInput
from largen.transfer import Hints
from largen.transfer.schemes import SCHEMES
from largen.transfer.torch import TorchPlan, scale
from largen.transfer.torch.optimizers import OPTIMIZERS
from largen.transfer.updates import UPDATES

MAKERS = OPTIMIZERS | {"momentum": partial(torch.optim.SGD, momentum=0.9, nesterov=True)}
BASE, TARGET = {"width": 16, "depth": 2}, {"width": 64, "depth": 8}


def train(model, groups, optimizer, steps=5, loss=None):
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(16, 5, generator=generator), torch.randn(16, 3, generator=generator)
    dtype = next(model.parameters()).dtype
    x, y, moved = x.to(dtype), y.to(dtype), MAKERS[optimizer](groups)
    losses = []
    for _ in range(steps):
        value = (model(x) - y).square().mean() if loss is None else loss(model)
        moved.zero_grad()
        value.backward()
        moved.step()
        losses.append(value.item())
    return losses


def captions(model):
    images, tokens = images_and_tokens()
    return nn.functional.cross_entropy(
        model(images, tokens).flatten(0, 1), torch.arange(28).remainder(11)
    )


@pytest.fixture(scope="module")
def captioner():
    return scale(Captioner, BASE, {"width": 64, "depth": 8})


@pytest.mark.slow
def test_the_table_of_a_users_own_model(captioner):
    n = l = 4.0
    roles = {w.name: w.role for w in captioner.weights}
    assert roles["wpe"] == "positional"
    assert roles["wte.weight"] == "embedding"
    assert roles["stem.0.weight"] == "input"
    assert roles["stem.2.weight"] == "depthwise"
    assert roles["stem.3.weight"] == "grouped"
    assert roles["log_temperature"] == "scalar"
    assert roles["norm.weight"] == "norm"
    assert "head.weight" not in roles  # tied: the embedding's row stands for both
    inside = {w.name for w in captioner.weights if w.in_branch}
    assert inside == {w.name for w in captioner.weights if w.name.startswith("blocks.")}

    hidden = captioner["blocks.5.mlp.0.weight"]
    assert (hidden.lr, hidden.eps) == (1 / n / l**0.5, 1 / n / l**0.5)
    assert hidden.weight_decay * hidden.lr == 1
    # The branch's factor is folded into its last layer; GPT-2's own 1/√(2L) is taken into account.
    last = captioner["blocks.5.mlp.2.weight"]
    assert last.folded == ("branch × l⁻¹ᐟ²",)
    assert (last.init, last.init_std) == (n**-0.5, n**-0.5 * l**-0.5)
    assert last.lr == 1 / n / l
    # Logits: q·k/√d becomes √(d₀)·q·k/d, by the queries.
    queries = captioner["blocks.0.attn.q.weight"]
    assert queries.folded == ("attention × n⁻¹ᐟ²",)
    assert captioner["blocks.0.attn.k.weight"].lr == 2 * queries.lr
    # The tied read-out divides its input by n.
    (read_out,) = captioner.multipliers
    assert (read_out.module, read_out.where, read_out.factor) == ("head", "input", 1 / n)
    assert "blocks.*.attn.proj.weight (8)" in str(captioner)


def test_initial_standard_deviations_are_the_rules(captioner):
    small, large = captioner.make_model(**BASE), captioner.build(seed=0)
    base = {name: p.std().item() for name, p in small.named_parameters() if p.numel() > 150}
    checked = 0
    for name, p in large.named_parameters():
        before = base.get(name.replace("blocks.7", "blocks.1"), 0.0)
        if before:
            wanted = captioner[name].init_std
            assert p.std().item() / before == pytest.approx(wanted, rel=0.2), name
            checked += 1
    assert checked > 8


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_changes_at_the_base(scheme):
    plan = scale(Captioner, BASE, BASE, scheme=scheme)
    assert {(w.init, w.init_std, w.lr, w.weight_decay, w.eps) for w in plan.weights} == {(1.0,) * 5}
    assert plan.multipliers == ()
    torch.manual_seed(0)
    expected = Captioner(**BASE).state_dict()
    built = plan.build(seed=0).state_dict()
    assert all(torch.equal(built[name], value) for name, value in expected.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "optimizer"),
    covering(
        product(["ntk", "complete_p"], MAKERS),
        lambda case: (case[0], UPDATES[case[1]].kind, UPDATES[case[1]].decay),
        lambda case: case[1],
    ),
)
def test_folded_multipliers_train_as_forward_ones_do(scheme, optimizer):
    # The abc-symmetry, on a real model: rates, ε and decay of every kind move along with it.
    losses = []
    for multipliers in ("weights", "forward"):
        plan = scale(
            SmallNet, BASE, TARGET, scheme=scheme, optimizer=optimizer, multipliers=multipliers
        )
        assert bool(plan.multipliers) == (multipliers == "forward")
        model = plan.build(seed=0).double()
        groups = plan.param_groups(model, lr=0.02, weight_decay=0.1)
        losses.append(train(model, groups, optimizer))
    assert abs(losses[0][-1] / losses[0][0] - 1) > 1e-3
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


@pytest.mark.slow
def test_clipping_does_not_notice_folding():
    losses, norms = [], []
    for multipliers in ("weights", "forward"):
        plan = scale(SmallNet, BASE, TARGET, optimizer="sgd", multipliers=multipliers)
        model = plan.build(seed=0).double()
        optimizer = torch.optim.SGD(plan.param_groups(model, lr=0.1))
        x = torch.linspace(-1, 1, 40, dtype=torch.float64).reshape(8, 5)
        for _ in range(3):
            loss = (model(x) - 1.0).square().mean()
            optimizer.zero_grad()
            loss.backward()
            norms.append(float(plan.clip_grad_norm_(model, 0.1)))
            optimizer.step()
            losses.append(loss.item())
    assert norms[0] > 0.1
    assert losses[:3] == pytest.approx(losses[3:], rel=1e-9)
    assert norms[:3] == pytest.approx(norms[3:], rel=1e-9)
    # In the forward pass, it is PyTorch's own clipping.
    assert float(nn.utils.clip_grad_norm_(model.parameters(), 1e9)) == pytest.approx(0.1, rel=1e-5)


@pytest.mark.slow
def test_attention_is_folded_exactly():
    make = partial(Captioner, tied=False)
    losses = []
    for multipliers in ("weights", "forward"):
        plan = scale(make, BASE, TARGET, multipliers=multipliers)
        model = plan.build(seed=0).double()
        images, tokens = images_and_tokens()
        images = images.double()

        def loss(model, images=images, tokens=tokens):
            return model(images, tokens)[:, -1].square().mean()

        losses.append(train(model, plan.param_groups(model, lr=1e-2), "adamw", loss=loss))
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_the_standard_scheme_leaves_everything_alone():
    plan = scale(Captioner, BASE, TARGET, scheme="standard")
    torch.manual_seed(0)
    expected = Captioner(**TARGET).state_dict()
    built = plan.build(seed=0)
    assert all(torch.equal(value, expected[name]) for name, value in built.state_dict().items())
    (group,) = plan.param_groups(built, lr=0.1)
    assert group["lr"] == 0.1


def test_the_generator_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    plan = scale(SmallNet, BASE, TARGET)
    plan.build(seed=1)
    assert torch.equal(torch.rand(3), expected)


def test_json_holds_the_whole_plan(captioner):
    again = TorchPlan.from_json(captioner.to_json(), make_model=Captioner)
    assert again == captioner
    assert str(again) == str(captioner)
    a, b = captioner.build(seed=0), again.build(seed=0)
    assert captions(a) == captions(b)
    with pytest.raises(InvalidInput, match="read from JSON has none"):
        TorchPlan.from_json(captioner.to_json()).build()
    with pytest.raises(DamagedFile):
        TorchPlan.from_json("[]")


def test_sums_in_the_forward_pass_of_the_whole_model():
    plan = scale(ResidualMLP, BASE, TARGET, optimizer="sgd")
    assert all(plan[f"blocks.{i}.weight"].folded == ("branch × l⁻¹ᐟ²",) for i in range(8))
    assert plan["blocks.0.weight"].lr == 0.25  # l^(2α−1) = 1, times l⁻¹ for the folded factor


def test_muon_moves_matrices_only():
    plan = scale(SmallNet, BASE, TARGET, optimizer="muon", scheme="mup")
    model = plan.build(seed=0)
    with pytest.raises(InvalidInput, match="two optimizers"):
        plan.param_groups(model, lr=0.02)
    muon = torch.optim.Muon(plan.param_groups(model, lr=0.02, moved_by="muon"))
    adamw = torch.optim.AdamW(plan.param_groups(model, lr=1e-3, moved_by="adamw"))
    assert {p.ndim for g in muon.param_groups for p in g["params"]} == {2}
    counts = [sum(len(g["params"]) for g in o.param_groups) for o in (muon, adamw)]
    assert counts == [16, len(list(model.parameters())) - 16]
    model(torch.zeros(2, 5)).sum().backward()
    muon.step()
    adamw.step()


def test_independent_decay_does_not_depend_on_the_rate():
    plan = scale(SmallNet, BASE, TARGET, decay="independent")
    model = plan.build(seed=0)
    for lr in (1e-3, 1e-2):
        groups = plan.param_groups(model, lr=lr, weight_decay=1e-4)
        assert all(g["lr"] * g["weight_decay"] == pytest.approx(1e-4) for g in groups)


def plain_stack(width, depth):
    layers = [nn.Linear(width, width) for _ in range(depth)]
    return nn.Sequential(nn.Linear(5, width), *layers, nn.Linear(width, 1))


class Unclear(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inp = nn.Linear(3, width)
        self.readout = nn.Parameter(torch.zeros(7, width))

    def forward(self, x):
        return self.inp(x) @ self.readout.mT


class Silent(nn.Module):
    """Says nothing of what it takes."""

    def __init__(self, width):
        super().__init__()
        self.inp = nn.Linear(3, width)

    def forward(self, graph):
        return self.inp(graph.features)


class Outside(nn.Module):
    """A function of the model itself behind each layer."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.head = nn.Linear(3, width), nn.Linear(width, 2)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        h = self.inp(x)
        for layer in self.layers:
            h = h + torch.relu(layer(h))
        return self.head(h)


class Recurrent(nn.Module):
    """An LSTM whose layers are the depth, and gains in a list."""

    def __init__(self, width, depth):
        super().__init__()
        self.rnn = nn.LSTM(3, width, depth, batch_first=True)
        self.gains = nn.ParameterList(torch.ones(width) for _ in range(depth))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        h = self.rnn(x)[0][:, -1]
        for gain in self.gains:
            h = h * gain
        return self.head(h)


def test_layers_of_an_lstm_and_lists_of_parameters_are_depth():
    example = torch.randn(4, 5, 3)
    plan = scale(
        Recurrent, {"width": 8, "depth": 2}, {"width": 32, "depth": 4}, scheme="mup",
        example=example, verify=False,
    )  # fmt: skip
    shallow = scale(
        lambda width: Recurrent(width, 2), {"width": 8}, {"width": 32}, scheme="mup",
        example=example, verify=False,
    )  # fmt: skip
    assert "n = 4, l = 2" in str(plan)
    assert "gains.* (4)" in str(plan)
    for name in ("rnn.weight_ih_l", "rnn.weight_hh_l", "rnn.bias_ih_l", "gains."):
        assert plan[f"{name}0"].lr == shallow[f"{name}0"].lr
        assert plan[f"{name}3"].lr == plan[f"{name}1"].lr == shallow[f"{name}1"].lr
        assert plan[f"{name}3"].init_std == shallow[f"{name}1"].init_std
    assert plan.build(seed=0)(example).shape == (4, 2)


def hinted(**hints):
    return scale(SmallNet, BASE, TARGET, hints=Hints(**hints))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scale(plain_stack, BASE, TARGET), "branches: the forward pass adds nothing"),
        (
            lambda: scale(Outside, BASE, TARGET),
            r"branches: the model \(Outside\) adds what its own forward pass makes \(relu\)",
        ),
        (
            lambda: scale(Unclear, {"width": 4}, {"width": 8}, scheme="standard"),
            "roles=.*'readout': 'output'",
        ),
        (lambda: scale(Silent, {"width": 4}, {"width": 8}), "example: the model could not be"),
        (lambda: scale(SmallNet, BASE, {"width": 8}), "wanted the keys of base"),
        (lambda: scale(SmallNet, {"w": 4}, {"w": 8}), "could not be called"),
        (lambda: scale(SmallNet, {**BASE, "width": 0}, TARGET), "wanted an integer"),
        (lambda: hinted(delta=BASE), "larger than the base"),
        (lambda: scale(SmallNet, TARGET, BASE), "take the smaller shape as the base"),
        (
            lambda: hinted(branches=["x.*"]),
            "'x.*' fits no module",
        ),
        (
            lambda: hinted(roles={"*.w": "input"}),
            "fits no weight",
        ),
        (
            lambda: hinted(roles={"*": "readout"}),
            "role: 'readout'",
        ),
        (lambda: scale(SmallNet, BASE, TARGET, multipliers="x"), "multipliers: 'x'"),
        (lambda: scale(lambda **_: 3, BASE, TARGET), "wanted a torch.nn.Module"),
        (
            lambda: scale(SmallNet, BASE, TARGET).param_groups(SmallNet(**BASE), lr=1.0),
            "it is not the plan's target",
        ),
    ],
)
def test_doors(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


@pytest.mark.slow
def test_roles_and_branches_by_name():
    plan = scale(Unclear, {"width": 4}, {"width": 8}, hints=Hints(roles={"readout": "output"}))
    assert plan == scale(Unclear, {"width": 4}, {"width": 8})  # seen in the forward pass
    assert plan["readout"].folded == ("output × n⁻¹",)
    found = scale(SmallNet, BASE, TARGET)
    named = scale(SmallNet, BASE, TARGET, hints=Hints(branches="blocks.*.fc2"))
    assert found.weights == named.weights
    assert copy.deepcopy(named) == named


class _Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear, self.gate = nn.Linear(width, width), nn.Parameter(torch.randn(1))

    def forward(self, x):
        return x + self.linear(torch.relu(x))


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_a_small_bias_keeps_its_standard_deviation_with_the_depth(outputs):
    def build(width, depth):
        blocks = [_Block(width) for _ in range(depth)]
        return nn.Sequential(nn.Linear(3, width), *blocks, nn.Linear(width, outputs))

    plan = scale(build, {"width": 16, "depth": 2}, {"width": 16, "depth": 32})
    assert plan["33.bias"].init == 1.0


@pytest.mark.parametrize("outputs", [1, 10])
def test_a_read_outs_bias_is_built_as_large_as_at_the_base(outputs):
    def build(width):
        return nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, outputs))

    plan = scale(build, {"width": 16}, {"width": 256}, scheme="mup")
    bias = plan["2.bias"]
    assert (bias.init, bias.init_std) == (4.0, 1.0)  # PyTorch draws it from ±1/√fan_in
    built = torch.cat([plan.build(seed=seed)[2].bias.detach() for seed in range(100)])
    assert built.std().item() == pytest.approx((3 * 16) ** -0.5, rel=0.2)


@pytest.mark.parametrize("power", [None, 0, -0.5, -1])
def test_one_output_takes_few_models(power):
    built = []

    def build(width):
        built.append(width)
        model = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 1))
        if power is not None:  # the builder's own values in the place of PyTorch's
            nn.init.normal_(model[2].bias, std=0.3 * width**power)
        return model

    plan = scale(build, {"width": 16}, {"width": 256}, scheme="mup", verify=False)
    assert plan["2.bias"].init == 16 ** (0.5 if power is None else -power)
    assert (len(built) < 60) == (power is None)


class Ranged(nn.Module):
    """Reads numbers from a range, and sets devices if it is told to."""

    def __init__(self, width, device=None):
        super().__init__()
        rates = [float(rate) for rate in torch.linspace(0, 1, 2)]
        self.inp = nn.Linear(3, width, device=device)
        self.hidden = nn.Linear(width, width, device=device)
        self.out = nn.Linear(width, 2, bias=rates[1] > 0, device=device)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(self.inp(x))))


@pytest.mark.slow
def test_targets_take_no_memory_even_if_the_builder_reads_ranges():
    # 2 TB of weights at the target.
    sizes = {"width": 8}, {"width": 2**20}
    plan = scale(Ranged, *sizes, scheme="mup", example=torch.ones(2, 3))
    assert plan["hidden.weight"].shape == (2**20, 2**20)
    assert not any("memory" in note or "allocated" in note for note in plan.notes)


def test_targets_that_take_memory_are_noted():
    sizes = {"width": 8}, {"width": 512}
    plan = scale(partial(Ranged, device="cpu"), *sizes, scheme="mup", example=torch.ones(2, 3))
    assert any("(1.06 MB) were allocated" in note for note in plan.notes), plan.notes
