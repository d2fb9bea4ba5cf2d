"""Loops of several processes that one of them leaves alone, and loops that all leave together."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

IMPORTS = """import math, os, time
import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
"""
ACCELERATE = (
    IMPORTS
    + """accelerator = Accelerator()
train, val = DataLoader(rows, batch_size=4, shuffle=True), DataLoader(held_out, batch_size=4)
model, optimizer, train, val = accelerator.prepare(model, optimizer, train, val)
def backward(loss):
    accelerator.backward(loss)
"""
)
HALF = ACCELERATE.replace(
    "train, val = accelerator.prepare(model, optimizer, train, val)",
    "train = accelerator.prepare(model, optimizer, train)",
)
DDP = (
    IMPORTS
    + """dist.init_process_group("nccl")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(model.to(rank), device_ids=[rank])
train = DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows))
val = DataLoader(held_out, batch_size=4, sampler=DistributedSampler(held_out, shuffle=False))
def backward(loss):
    loss.backward()
"""
)
FSDP = DDP.replace(
    "model = torch.nn.parallel.DistributedDataParallel(model.to(rank), device_ids=[rank])",
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nmodel = FSDP(model)",
)
SHARDED = DDP.replace(
    "train = DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows))",
    "train = DataLoader(rows[rank :: dist.get_world_size()], batch_size=4)",
)
EVALUATE = """@torch.no_grad()
def evaluate():
    total = 0.0
    for batch in val:
        total += model(**batch).loss.item()
    return total / len(val)
"""
STEP = """
        loss = model(**batch).loss
        BEFORE
        backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        AFTER
"""
LOOP = (
    EVALUATE
    + """step, best, bad, stop, began = 0, math.inf, 0, False, time.time()
for epoch in range(3):
    for i, batch in enumerate(train):"""
    + STEP
)
PATIENCE = """
if step % 100 == 0:
    score = evaluate()
    if score < best:
        best, bad = score, 0
    else:
        bad += 1
    if bad >= 3:
        break
"""
FLAG = """
if step % 100 == 0:
    score = evaluate()
    if score > best:
        stop = True
    best = min(best, score)
if stop:
    break
"""
STOPPER = """
if step % 100 == 0:
    score = evaluate()
    stopper(score, model)
    if stopper.early_stop:
        break
"""
ON_ONE_RANK = """
if step % 100 == 0 and rank == 0:
    if held_out_loss(model.module) > best:
        break
"""
ON_THE_MAIN_PROCESS = """
if accelerator.is_main_process:
    if best_of.is_over(metric_of(model)):
        break
"""
FLAG_OF_ONE = """
if rank == 0 and held_out_loss(model.module) > best:
    stop = True
if stop:
    break
"""
NAN = "if torch.isnan(loss):\n    continue"
NAN_ENDS = "if not math.isfinite(loss.item()):\n    print('nan')\n    break"
LONG = "if batch['input_ids'].shape[1] > 2048:\n    continue"
UNLABELLED = "if (batch['labels'] != -100).sum() == 0:\n    optimizer.zero_grad()\n    continue"
BUDGET = "if time.time() - began > 3600:\n    break"
TOKENS = "seen_tokens += batch['input_ids'].numel()\nif seen_tokens > 1_000_000:\n    break"
IN_A_TRY = """
for batch in train:
    try:
        loss = model(**batch).loss
        backward(loss)
        optimizer.step()
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        continue
"""
IN_A_FUNCTION = """
def epoch_of(loader):
    for batch in loader:
        loss = train_step(batch)
        if loss < 0.05:
            return loss
def train_step(batch):
    loss = model(**batch).loss
    backward(loss)
    return loss.item()
epoch_of(train)
"""

ENGINE = """
class Engine:
    def __init__(self, model):
        self.model = model
    def micro_step(self, batch):
        loss = self.model(**batch).loss
        loss.backward()
    def validate(self, batch):
        return self.model(**batch).loss.item()
"""
OF_ENGINE = """
def epoch_loop(engine, loader):
    for batch in loader:
        try:
            engine.micro_step(batch)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            continue
