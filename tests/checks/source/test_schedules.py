"""Schedules that are stepped at another pace than they count, and those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

LOOP = """
import argparse
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup
p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int, default=5)
args = p.parse_args()
model = AutoModelForCausalLM.from_pretrained("some/model")
loader = DataLoader(rows, batch_size=8)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
{schedule}
for epoch in range({epochs}):
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
{inner}        optimizer.zero_grad()
{outer}    print(epoch, float(loss))
"""
STEPS = "scheduler = get_linear_schedule_with_warmup(optimizer, {}, {})"
ONE = "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max={})"


def script(schedule: str, *, by_epoch: bool, epochs: str = "args.epochs") -> str:
    inner, outer = "        scheduler.step()\n", "    scheduler.step()\n"
    return LOOP.format(
        schedule=schedule,
        epochs=epochs,
        inner="" if by_epoch else inner,
        outer=outer if by_epoch else "",
    )


FUNCTIONS = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup
def train_epoch(model, loader, optimizer):
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
def main():
    model = AutoModelForCausalLM.from_pretrained("some/model")
    loader = DataLoader(rows, batch_size=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 0, len(loader) * 3)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in range(3):
        train_epoch(model, loader, optimizer)
        scheduler.step()
accelerator = Accelerator()
main()
"""
LIGHTNING = """
import lightning as L
import torch
from transformers import get_cosine_schedule_with_warmup
class Tuner(L.LightningModule):
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=2e-5)
        scheduler = get_cosine_schedule_with_warmup(optimizer, 100, self.trainer.estimated_stepping_batches)
        return {result}
"""
MONITORED = (
    LIGHTNING.format(result="[optimizer], [scheduler]")
    + "monitor = L.pytorch.callbacks.LearningRateMonitor(logging_interval='step')\n"
)
"""Another `interval`: how often a callback logs"""
IN_A_METHOD = """
import pytorch_lightning as pl
import torch
from transformers import get_linear_schedule_with_warmup
class Base(pl.LightningModule):
    def make_schedule(self, optimizer):
        steps = self.trainer.estimated_stepping_batches
        return get_linear_schedule_with_warmup(optimizer, self.warmup, steps)
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=2e-5)
        return {{"optimizer": optimizer, "lr_scheduler": {result}}}
"""
ONE_CYCLE = """
import lightning.pytorch as pl
import torch
class Tuner(pl.LightningModule):
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=2e-5)
        total = {total}
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-5, total_steps=total)
        return [optimizer], [{result}]
"""
STEPPED_BY_HAND = """
    def lr_scheduler_step(self, scheduler, metric):
        scheduler.step()
"""
WRONG = {
    "warm-up in steps": (
        script(STEPS.format(100, "len(loader) * args.epochs"), by_epoch=True),
        "once per epoch",
    ),
    "warm-up of numbers": (
        script(STEPS.format(500, "10000"), by_epoch=True),
        "never gets through its warm-up",
    ),
    "cosine over batches": (
        script(ONE.format("len(loader) * args.epochs"), by_epoch=True),
        "hardly changes",
    ),
    "two functions": (FUNCTIONS, "once per epoch"),
    "over epochs": (script(ONE.format("args.epochs"), by_epoch=False), "counts epochs"),
    "over three epochs": (
        script(STEPS.format(0, "3"), by_epoch=False, epochs="3"),
        "ends after 3 batches",
    ),
    "lightning": (
        LIGHTNING.format(result="[optimizer], [scheduler]"),
        "Lightning steps it once per epoch",
    ),
    "lightning with a monitor": (MONITORED, "Lightning steps it once per epoch"),
    "lightning in a method": (
        IN_A_METHOD.format(result="self.make_schedule(optimizer)"),
        "Lightning steps it once per epoch",
    ),
    "lightning, one cycle": (
        ONE_CYCLE.format(total="self.trainer.estimated_stepping_batches", result="scheduler"),
        "Lightning steps it once per epoch",
    ),
}
RIGHT = {
    "steps": script(STEPS.format(100, "len(loader) * args.epochs"), by_epoch=False),
    "epochs": script(ONE.format("args.epochs"), by_epoch=True),
    "epochs, by division": script(
        ONE.format("(len(loader) * args.epochs) // len(loader)"), by_epoch=True
    ),
    "epochs with a warm-up": script(STEPS.format(1, "args.epochs"), by_epoch=True),
    "a longer half-wave": script(ONE.format("20"), by_epoch=True),
    "lightning by step": LIGHTNING.format(
        result='{"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}'
    ),
}

