"""What goes wrong in other implementations of width transfer, one test for each fault."""

import copy
import io
from functools import partial

import pytest
import torch
from tests.transfer.torch_models import Captioner, SmallNet, images_and_tokens
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from largen.errors import InvalidInput, WrongPlan
from largen.transfer import warmup_cosine
from largen.transfer.torch import check_rates, check_scheduler, scale

BASE, TARGET = {"width": 16, "depth": 2}, {"width": 64, "depth": 8}


@pytest.fixture(scope="module")
def captioner():
    return scale(Captioner, BASE, TARGET)


@pytest.fixture(scope="module")
def small():
    return scale(SmallNet, BASE, TARGET)


def rates(plan, model):
    """What each weight of a model gets, by the weight's values: whatever tensor they live in."""
    return [
        (sorted(float(p.detach().sum()) for p in group["params"]), group["lr"], group["eps"])
        for group in plan.param_groups(model, lr=1e-3)
    ]


# State on tensors is lost by copies of them. -------------------------------------------------


def copied(model, plan):
    return copy.deepcopy(model)


def averaged(model, plan):
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))


def assigned(model, plan):
    fresh = plan.build(seed=7)
    fresh.load_state_dict(model.state_dict(), assign=True)
    with pytest.raises(InvalidInput, match=r"model.head.weight = model.wte.weight"):
        plan.param_groups(fresh, lr=1e-3)  # PyTorch unties what it assigns
    fresh.head.weight = fresh.wte.weight
    return fresh


def emptied(model, plan):
    with torch.device("meta"):
        fresh = Captioner(**TARGET)
    fresh.to_empty(device="cpu")
    fresh.head.weight = fresh.wte.weight
    fresh.load_state_dict(model.state_dict())
    return plan.attach(fresh)


def saved(model, plan):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.slow
@pytest.mark.parametrize("transport", [copied, averaged, assigned, emptied, saved])
def test_nothing_is_lost_on_the_way(captioner, transport):
    model = captioner.build(seed=0)
    other = transport(model, captioner)
    inputs = images_and_tokens()
    assert torch.equal(other(*inputs), model(*inputs))
    assert rates(captioner, other) == rates(captioner, model)


def test_a_compiled_model_computes_the_same(captioner):
    model = captioner.build(seed=0)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    inputs = images_and_tokens()
    assert torch.allclose(compiled(*inputs), model(*inputs))
    assert rates(captioner, compiled) == rates(captioner, model)
    inner = captioner.build(seed=0)
    inner.blocks[0] = torch.compile(inner.blocks[0], backend="eager")
    assert rates(captioner, inner) == rates(captioner, model)


def test_an_exported_model_computes_the_same(captioner):
    model = captioner.build(seed=0)
    inputs = images_and_tokens()
    exported = torch.export.export(model, inputs).module()
    assert torch.allclose(exported(*inputs), model(*inputs))


@pytest.mark.slow
def test_data_parallel_and_sharded_models(tmp_path):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    captioner = scale(partial(Captioner, scalar=False), BASE, TARGET)

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model, inputs = captioner.build(seed=0), images_and_tokens()
        expected, own = model(*inputs), rates(captioner, model)
        parallel = nn.parallel.DistributedDataParallel(model)
        assert torch.equal(parallel(*inputs), expected)
        assert rates(captioner, parallel) == own
        mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
        sharded = captioner.build(seed=0)
        for block in sharded.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(sharded, mesh=mesh)
        assert torch.allclose(sharded(*inputs), expected)
        groups = captioner.param_groups(sharded, lr=1e-3)
        assert [g["lr"] for g in groups] == [lr for _, lr, _ in own]
    finally:
        dist.destroy_process_group()


# Weight decay is what the user asked for. ---------------------------------------------------


def test_weight_decay_is_never_dropped(small):
    model = small.build(seed=0)
    for groups, product in (
        (small.param_groups(model, lr=1e-3, weight_decay=0.1), 1e-4),
        (small.param_groups(model, lr=1e-3), 1e-5),  # AdamW's default of 0.01
    ):
        assert all(g["lr"] * g["weight_decay"] == pytest.approx(product) for g in groups)