"""
CALLED = "\nepoch_loop(Engine(model), train)\n"
HELD = """
class Run:
    def __init__(self, engine):
        self.engine = engine
    def fit(self, loader):
        for batch in loader:
            try:
                self.engine.micro_step(batch)
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
Run(Engine(model)).fit(train)
"""


def indented(text: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line if line else line for line in text.strip().splitlines())


def loop(before: str = "pass", after: str = "pass") -> str:
    return LOOP.replace("        BEFORE", indented(before, 8)).replace(
        "        AFTER", indented(after, 8)
    )


def found(text: str, folder: Path) -> list[str]:
    (folder / "train.py").write_text(text, encoding="utf-8")
    report = lint([folder / "train.py"], select=["SRC050"], allow_unjudged=True)
    return [f"{finding.severity}: {finding.message}" for finding in report.findings]


@pytest.mark.parametrize(
    "text",
    [
        ACCELERATE + loop(after=PATIENCE),
        DDP + loop(after=PATIENCE),
        FSDP + loop(after=FLAG),
        ACCELERATE + "stopper = EarlyStopping(3)\n" + loop(after=STOPPER),
        ACCELERATE + loop(before=NAN),
        DDP + loop(before=NAN_ENDS),
        SHARDED + loop(before=NAN),
        ACCELERATE + loop(before=LONG),
        DDP + loop(before=UNLABELLED),
        DDP + loop(after=BUDGET),
        FSDP + "seen_tokens = 0\n" + loop(after=TOKENS),
        DDP + IN_A_TRY,
        ACCELERATE + IN_A_TRY.replace("torch.cuda.OutOfMemoryError", "RuntimeError as error"),
        ACCELERATE + IN_A_FUNCTION,
        DDP + loop(after=ON_ONE_RANK),
        ACCELERATE + "best_of = Best(3)\n" + loop(after=ON_THE_MAIN_PROCESS),
        DDP + loop(after=FLAG_OF_ONE),
        DDP + ENGINE + OF_ENGINE + CALLED,
        DDP + ENGINE + OF_ENGINE.replace("engine, loader", "engine: Engine, loader"),
        DDP + ENGINE + HELD,
    ],
)  # fmt: skip
def test_one_process_goes_another_way(text: str, tmp_path: Path) -> None:
    (message,) = found(text, tmp_path)
    assert "the others wait for it in the next backward pass" in message


REDUCED = "score = accelerator.gather(torch.tensor(score)).mean().item()"
SUMMED = "flag = torch.tensor(float(torch.isnan(loss)))\ndist.all_reduce(flag)\nif flag > 0:\n    continue"
TRIGGER = "if torch.isnan(loss):\n    accelerator.set_trigger()\nif accelerator.check_trigger():\n    break"
RERAISED = "torch.cuda.empty_cache()\n        raise"
SKIPPED_UPDATE = "if not torch.isnan(loss):\n    optimizer.step()"
PLAIN = (
    IMPORTS + "train = val = DataLoader(rows)\nrank = 0\ndef backward(loss):\n    loss.backward()\n"
)
# The loader is made of rows that another function calls as the loop below calls its batches.
RESUMED = ACCELERATE.replace(
    "DataLoader(rows", "DataLoader([r for r in rows for batch in [r] if len(batch)]"
)
SKIPPED = "if epoch == first_epoch and i < len(train) // 2:\n    continue"
LAST_UPDATE = """
if accelerator.sync_gradients:
    if step % 10 == 0:
        accelerator.print(loss.item())
    if step >= 1000:
        break
