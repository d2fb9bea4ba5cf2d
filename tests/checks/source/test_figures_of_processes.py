"""Figures of evaluations by several processes: of one of them alone, and of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM
dist.init_process_group("nccl")
rank = dist.get_rank()
model = DDP(AutoModelForCausalLM.from_pretrained("m").to(rank), device_ids=[rank])
"""
SAMPLED = "val = DataLoader(rows, batch_size=8, sampler=DistributedSampler(rows, shuffle=False))\n"
WHOLE = "val = DataLoader(rows, batch_size=8)\n"
PREPARED = (
    "accelerator = Accelerator()\nval = accelerator.prepare(DataLoader(rows, batch_size=8))\n"
)
EVALUATE = """def evaluate():
    model.eval()
    total = 0.0
    with torch.no_grad():
        for batch in val:
            total += model(**batch).loss.item()
    REDUCE
    return total / len(val)
"""
LOGGED = "loss = evaluate()\nif rank == 0:\n    print(loss)\n"
SUM = "t = torch.tensor(total).cuda(); dist.all_reduce(t); total = t.item() / dist.get_world_size()"


def found(text: str, folder: Path) -> list[str]:
    (folder / "train.py").write_text(text, encoding="utf-8")
    report = lint([folder / "train.py"], select=["SRC409"], allow_unjudged=True)
    return [one.severity for one in report.findings]


@pytest.mark.parametrize(
    ("loader", "reduce", "logged", "expected"),
    [
        (SAMPLED, "pass", LOGGED, ["warning"]),
        (PREPARED, "pass", LOGGED, ["warning"]),
        (SAMPLED, "pass", "if rank == 0:\n    wandb.log({'loss': evaluate()})\n", ["warning"]),
        (PREPARED, "pass", "accelerator.print(evaluate())\n", ["warning"]),
        (SAMPLED, SUM, LOGGED, []),
        (WHOLE, "pass", LOGGED, []),
        (SAMPLED, "pass", "loss = evaluate()\nprint(rank, loss)\n", []),
        # each process writes its own answers, and rank 0 says that all is done
        (SAMPLED, "save(total, f'part-{rank}.json')", "evaluate()\nif rank == 0:\n    print('done')\n", []),
        (PREPARED, "total = accelerator.gather(torch.tensor(total)).mean().item()", LOGGED, []),
    ],
)  # fmt: skip
def test_figures_that_rank_0_logs(
    loader: str, reduce: str, logged: str, expected: list[str], tmp_path: Path
) -> None:
    text = HEAD + loader + EVALUATE.replace("REDUCE", reduce) + logged
    assert found(text, tmp_path) == expected


def test_the_loop_of_the_training_is_no_evaluation(tmp_path: Path) -> None:
    loop = (
        "total = 0.0\nfor batch in val:\n    loss = model(**batch).loss\n    loss.backward()\n"
        "    total += loss.item()\n"
    )
    assert found(HEAD + SAMPLED + loop + "if rank == 0:\n    print(total)\n", tmp_path) == []


LIGHTNING = """import lightning as L
import torchmetrics
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
class Tuner(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=4)
    def validation_step(self, batch, number):
        loss = self.model(**batch).loss
        LOG
best = CALLBACK
L.Trainer(TRAINER, callbacks=[best]).fit(Tuner(), data)
"""
CHECKPOINT = 'ModelCheckpoint(monitor="val/loss")'
DEVICES = 'devices=4, strategy="ddp"'


@pytest.mark.parametrize(
    ("log", "callback", "trainer", "expected"),
    [
        ('self.log("val/loss", loss)', CHECKPOINT, DEVICES, ["warning"]),
        ('self.log_dict({"val/loss": loss, "a": loss})', CHECKPOINT, DEVICES, ["warning"]),
        ('self.log("val/loss", loss)', 'EarlyStopping(monitor="val/loss")', 'strategy="fsdp"', ["warning"]),
        ('self.log("val/loss", loss)', "ModelCheckpoint()", DEVICES, ["info"]),
        ('self.log("val/loss", loss, sync_dist=True)', CHECKPOINT, DEVICES, []),
        ('self.log("val/loss", loss)', CHECKPOINT, "devices=1", []),
        ('self.log("val/loss", loss)', CHECKPOINT, "max_epochs=2", []),
        ('self.log("val/loss", self.accuracy)', CHECKPOINT, DEVICES, []),
        ('a = self.accuracy.compute()\n        self.log("val/loss", a)', CHECKPOINT, DEVICES, []),
        ('self.log("val/loss", self.all_gather(loss).mean())', CHECKPOINT, DEVICES, []),
    ],
)  # fmt: skip
def test_figures_that_lightning_logs(
    log: str, callback: str, trainer: str, expected: list[str], tmp_path: Path
) -> None:
    text = LIGHTNING.replace("LOG", log).replace("CALLBACK", callback).replace("TRAINER", trainer)
    assert found(text, tmp_path) == expected