# Rates. ---------------------------------------------------------------------------------------


def test_a_rate_that_is_a_tensor_is_not_changed(small):
    lr = torch.tensor(1e-3)
    groups = small.param_groups(small.build(seed=0), lr=lr)
    assert lr == torch.tensor(1e-3)
    assert len({float(g["lr"]) for g in groups}) > 2
    assert all(isinstance(g["lr"], torch.Tensor) and g["lr"] is not lr for g in groups)


@pytest.mark.parametrize(
    ("scheduler", "fix"),
    [
        (lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=10), "max_lr=.*param_groups"),
        (lambda o: torch.optim.swa_utils.SWALR(o, swa_lr=0.05), "swa_lr=.*param_groups"),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 10, eta_min=1e-5), "Set it to 0"),
        (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 10, eta_min=1e-5), "Set it to 0"),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, min_lr=1e-5), "Set it to 0"),
        (
            lambda o: lr_scheduler.CyclicLR(o, 1e-3, 1e-1, cycle_momentum=False),
            "max_lr=.*param_groups",
        ),
        (
            lambda o: lr_scheduler.SequentialLR(
                o,
                [
                    lr_scheduler.LinearLR(o),
                    lr_scheduler.CosineAnnealingLR(o, 10, eta_min=1e-5),
                ],
                [5],
            ),
            "Set it to 0",
        ),
    ],
)
def test_schedulers_of_absolute_rates_are_refused(small, scheduler, fix):
    optimizer = torch.optim.AdamW(small.param_groups(small.build(seed=0), lr=1e-3))
    with pytest.raises(InvalidInput, match=fix):
        check_scheduler(scheduler(optimizer))


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda o: lr_scheduler.LambdaLR(o, warmup_cosine(10, warmup=2, final=0.1)),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
        lambda o: lr_scheduler.OneCycleLR(
            o, max_lr=[g["lr"] for g in o.param_groups], total_steps=10
        ),
        lambda o: lr_scheduler.ReduceLROnPlateau(o),
    ],
)
def test_schedulers_that_multiply_keep_the_ratios(small, scheduler):
    optimizer = torch.optim.AdamW(small.param_groups(small.build(seed=0), lr=1e-3))
    scheduler = check_scheduler(scheduler(optimizer))
    for _ in range(9):
        optimizer.step()
        scheduler.step(*([1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
        check_rates(optimizer)


def test_replaced_rates_are_noticed_while_training(small):
    optimizer = torch.optim.AdamW(small.param_groups(small.build(seed=0), lr=1e-3))
    optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: check_rates(optimizer))
    optimizer.step()
    for group in optimizer.param_groups:
        group["lr"] = 1e-3
    with pytest.raises(InvalidInput, match="not in the plan's ratios"):
        optimizer.step()


# Checkpoints. ---------------------------------------------------------------------------------


def test_a_loaded_checkpoint_is_never_rescaled(small):
    trained = small.build(seed=0)
    state = {name: value.clone() for name, value in trained.state_dict().items()}
    loaded = SmallNet(**TARGET)
    loaded.load_state_dict(state)
    small.attach(loaded)
    small.param_groups(loaded, lr=1e-3)
    assert all(torch.equal(value, state[name]) for name, value in loaded.state_dict().items())
    # A model whose factors are folded needs no plan to compute the same.
    assert torch.equal(loaded(torch.ones(2, 5)), trained(torch.ones(2, 5)))


def test_a_model_without_its_multipliers_is_warned_of(captioner, recwarn):
    trained, loaded = captioner.build(seed=0), Captioner(**TARGET)
    loaded.load_state_dict(trained.state_dict())
    inputs = images_and_tokens()
    assert not torch.allclose(loaded(*inputs), trained(*inputs))
    with pytest.warns(WrongPlan, match=r"lacks 1 .*output: input of head × n⁻¹ = .* plan\.attach"):
        captioner.param_groups(loaded, lr=1e-3)
    captioner.param_groups(trained, lr=1e-3)
    captioner.param_groups(captioner.attach(loaded), lr=1e-3)
    adapted = Captioner(**TARGET)  # of a pretrained model, some weights are trained
    adapted.head.weight.requires_grad_(False)
    captioner.param_groups(adapted, lr=1e-3)
    assert not [w for w in recwarn if w.category is WrongPlan]


@pytest.mark.slow
def test_multipliers_are_attached_once(captioner):
    model = captioner.build(seed=0)
    expected = model(*images_and_tokens())
    captioner.attach(captioner.attach(model))
    assert torch.equal(model(*images_and_tokens()), expected)
    other = scale(Captioner, BASE | {"width": 32}, TARGET)
    with pytest.raises(InvalidInput, match="carries the multipliers"):
        other.attach(model)


# Roles. ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_tied_embeddings_do_not_grow():
    sizes = []
    for width in (16, 256):
        plan = scale(Captioner, {"width": 16, "depth": 2}, {"width": width, "depth": 2})
        model = plan.build(seed=0)
        with torch.no_grad():
            model.wte.weight.mul_(50)  # standard deviations of one, as nn.Embedding has them
            sizes.append(model(*images_and_tokens()).std().item())
    assert sizes[1] < sizes[0]
    assert model.head.weight is model.wte.weight


def test_convolutional_read_outs_are_read_outs():
    def net(width):
        return nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, 10, 1))

    plan = scale(net, {"width": 8}, {"width": 32}, scheme="mup", optimizer="sgd")
    assert plan["2.weight"].role == "output"
    # mup's n, folded: n · n⁻².
    assert plan["2.weight"].lr == 0.25
    assert plan["2.weight"].init == 0.5