"""
DEEPSPEED = (
    DDP
    + "import deepspeed\nengine, _, train, _ = deepspeed.initialize(model=model, training_data=rows)\n"
)
HELPER = """
def any_process(flag):
    t = torch.tensor(float(flag), device="cuda")
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return t.item() > 0
"""


@pytest.mark.parametrize(
    "text",
    [
        ACCELERATE + loop(after=PATIENCE.replace("score = evaluate()", f"score = evaluate()\n    {REDUCED}")),
        HALF + loop(after=PATIENCE),
        DDP + loop(before=SUMMED),
        DDP + HELPER + loop(before="if any_process(torch.isnan(loss)):\n    continue"),
        ACCELERATE + loop(before=TRIGGER),
        DDP + loop(after="if step >= 1000:\n    break"),
        DDP + loop(after="if i + 1 >= len(train):\n    break"),
        DDP + loop(before="if epoch == 0 and i < 30:\n    continue"),
        DDP + loop(after=SKIPPED_UPDATE),
        DDP + IN_A_TRY.replace("torch.cuda.empty_cache()\n        continue", RERAISED),
        DDP + IN_A_TRY.replace("torch.cuda.OutOfMemoryError", "KeyError"),
        DDP + IN_A_TRY.replace("torch.cuda.empty_cache()\n        continue", "os._exit(1)"),
        IMPORTS + "train = val = DataLoader(rows)\ndef backward(loss):\n    loss.backward()\n" + loop(before=NAN),
        DDP + loop(after="if i % 50 == 0:\n    print(loss.item())\n    continue"),
        ACCELERATE + EVALUATE.replace("        total +=", "        if total > 9:\n            break\n        total +="),
        DDP + "from torch.distributed.algorithms.join import Join\n" + loop(before=NAN).replace("for epoch", "Join([model])\nfor epoch"),
        ACCELERATE + loop(before="if not accelerator.sync_gradients:\n    pass"),
        RESUMED + "first_epoch = 2\n" + loop(before=SKIPPED),
        DDP + loop(after=FLAG_OF_ONE.replace("if stop", "stop = told_to_all(dist.broadcast(stop, 0))\nif stop")),
        DDP + loop(after="if step >= 1000:\n    if rank == 0:\n        save(model)\n    break"),
        DDP + loop(after="if rank == 0:\n    for row in samples:\n        if row is None:\n            break"),
        DDP + loop(after="if rank == 0 and step == 9:\n    save(model)\n    break\nelse:\n    break"),
        PLAIN + loop(after="if rank == 0:\n    break"),
        DDP + ENGINE + OF_ENGINE.replace("micro_step", "validate") + CALLED,
        DDP + ENGINE + OF_ENGINE.replace("            continue", "            raise") + CALLED,
        ACCELERATE + loop(after=LAST_UPDATE).replace("        backward(loss)", "        accelerator.backward(loss)"),
        DEEPSPEED + loop(after="if engine.global_steps >= 1000:\n    break").replace("        backward(loss)", "        engine.backward(loss)"),
    ],
)  # fmt: skip
def test_all_processes_go_the_same_way(text: str, tmp_path: Path) -> None:
    assert found(text, tmp_path) == []


@pytest.mark.parametrize(("processes", "severity"), [(4, "error"), (1, "warning")])
def test_how_many_processes_accelerate_starts(
    processes: int, severity: str, tmp_path: Path
) -> None:
    settings = f"distributed_type: MULTI_GPU\nnum_processes: {processes}\n"
    (tmp_path / "four.yaml").write_text(settings, encoding="utf-8")
    (message,) = found(ACCELERATE + loop(after=PATIENCE), tmp_path)
    assert message.startswith(severity)


CALLBACK = """from transformers import Trainer, TrainerCallback
class Stops(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        BODY
trainer = Trainer(model, callbacks=[Stops()])
trainer.train()
"""


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("if state.is_world_process_zero and bad(metrics):\n            control.should_training_stop = True", 1),
        ("if not state.is_world_process_zero:\n            return\n        control.should_training_stop = True", 1),
        ("if args.local_rank == 0:\n            control.should_evaluate = True", 1),
        ("if metrics['eval_loss'] < 0.3:\n            control.should_training_stop = True", 0),
        ("if state.is_world_process_zero:\n            control.should_log = True", 0),
        ("if state.is_world_process_zero:\n            print(metrics)\n        control.should_training_stop = True", 0),
    ],
)  # fmt: skip
def test_callbacks_that_decide_on_one_process(body: str, count: int, tmp_path: Path) -> None:
    messages = found(CALLBACK.replace("BODY", body), tmp_path)
    assert len(messages) == count
    assert all("is set on only one process" in message for message in messages)


GUARDED = """import torch.distributed as dist
from sums import mean_over_all
def is_main():
    return dist.get_rank() == 0
def of_interest(epoch):
    return epoch % 2 == 0
for epoch in range(3):
    if CONDITION:
        print(mean_over_all(epoch))
"""


@pytest.mark.parametrize(("condition", "count"), [("is_main()", 1), ("of_interest(epoch)", 0)])
def test_a_function_tells_which_process_it_is(condition: str, count: int, tmp_path: Path) -> None:
    sums = "import torch.distributed as dist\ndef mean_over_all(x):\n    dist.all_reduce(x)\n    return x\n"
    (tmp_path / "sums.py").write_text(sums, encoding="utf-8")
    (tmp_path / "train.py").write_text(GUARDED.replace("CONDITION", condition), encoding="utf-8")
    assert len(lint([tmp_path], select=["SRC050"], allow_unjudged=True).findings) == count


LIGHTNING = """import lightning as L
class Tuner(L.LightningModule):
    def validation_step(self, batch, number):
        loss = self.model(**batch).loss
        LINES
"""


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ("if self.trainer.is_global_zero:\n            self.log('val_loss', loss, sync_dist=True)", 1),
        ("if self.global_rank == 0:\n            self.log_dict({'loss': loss}, sync_dist=True)", 1),
        ("if self.trainer.is_global_zero:\n            print(self.all_gather(loss))", 1),
        ("self.log('val_loss', loss, sync_dist=True)", 0),
        ("if self.trainer.is_global_zero:\n            self.log('val_loss', loss, rank_zero_only=True)", 0),
    ],
)  # fmt: skip
def test_figures_that_lightning_reduces(lines: str, count: int, tmp_path: Path) -> None:
    assert len(found(LIGHTNING.replace("LINES", lines), tmp_path)) == count
