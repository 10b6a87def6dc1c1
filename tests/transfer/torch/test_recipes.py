"""The recipes of the documentation: saving, loading, trainers, compilation and two processes."""

import math
import re
import socket
from pathlib import Path

import pytest
import torch
from tests.transfer.torch_models import Captioner
from torch import nn

from largen.errors import InvalidInput
from largen.sweeps import Ranges, tune
from largen.transfer.torch import TorchPlan, check_optimizer, scale

BASE, TARGET = {"width": 16, "depth": 2}, {"width": 32, "depth": 4}


def batch():
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(4, 1, 8, 8, generator=generator),
        torch.randint(0, 11, (4, 6), generator=generator),
    )


def stepped(plan, model, call=None, part=slice(None)):
    """Return logits, and weights after one step."""
    inputs = tuple(value[part] for value in batch())
    optimizer = check_optimizer(torch.optim.AdamW(plan.param_groups(model, lr=1e-2, eps=1e-3)))
    logits = (model if call is None else call)(*inputs)
    logits.square().mean().backward()
    optimizer.step()
    return logits.detach(), {n: p.detach().clone() for n, p in model.named_parameters()}


def assert_same(found, wanted):
    torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=1e-6)
    for name, value in wanted[1].items():
        torch.testing.assert_close(found[1][name], value, rtol=0, atol=1e-6)


def test_a_checkpoint_and_the_plans_text_are_the_model(tmp_path):
    plan = scale(Captioner, BASE, TARGET, scheme="complete_p", verify=False)
    assert plan.multipliers  # a tied read-out's
    model = plan.build(seed=0)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    (tmp_path / "plan.json").write_text(plan.to_json())
    again = TorchPlan.from_json((tmp_path / "plan.json").read_text())
    loaded = Captioner(**TARGET)
    loaded.load_state_dict(torch.load(tmp_path / "model.pt"))
    bare = loaded(*batch()).detach()
    again.attach(loaded)
    assert (bare - loaded(*batch())).abs().max() > 1e-3
    assert_same(stepped(again, loaded), stepped(plan, model))


@pytest.mark.slow
def test_compiled_models_move_alike():
    plan = scale(Captioner, BASE, TARGET, scheme="complete_p", verify=False)
    one, two = plan.build(seed=0), plan.build(seed=0)
    assert_same(stepped(plan, two, torch.compile(two)), stepped(plan, one))


@pytest.fixture(scope="module")
def folder_of_two_processes(tmp_path_factory):
    """The folder to which two processes have written what they computed."""
    folder = tmp_path_factory.mktemp("processes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_process, (port, str(folder)), nprocs=2)
    return folder


def _process(rank, port, folder):
    torch.set_num_threads(1)
    store = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    _copied(rank, folder)
    _sharded(rank, folder)
    torch.distributed.destroy_process_group()


def _copied(rank, folder):
    plan = scale(Captioner, BASE, TARGET, scheme="complete_p", verify=False)
    model = plan.build(seed=0)
    wrapped = nn.parallel.DistributedDataParallel(model)
    _, weights = stepped(plan, model, wrapped, slice(2 * rank, 2 * rank + 2))
    torch.save(weights, f"{folder}/copied_{rank}.pt")


@pytest.mark.slow
def test_two_processes_move_as_one(folder_of_two_processes):
    plan = scale(Captioner, BASE, TARGET, scheme="complete_p", verify=False)
    logits, wanted = stepped(plan, plan.build(seed=0))
    for rank in range(2):
        assert_same(
            (logits, torch.load(folder_of_two_processes / f"copied_{rank}.pt")), (logits, wanted)
        )


def captioner(width, depth):
    return Captioner(width, depth, scalar=False, tied=False)  # FSDP2 shards no scalars


def _sharded(rank, folder):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    plan = scale(captioner, BASE, TARGET, scheme="complete_p", verify=False)

    def from_meta(whole):
        with torch.device("meta"):
            model = captioner(**TARGET)
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        model.to_empty(device="cpu")
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(model, whole, options=options)
        return model

    def gathered(weights):
        return {name: value.full_tensor() for name, value in weights.items()}

    model = plan.attach(from_meta(plan.build(seed=0).state_dict() if rank == 0 else {}))
    _, weights = stepped(plan, model, part=slice(2 * rank, 2 * rank + 2))
    torch.manual_seed(0)
    own = plan.initialise(from_meta(captioner(**TARGET).state_dict() if rank == 0 else {}))
    found = gathered(weights), gathered({n: p.detach() for n, p in own.named_parameters()})
    torch.save(found, f"{folder}/sharded_{rank}.pt")


@pytest.mark.slow
def test_sharded_models_from_the_meta_device_move_as_one(folder_of_two_processes):
    plan = scale(captioner, BASE, TARGET, scheme="complete_p", verify=False)
    model = plan.build(seed=0)
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    logits, wanted = stepped(plan, model)
    for rank in range(2):
        moved, initial = torch.load(folder_of_two_processes / f"sharded_{rank}.pt")
        assert_same((logits, moved), (logits, wanted))
        assert_same((logits, initial), (logits, start))


def test_what_is_on_the_meta_device_has_no_values_to_multiply():
    plan = scale(captioner, BASE, TARGET, scheme="complete_p", verify=False)
    with torch.device("meta"):
        model = captioner(**TARGET)
    with pytest.raises(InvalidInput, match="to_empty"):
        plan.initialise(model)


def test_accelerate_takes_the_groups():
    accelerate = pytest.importorskip("accelerate")
    plan = scale(Captioner, BASE, TARGET, scheme="complete_p", verify=False)
    wanted = stepped(plan, plan.build(seed=0))
    accelerator = accelerate.Accelerator(cpu=True)
    model = plan.build(seed=0)
    groups = plan.param_groups(model, lr=1e-2, eps=1e-3)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(groups))
    logits = model(*batch())
    accelerator.backward(logits.square().mean())
    optimizer.step()
    weights = {n: p.detach() for n, p in accelerator.unwrap_model(model).named_parameters()}
    assert_same((logits.detach(), weights), wanted)


