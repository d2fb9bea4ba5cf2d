"""Loops that count micro-batches beside an engine that counts them, and loops that leave it to one of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.findings import Finding
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import read_module

ENGINE = """
import argparse, json
import deepspeed
{setup}
engine, optimizer, _, scheduler = deepspeed.initialize(model=model, config={config})
for i, batch in enumerate(loader):
{body}
"""
EIGHT = {"config": '{"gradient_accumulation_steps": 8}'}
STEP = "    engine.backward(engine(**batch).loss)\n    if (i + 1) % 8 == 0:\n        engine.step()"
ALWAYS = "    engine.backward(engine(**batch).loss)\n    engine.step()"
ACCELERATE = """
from accelerate import Accelerator
from torch.optim import AdamW
accelerator = Accelerator(gradient_accumulation_steps={count})
optimizer = AdamW(model.parameters())
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for i, batch in enumerate(loader{start}):
    with accelerator.accumulate(model):
        loss = model(**batch).loss{divided}
        accelerator.backward(loss)
        if {test}:
            optimizer.step()
            optimizer.zero_grad()
"""
LIGHTNING = """
import lightning as L
class M(L.LightningModule):
    def training_step(self, batch, i):
        loss = self.model(**batch).loss
        return loss{divided}
trainer = L.Trainer(accumulate_grad_batches={count})
trainer.fit(M(), loader)
"""


def engine(setup: str = "", config: str = EIGHT["config"], body: str = STEP) -> str:
    return ENGINE.format(setup=setup, config=config, body=body)


def accelerate(count: str = "8", start: str = "", divided: str = "", test: str = "True") -> str:
    return ACCELERATE.format(count=count, start=start, divided=divided, test=test)


TWICE = {
    "step": (engine(), "8 x 8 = 64"),
    "own constant": (engine("N = 4", body=STEP.replace("8", "N")), "8 x 4 = 32"),
    "not": (engine(body=STEP.replace("(i + 1) % 8 == 0", "not (i + 1) % 8")), "engine.step()"),
    "or the last": (engine(body=STEP.replace(" == 0", " == 0 or i == last")), "engine.step()"),
    "n - 1": (engine(body=STEP.replace("(i + 1) % 8 == 0", "i % 8 == 7")), "engine.step()"),
    "continue": (
        engine(
            body="    engine.backward(engine(**batch).loss)\n    if (i + 1) % 8 != 0:\n"
            "        continue\n    engine.step()"
        ),
        "engine.step()",
    ),
    "a file": (engine(config='"ds.json"'), "8 x 8"),
    "a file that is loaded": (engine("c = json.load(open('ds.json'))", "c"), "8 x 8"),
    "unknown, by one name": (
        engine(
            "args = argparse.Namespace(**x)",
            '{"gradient_accumulation_steps": args.n}',
            STEP.replace("8", "args.n"),
        ),
        "args.n",
    ),
    "set afterwards": (engine("c = dict()\nc['gradient_accumulation_steps'] = 8", "c"), "8 x 8"),
    "the setting under a name of the loop": (
        engine(
            "c = json.load(open('ds.json'))\nn = c['gradient_accumulation_steps']",
            "c",
            STEP.replace("8", "n"),
        ),
        "8 x 8",
    ),
    "the setting of a file that the command names": (
        engine(
            "c = json.load(open(args.config))\nn = c['gradient_accumulation_steps']",
            "c",
            STEP.replace("8", "n"),
        ),
        "8 x 8",
    ),
    "named by the command": (engine("", "None").replace(", config=None", ", args=args"), "8 x 8"),
    "loss": (
        engine(body="    engine.backward(engine(**batch).loss / 8)\n    engine.step()"),
        "8 times too small",
    ),
    "loss, by the setting under another name": (
        engine(
            "c = json.load(open('ds.json'))\nn = c['gradient_accumulation_steps']",
            "c",
            "    loss = engine(**batch).loss\n    loss = loss / n\n    engine.backward(loss)\n"
            "    engine.step()",
        ),
        "8 times too small",
    ),
    "loss, by what the engine says": (
        engine(
            body="    loss = engine(**batch).loss\n"
            "    engine.backward(loss / engine.gradient_accumulation_steps())\n    engine.step()",
        ),
        "8 times too small",
    ),
    "loss, by get": (
        engine(
            "c = json.load(open('ds.json'))",
            "c",
            "    loss = engine(**batch).loss / c.get('gradient_accumulation_steps', 1)\n"
            "    engine.backward(loss)\n    engine.step()",
        ),
        "8 times too small",
    ),
    "accelerate's loss": (accelerate(divided=" / 8"), "8 times too small"),
    "accelerate's attribute": (
        accelerate("args.n", divided=" / accelerator.gradient_accumulation_steps"),
        "too small",
    ),
    "accelerate never steps": (accelerate(test="i % 8 == 0"), "never change"),
    "lightning": (LIGHTNING.format(divided=" / 4", count="4"), "4 times too small"),
}
ONCE = {
    "each batch": engine(body=ALWAYS),
    "the engine counts one": engine(config='{"gradient_accumulation_steps": 1}'),
    "the engine is not told": engine(config='{"train_micro_batch_size_per_gpu": 2}'),
    "unknown": engine(config='{"gradient_accumulation_steps": args.n}'),
    "the loop counts one": engine("N = 1", body=STEP.replace("8", "N")),
    "printing by the setting": engine(
        "c = json.load(open('ds.json'))\nn = c['gradient_accumulation_steps']",
        "c",
        ALWAYS + "\n    if (i + 1) % n == 0:\n        print(i)",
    ),
    "printing": engine(body=ALWAYS + "\n    if i % 8 == 0:\n        print(i)"),
    "saving": engine(body=ALWAYS + "\n    if i % 100 == 0:\n        engine.save_checkpoint('o')"),
    "in turn": engine(
        body="    if i % 5 == 0:\n        engine.backward(engine(**batch).loss)\n        engine.step()"
    ),
    "a mean over rows": engine(
        body="    engine.backward(loss_sum / mask.sum())\n    engine.step()"
    ),
    "another setting of the file": engine(
        "c = json.load(open('ds.json'))",
        "c",
        "    engine.backward(engine(**batch).loss / c['rows'])\n    engine.step()",
    ),
    "accelerate": accelerate(),
    "accelerate in step": accelerate(test="(i + 1) % 8 == 0"),
    "accelerate at the last of each": accelerate(test="i % 8 == 7"),
    "accelerate at n - 1": accelerate("args.n", test="i % args.n == args.n - 1"),
    "accelerate at times that meet": accelerate("4", test="i % 3 == 0"),
    "accelerate from 1": accelerate(start=", 1", test="i % 8 == 0"),
    "accelerate of one": accelerate("1", divided=" / 8"),
    "plain": "from torch.optim import AdamW\no = AdamW(p)\nfor i, b in enumerate(loader):\n"
    "    (model(b).loss / 8).backward()\n    if (i + 1) % 8 == 0:\n        o.step()",
    "lightning": LIGHTNING.format(divided="", count="4"),
    "lightning by hand": LIGHTNING.format(divided=" / 4", count="1"),
}


def found(code: str, folder: Path) -> list[Finding]:
    (folder / "ds.json").write_text(
        '{"gradient_accumulation_steps": 8,\n "zero_optimization": {"stage": 2}}', encoding="utf-8"
    )
    script = folder / "train.py"
    script.write_text(code, encoding="utf-8")
    return list(run_rule(read_module(script), find_rule("gradients-accumulated-twice")).findings)


@pytest.mark.parametrize(("code", "told"), TWICE.values(), ids=TWICE)
def test_counted_twice(code: str, told: str, tmp_path: Path) -> None:
    (finding,) = found(code, tmp_path)
    assert told in finding.message
    assert len(finding.cases) == 2


@pytest.mark.parametrize("code", ONCE.values(), ids=ONCE)
def test_counted_once(code: str, tmp_path: Path) -> None:
    assert found(code, tmp_path) == []


def test_setting_read_by_the_loop_of_a_file_elsewhere(tmp_path: Path) -> None:
    setup = "c = json.load(open(args.config))\nn = c['gradient_accumulation_steps']"
    code = engine(setup, "c", STEP.replace("8", "n"))
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "train.py"
    script.write_text(code, encoding="utf-8")
    report = run_rule(read_module(script), find_rule("gradients-accumulated-twice"))
    (finding,) = report.findings
    assert "c['gradient_accumulation_steps']" in finding.message