def test_biases_of_recurrent_layers():
    def net(width):
        return nn.Sequential(nn.LSTM(5, width, num_layers=2))

    plan = scale(net, {"width": 16}, {"width": 64}, scheme="mup", optimizer="sgd")
    found = {w.name[2:]: (w.role, w.lr, w.init) for w in plan.weights}
    # nn.LSTM draws all of its tensors with 1/√width: all but hidden matrices are put right.
    assert found["weight_ih_l0"] == ("input", 4.0, 2.0)
    assert found["weight_hh_l0"] == ("recurrent", 1.0, 1.0)
    assert found["weight_ih_l1"] == ("hidden", 1.0, 1.0)
    assert found["bias_hh_l0"] == ("bias", 4.0, 2.0)


def test_frozen_weights_have_no_groups(small):
    model = small.build(seed=0)
    for p in model.blocks.parameters():
        p.requires_grad_(False)
    groups = small.param_groups(model, lr=1e-3)
    assert sum(len(g["params"]) for g in groups) == 4


def test_low_rank_adapters():
    class Adapted(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inp = nn.Linear(3, width)
            self.frozen = nn.Linear(width, width).requires_grad_(False)
            self.down, self.up = nn.Linear(width, 4, bias=False), nn.Linear(4, width, bias=False)
            self.out = nn.Linear(width, 2)

    plan = scale(Adapted, {"width": 16}, {"width": 64}, scheme="mup")
    groups = plan.param_groups(plan.build(seed=0), lr=1.0)
    assert (plan["down.weight"].role, plan["up.weight"].role) == ("output", "input")
    assert sum(len(g["params"]) for g in groups) == 6


# Names. ---------------------------------------------------------------------------------------


def test_parts_called_module_keep_their_names():
    class Odd(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.module = nn.Linear(4, width)
            self.modules_out = nn.Linear(width, 2)

        def forward(self, x):
            return self.modules_out(self.module(x))

    plan = scale(Odd, {"width": 8}, {"width": 32}, scheme="mup")
    model = plan.build(seed=0)
    assert {w.name for w in plan.weights} == set(model.state_dict())
    assert rates(plan, nn.DataParallel(model)) == rates(plan, model)


# Depth. ---------------------------------------------------------------------------------------


def test_base_and_target_may_have_different_depths(small):
    assert small.depth_ratio == 4
    net = partial(scale, SmallNet, BASE, {"width": 16, "depth": 32})
    assert net().depth_ratio == 16
    assert net()["blocks.31.fc1.weight"].lr == 0.25