RIGHT |= {
    "lightning in a method by step": IN_A_METHOD.format(
        result='dict(scheduler=self.make_schedule(optimizer), interval = "step")'
    ),
    "lightning over epochs": ONE_CYCLE.format(total="self.trainer.max_epochs", result="scheduler"),
    "lightning, stepped by hand": LIGHTNING.format(result="[optimizer], [scheduler]")
    + STEPPED_BY_HAND,
    "lightning, set later": ONE_CYCLE.format(
        total="self.trainer.estimated_stepping_batches",
        result="{'scheduler': scheduler, 'interval': 'step'}",
    ),
}


def said(code: str, folder: Path) -> list[str]:
    path = folder / "train.py"
    path.write_text(code, encoding="utf-8")
    found = lint([str(path)], select=["scheduler-length-miscounted"]).findings
    return [finding.message for finding in found]


@pytest.mark.parametrize("name", WRONG)
def test_another_pace_is_found(name: str, tmp_path: Path) -> None:
    code, text = WRONG[name]
    (message,) = said(code, tmp_path)
    assert text in message


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_pace_is_left_alone(name: str, tmp_path: Path) -> None:
    assert said(RIGHT[name], tmp_path) == []


ACCUMULATED = """
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup, get_scheduler
ACCUM = 4
model = AutoModelForCausalLM.from_pretrained("some/model")
loader = DataLoader(rows, batch_size=8)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
{schedule}
for epoch in range(3):
    for i, batch in enumerate(loader):
        (model(**batch).loss / ACCUM).backward()
        if (i + 1) % ACCUM == 0:
            {step}
            optimizer.zero_grad()
{behind}
"""
COUNTED = {
    "cosine": "total = 3 * (len(loader) // ACCUM)\nscheduler = get_cosine_schedule_with_warmup(optimizer, 9, total)",
    "by name": "scheduler = get_scheduler('linear', optimizer, 0, 3 * len(loader) // ACCUM)",
    "number": "scheduler = get_cosine_schedule_with_warmup(optimizer, 0, len(loader) * 3 // 4)",
    "keyword": "steps = len(loader) / ACCUM\nscheduler = get_cosine_schedule_with_warmup(\n"
    "    optimizer, num_warmup_steps=0, num_training_steps=int(3 * steps))",
    "torch": "scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 3 * len(loader) // ACCUM)",
}
BEHIND = "        scheduler.step()"
EACH_BATCH = "one per"


def counted_by_accumulation(folder: Path, schedule: str, step: str, behind: str) -> bool:
    text = ACCUMULATED.format(schedule=schedule, step=step, behind=behind)
    (folder / "train.py").write_text(text, encoding="utf-8")
    found = lint([str(folder)], select=["scheduler-length-miscounted"]).findings
    return any(EACH_BATCH in one.message for one in found)


@pytest.mark.parametrize("schedule", COUNTED)
@pytest.mark.parametrize("step", ["optimizer.step()", "scaler.step(optimizer)"])
def test_a_schedule_of_steps_that_moves_at_each_batch_is_told(
    tmp_path: Path, schedule: str, step: str
) -> None:
    assert counted_by_accumulation(tmp_path, COUNTED[schedule], step, BEHIND)