def adapted(width, depth):
    from peft import LoraConfig, get_peft_model

    return get_peft_model(llama(width, depth), LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))


def test_adapters_of_low_rank_have_rates_of_their_own(tmp_path):
    peft = pytest.importorskip("peft")
    pytest.importorskip("transformers")
    plan = scale(adapted, BASE, TARGET, scheme="mup", verify=False)
    model = plan.build(seed=0)
    groups = plan.param_groups(model, lr=1e-2)
    names = {id(p): name for name, p in model.named_parameters()}
    rates = {names[id(p)]: group["lr"] for group in groups for p in group["params"]}
    assert len(rates) == 4 * TARGET["depth"]
    for name, rate in rates.items():
        # Hayou, Ghosh and Yu 2024 (LoRA+), section 3: A's rate 1/n, B's 1.
        assert rate == pytest.approx(5e-3 if "lora_A" in name else 1e-2), name
    optimizer = check_optimizer(torch.optim.AdamW(groups))
    ids = torch.arange(12).reshape(2, 6)
    base = llama(**TARGET)
    base.load_state_dict(
        {
            name.removeprefix("base_model.model.").replace(".base_layer", ""): value.clone()
            for name, value in model.state_dict().items()
            if "lora_" not in name
        }
    )
    for _ in range(2):
        optimizer.zero_grad()
        model(ids).logits.square().mean().backward()
        optimizer.step()
    model.save_pretrained(tmp_path)
    loaded = plan.attach(peft.PeftModel.from_pretrained(base, tmp_path, is_trainable=True))
    with torch.no_grad():
        found, wanted = (own.eval()(ids).logits for own in (loaded, model))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


def llama(width, depth):
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=31, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=depth,
            num_attention_heads=width // 8, num_key_value_heads=width // 8,
            max_position_embeddings=32, tie_word_embeddings=True,
        )
    )  # fmt: skip


def test_hugging_face_saves_and_loads(tmp_path):
    transformers = pytest.importorskip("transformers")
    plan = scale(llama, BASE, TARGET, scheme="complete_p", verify=False)
    model = plan.build(seed=0)
    model.save_pretrained(tmp_path)
    loaded = plan.attach(transformers.LlamaForCausalLM.from_pretrained(tmp_path))
    ids = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits, rtol=0, atol=1e-6)


def test_hugging_faces_trainer_takes_the_groups(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    plan = scale(llama, BASE, TARGET, scheme="complete_p", verify=False)
    model = plan.build(seed=0)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=1e-2))
    rates = {group["lr"] for group in optimizer.param_groups}
    assert len(rates) > 1
    ids = torch.arange(12).reshape(2, 6)
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(
            str(tmp_path), max_steps=2, report_to=[], use_cpu=True, save_strategy="no",
            lr_scheduler_type="constant", disable_tqdm=True, max_grad_norm=0.0,
        ),
        train_dataset=[{"input_ids": row, "labels": row} for row in ids],
        optimizers=(optimizer, None),
    )  # fmt: skip
    before = model.lm_head.weight.detach().clone()
    trainer.train()
    assert {group["lr"] for group in check_optimizer(optimizer).param_groups} == rates
    assert not torch.equal(before, model.lm_head.weight)


def test_lightning_takes_the_groups():
    lightning = pytest.importorskip("lightning")

    class Trained(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.plan = scale(Captioner, BASE, TARGET, scheme="complete_p", verify=False)
            self.model = self.plan.build(seed=0)

        def training_step(self, inputs, index):
            return self.model(*inputs).square().mean()

        def configure_optimizers(self):
            groups = self.plan.param_groups(self.model, lr=1e-2, eps=1e-3)
            return check_optimizer(torch.optim.AdamW(groups))

    module = Trained()
    plan = module.plan
    _, wanted = stepped(plan, plan.build(seed=0))
    lightning.Trainer(
        max_steps=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    ).fit(module, torch.utils.data.DataLoader([batch()], batch_size=None))  # fmt: skip
    for name, value in module.model.named_parameters():
        torch.testing.assert_close(value.detach(), wanted[name], rtol=0, atol=1e-6)


def test_optuna_takes_over_the_trials_of_a_search(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    page = Path(__file__).parents[3] / "docs" / "how_to" / "tune_small.md"
    (lines,) = re.findall(r"```python\n(import optuna.*?)```", page.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)

    def train(constants, lr, seed):
        if lr > 2**-5:
            return math.inf
        return (math.log2(lr) + 7) ** 2 + math.log2(constants.output) ** 2 + seed

    found = tune(train, Ranges(rate=(2**-10, 2**-4)), draws=16)
    names = {"found": found}
    exec(lines, names)
    study = names["study"]
    losses = found.data["loss"].mean("seed").values
    assert [trial.value for trial in study.trials] == losses.tolist()
    assert study.best_value == losses.min()
    assert set(study.best_params) == {"rate", "output"}
