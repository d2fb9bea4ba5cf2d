"""`truetune run` says in one line which function computes the loss, in each form of its report."""

from __future__ import annotations

import json
from pathlib import Path

from tests.auditing.running import plain, run_training
from tests.preloaded import libraries_python

SCRIPT = """
import torch
from transformers import DataCollatorForSeq2Seq, Trainer
from tests.auditing import tiny

class Focal:
    def __init__(self):
        self.calls = 0
    def __call__(self, outputs, labels, num_items_in_batch=None):
        self.calls += 1
        logits, targets = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        return torch.nn.functional.cross_entropy(logits, targets) * self.calls

loss, tokenizer = Focal(), tiny.tokenizer()
trainer = Trainer(
    tiny.model(), tiny.arguments(), DataCollatorForSeq2Seq(tokenizer), tiny.encoded(tiny.chats()),
    processing_class=tokenizer, compute_loss_func=loss,
)
trainer.train()
print(loss.calls, [line["loss"] for line in trainer.state.log_history if "loss" in line])
print(trainer.compute_loss_func is loss, "compute_loss" in vars(trainer), hasattr(trainer.model, "_loss_function"))
"""
OVERRIDING = """
from tests.auditing import tiny

def mine(outputs, labels, num_items_in_batch=None):
    return outputs.loss

trainer = tiny.dpo()
trainer.compute_loss_func = mine
trainer.train()
"""
BROKEN = """
from transformers import DataCollatorForSeq2Seq, Trainer
from tests.auditing import tiny

class Late(Trainer):
    ready = False
    def training_step(self, *args, **kwargs):
        if not self.state.max_steps or not self.ready:
            self.ready = True
            raise RuntimeError("not yet")
        return super().training_step(*args, **kwargs)

tokenizer = tiny.tokenizer()
trainer = Late(
    tiny.model(), tiny.arguments(), DataCollatorForSeq2Seq(tokenizer), tiny.encoded(tiny.chats()),
    processing_class=tokenizer,
)
try:
    trainer.train()
except RuntimeError as error:
    print("caught", error)
"""
OF_LOOP = "tests.auditing.own_loops"


def test_terminal_and_page_say_it_and_the_run_is_as_without(tmp_path: Path) -> None:
    script, page = tmp_path / "train.py", tmp_path / "report.html"
    script.write_text(SCRIPT)
    shown = run_training(str(script), options=["--on-error", "warn", "--html", str(page)])
    line = f"the loss is computed by Focal ({script}:9)"
    assert line in " ".join(shown.stderr.split())
    assert line in page.read_text(encoding="utf-8")
    assert (
        shown.stdout.splitlines()[-2:]
        == plain(str(script), python=libraries_python()).stdout.splitlines()[-2:]
    )


def test_json_says_it_without_laws_too(tmp_path: Path) -> None:
    script, file = tmp_path / "train.py", tmp_path / "report.json"
    script.write_text(SCRIPT)
    options = ["--on-error", "warn", "--laws", "none", "-o", str(file)]
    assert run_training(str(script), options=options).returncode == 0
    assert json.loads(file.read_text())["audit"]["loss"] == {
        "name": "Focal",
        "file": str(script),
        "line": 9,
        "calls": [],
        "not_called": [],
        "reason": "",
        "summary": f"the loss is computed by Focal ({script}:9)",
    }


def test_a_function_that_a_trainer_has_no_use_for(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(OVERRIDING)
    shown = run_training(str(script), options=["--on-error", "warn"])
    assert (
        "the loss is computed by TRL DPO loss_type=sigmoid; not called: compute_loss_func mine"
        in " ".join(shown.stderr.split())
    )


def test_a_look_that_fails_is_not_seen_in_the_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(BROKEN)
    shown = run_training(str(script), options=["--on-error", "warn"])
    assert shown.stdout == plain(str(script), python=libraries_python()).stdout
    said = " ".join(shown.stderr.split())
    assert "the loss is not known: the loss of a batch could not be computed (RuntimeError)" in said


def test_of_a_loop_of_its_own_it_is_not_known() -> None:
    shown = run_training("-m", OF_LOOP, "of_the_model")
    assert "the loss is not known: a loop of its own computes it" in shown.stderr