SOUND = {
    "with the optimizer": (COUNTED["cosine"], "optimizer.step(); scheduler.step()", ""),
    "counts batches": (
        "scheduler = get_scheduler('linear', optimizer, 0, 3 * len(loader))",
        "optimizer.step()",
        BEHIND,
    ),
    "own condition": (
        COUNTED["cosine"],
        "optimizer.step()",
        "        if (i + 1) % ACCUM == 0:\n            scheduler.step()",
    ),
    "prepared": (
        COUNTED["cosine"] + "\noptimizer, scheduler = accelerator.prepare(optimizer, scheduler)",
        "optimizer.step()",
        BEHIND,
    ),
    "another number": (
        "scheduler = get_scheduler('linear', optimizer, 0, 3 * len(loader) // 8)",
        "optimizer.step()",
        BEHIND,
    ),
}


@pytest.mark.parametrize("way", SOUND)
def test_a_schedule_at_its_own_pace_is_fine(tmp_path: Path, way: str) -> None:
    assert not counted_by_accumulation(tmp_path, *SOUND[way])


ONE_EPOCH = """
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup, get_scheduler
EPOCHS = {epochs}
model = AutoModelForCausalLM.from_pretrained("some/model")
loader = DataLoader(rows, batch_size=8)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
{before}
for epoch in range(EPOCHS):
    {inside}
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        plan.step()
        optimizer.zero_grad()
"""
BY_NAME = 'plan = get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps={})'


def findings_of(tmp_path: Path, code: str, **files: str) -> list[str]:
    """The messages of a rule on these files."""
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    report = lint([str(tmp_path / f"{name}.py") for name in files])
    return [finding.message for finding in report.findings if finding.code == code]


@pytest.mark.parametrize(
    ("before", "epochs", "fires"),
    [
        (BY_NAME.format("len(loader)"), 3, True),
        ("n = len(loader)\nplan = get_linear_schedule_with_warmup(optimizer, 10, n)", 4, True),
        (BY_NAME.format("EPOCHS * len(loader)"), 3, False),
        (BY_NAME.format("len(loader)"), 1, False),
        (BY_NAME.format("len(loader) * args.epochs"), 3, False),
        ("plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(loader))", 3, False),
    ],
)  # fmt: skip
def test_a_schedule_of_one_epoch_ends_before_the_others(
    tmp_path: Path, before: str, epochs: int, fires: bool
) -> None:
    text = ONE_EPOCH.format(before=before, inside="pass", epochs=epochs)
    assert (
        any("of one epoch" in one for one in findings_of(tmp_path, "SRC021", train=text)) is fires
    )


def test_a_schedule_that_each_epoch_makes_anew_is_left_alone(tmp_path: Path) -> None:
    text = ONE_EPOCH.format(before="pass", inside=BY_NAME.format("len(loader)"), epochs=3)
    assert findings_of(tmp_path, "SRC021", train=text) == []


HELPER = """
import torch
from transformers import get_cosine_schedule_with_warmup, get_scheduler
def build(model, total):
    opt = torch.optim.AdamW(model.parameters(), lr=2e-5)
    return opt, {schedule}
"""
CALLER = """
from transformers import AutoModelForCausalLM
from helper import build
model = AutoModelForCausalLM.from_pretrained("some/model")
optimizer, plan = build(model, 1000)
for batch in batches:
    loss = model(**batch).loss
    loss.backward()
    {step}
    optimizer.zero_grad()
{after}
"""
WARMED = "get_cosine_schedule_with_warmup(opt, num_warmup_steps=int(0.03 * total), num_training_steps=total)"


@pytest.mark.parametrize(
    ("schedule", "step", "after", "fires"),
    [
        (WARMED, "optimizer.step()", "", True),
        ('get_scheduler("linear", opt, 100, total)', "scaler.step(optimizer); scaler.update()", "", True),
        ("torch.optim.lr_scheduler.OneCycleLR(opt, 2e-5, total)", "optimizer.step()", "", True),
        (WARMED, "optimizer.step(); plan.step()", "", False),
        (WARMED, "for one in (optimizer, plan):\n        one.step()", "", False),
        (WARMED, "optimizer.step()", "def on_batch(self):\n    self.plan.step()", False),
        # A schedule without a warm-up begins at its peak.
        ('get_scheduler("linear", opt, 0, total)', "optimizer.step()", "", False),
        (WARMED, "optimizer.param_groups[0]['lr'] = rate(); optimizer.step()", "", False),
        # A function of another file may step it; Accelerate's `prepare` does not.
        (WARMED, "advance(optimizer, plan); optimizer.step()", "", False),
        (WARMED, "optimizer.step()", "optimizer, plan = accelerator.prepare(optimizer, plan)", True),
        (WARMED, "optimizer.step()", "Trainer(model, optimizers=(optimizer, plan)).train()", False),
    ],
)  # fmt: skip
def test_a_schedule_that_is_never_stepped_stays_at_its_first_rate(
    tmp_path: Path, schedule: str, step: str, after: str, fires: bool
) -> None:
    helper = HELPER.format(schedule=schedule)
    train = CALLER.format(step=step, after=after)
    found = findings_of(tmp_path, "SRC390", helper=helper, train=train)
    assert bool(found) is fires


GROUPED = """
import itertools
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup, get_scheduler
ACCUM, MICRO = 4, 2
model = AutoModelForCausalLM.from_pretrained("some/model")
loader = DataLoader(rows, batch_size=8)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
def groups(batches, count):
    held = []
    for batch in batches:
        held.append(batch)
        if len(held) == count:
            yield held
            held = []
{loop}
"""
COSINE = "scheduler = get_cosine_schedule_with_warmup(optimizer, 0, {})\n"
BACKWARD = "(model(**batch).loss / ACCUM).backward()\n"
UPDATE = "        optimizer.step()\n        optimizer.zero_grad()\n"
IN_A_GROUP = (
    "for epoch in range(3):\n    for group in groups(loader, ACCUM):\n        for batch in group:\n"
    "            " + BACKWARD + "            scheduler.step()\n" + UPDATE
)
AT_EACH_MICRO_BATCH = {
    "groups of batches": COSINE.format("len(loader) // ACCUM * 3") + IN_A_GROUP,
    "batched": COSINE.format("3 * len(loader) // 4")
    + IN_A_GROUP.replace("groups(loader, ACCUM)", "itertools.batched(loader, 4)"),
    "a number of updates": (
        "updates = 500\n" + COSINE.format("updates") + "stream = iter(loader)\n"
        "for epoch in range(1):\n    for update in range(updates):\n        for _ in range(ACCUM):\n"
        "            batch = next(stream)\n            "
        + BACKWARD
        + "            scheduler.step()\n"
        "        scaler.step(optimizer)\n"
    ),
    "while": (
        COSINE.format("args.max_steps")
        + "done, stream = 0, iter(loader)\nwhile done < args.max_steps:\n"
        "    for batch in itertools.islice(stream, ACCUM):\n        "
        + BACKWARD
        + "        scheduler.step()\n"
        "    optimizer.step()\n    done += 1\n"
    ),
    "a counter": (
        COSINE.format("args.updates")
        + "done = 0\n"
        + IN_A_GROUP
        + "        done += 1\n        if done >= args.updates:\n            break\n"
    ),
    "rows": (
        COSINE.format("len(rows) // (MICRO * ACCUM)")
        + "stream = iter(loader)\nfor n in range(9):\n"
        "    for _ in range(ACCUM):\n        batch = next(stream)\n        "
        + BACKWARD
        + "        scheduler.step()\n"
        "    optimizer.step()\n"
    ),
    "functions": (
        "def micro_step(batch):\n    " + BACKWARD + "    scheduler.step()\n"
        "def update(group):\n    for batch in group:\n        micro_step(batch)\n    optimizer.step()\n"
        + COSINE.format("len(loader) // ACCUM")
        + "for group in groups(loader, ACCUM):\n    update(group)\n"
    ),
    "a name for the condition": (
        COSINE.format("3 * len(loader) // ACCUM")
        + "for epoch in range(3):\n    for i, batch in enumerate(loader):\n"
        "        " + BACKWARD + "        is_update = (i + 1) % ACCUM == 0\n        if is_update:\n"
        "            optimizer.step()\n        scheduler.step()\n"
    ),
    "the next batch instead": (
        COSINE.format("3 * len(loader) // ACCUM")
        + "for epoch in range(3):\n    for i, batch in enumerate(loader):\n"
        "        " + BACKWARD + "        scheduler.step()\n        if (i + 1) % ACCUM != 0:\n"
        "            continue\n        optimizer.step()\n"
    ),
}
AS_OFTEN_AS_COUNTED = {
    "behind the optimizer": COSINE.format("len(loader) // ACCUM * 3")
    + IN_A_GROUP.replace("            scheduler.step()\n", "")
    + "        scheduler.step()\n",
    "counts micro-batches": COSINE.format("len(loader) * 3") + IN_A_GROUP,
    "counts updates times micro-batches": (
        "updates = 500\n" + COSINE.format("updates * ACCUM") + "stream = iter(loader)\n"
        "for update in range(updates):\n    for _ in range(ACCUM):\n        batch = next(stream)\n"
        "        " + BACKWARD + "        scheduler.step()\n    optimizer.step()\n"
    ),
    "rows by the size of a micro-batch": (
        COSINE.format("len(rows) // MICRO")
        + "for n in range(9):\n    for start in range(0, 8, MICRO):\n"
        "        batch = rows[start : start + MICRO]\n        "
        + BACKWARD
        + "        scheduler.step()\n"
        "    optimizer.step()\n"
    ),
    "at the last micro-batch": COSINE.format("len(loader) // ACCUM * 3")
    + IN_A_GROUP.replace(
        "            scheduler.step()\n",
        "            if batch is group[-1]:\n                scheduler.step()\n",
    ),
    "both in the inner loop": COSINE.format("len(loader) * 3")
    + IN_A_GROUP.replace(
        "            scheduler.step()\n", "            scheduler.step()\n    " + UPDATE
    ),
}


@pytest.mark.parametrize("name", AT_EACH_MICRO_BATCH)
def test_a_schedule_of_updates_that_moves_at_each_micro_batch_is_told(
    tmp_path: Path, name: str
) -> None:
    (message,) = said(GROUPED.format(loop=AT_EACH_MICRO_BATCH[name]), tmp_path)
    assert "counts optimizer steps" in message


@pytest.mark.parametrize("name", AS_OFTEN_AS_COUNTED)
def test_a_schedule_that_moves_as_often_as_it_counts_is_fine(tmp_path: Path, name: str) -> None:
    assert said(GROUPED.format(loop=AS_OFTEN_AS_COUNTED[name]), tmp_path) == []


ENGINE = """
class Engine:
    def __init__(self):
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
        self.scheduler = get_cosine_schedule_with_warmup(self.optimizer, 9, 3 * (len(loader) // ACCUM))
    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
    def run(self):
        for epoch in range(3):
            for i, batch in enumerate(loader, start=1):
                (model(**batch).loss / ACCUM).backward()
                if i % ACCUM == 0:
                    self.update()
                    {inside}
                {outside}
Engine().run()
"""


def test_a_condition_around_the_call_of_a_helper_is_that_of_its_step(tmp_path: Path) -> None:
    step = "self.scheduler.step()"
    faulty = GROUPED.format(loop=ENGINE.format(inside="pass", outside=step))
    assert len(said(faulty, tmp_path)) == 1
    assert said(GROUPED.format(loop=ENGINE.format(inside=step, outside="pass")), tmp_path) == []
