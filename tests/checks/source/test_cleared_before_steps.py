"""`zero_grad()` between the backward pass and the step, in the ways in which loops are written."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from torch.nn.utils import clip_grad_norm_
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0)
"""
FIRING = {
    "plain": "for b in batches:\n    model(**b).loss.backward()\n    optimizer.zero_grad()\n    optimizer.step()",
    "accumulated": (
        "for i, b in enumerate(batches):\n    loss = model(**b).loss / 4\n    loss.backward()\n"
        "    if (i + 1) % 4 == 0:\n        clip_grad_norm_(model.parameters(), 1.0)\n"
        "        optimizer.zero_grad(set_to_none=True)\n        optimizer.step()\n        scheduler.step()"
    ),
    "scaler": (
        "scaler = torch.amp.GradScaler()\nfor b in batches:\n    with torch.autocast('cuda'):\n"
        "        loss = model(**b).loss\n    scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n"
        "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.zero_grad()\n"
        "    scaler.step(optimizer)\n    scaler.update()"
    ),
    "accelerator": (
        "from accelerate import Accelerator\naccelerator = Accelerator()\n"
        "model, optimizer, batches = accelerator.prepare(model, optimizer, batches)\n"
        "for b in batches:\n    with accelerator.accumulate(model):\n        accelerator.backward(model(**b).loss)\n"
        "        if accelerator.sync_gradients:\n            accelerator.clip_grad_norm_(model.parameters(), 1.0)\n"
        "        optimizer.zero_grad()\n        optimizer.step()"
    ),
    "helper": (
        "def update(opt):\n    clip_grad_norm_(model.parameters(), 1.0)\n    opt.zero_grad()\n    opt.step()\n"
        "for b in batches:\n    model(**b).loss.backward()\n    update(optimizer)"
    ),
    "clearing in a helper": (
        "def clear():\n    optimizer.zero_grad()\nfor b in batches:\n    model(**b).loss.backward()\n    clear()\n"
        "    optimizer.step()"
    ),
    "backward in a helper": (
        "def loss_of(b):\n    loss = model(**b).loss\n    loss.backward()\n    return loss.item()\n"
        "for b in batches:\n    total = loss_of(b)\n    optimizer.zero_grad()\n    optimizer.step()"
    ),
    "model": "for b in batches:\n    model(**b).loss.backward()\n    model.zero_grad()\n    optimizer.step()",
    "weight by weight": (
        "for b in batches:\n    model(**b).loss.backward()\n    for p in model.parameters():\n        p.grad = None\n"
        "    optimizer.step()"
    ),
    "micro batches": (
        "for group in batches:\n    for b in group:\n        (model(**b).loss / len(group)).backward()\n"
        "    optimizer.zero_grad()\n    optimizer.step()"
    ),
    "both branches": (
        "for b in batches:\n    model(**b).loss.backward()\n    if fast:\n"
        "        optimizer.zero_grad(True)\n    else:\n"
        "        optimizer.zero_grad()\n    optimizer.step()"
    ),
    "class": (
        "class Loop:\n    def __init__(self, model):\n        self.model = model\n"
        "        self.optimizer = torch.optim.AdamW(model.parameters())\n"
        "    def train_step(self, b):\n        loss = self.model(**b).loss\n        loss.backward()\n"
        "        self.optimizer.zero_grad()\n        self.optimizer.step()\n        return loss.item()"
    ),
}
LIGHTNING = """
import lightning as L
import torch
class Tune(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
    def training_step(self, batch, n):
        opt = self.optimizers()
        loss = self.model(**batch).loss
        self.manual_backward(loss)
        opt.zero_grad()
        opt.step()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-5)
"""
HOOK = """
import lightning as L
import torch
class Tune(L.LightningModule):
    def training_step(self, batch, n):
        return self.model(**batch).loss
    def on_before_optimizer_step(self, optimizer):
        optimizer.zero_grad()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-5)
"""
SOUND = {
    "behind": FIRING["accumulated"].replace(
        "        optimizer.zero_grad(set_to_none=True)\n        optimizer.step()\n",
        "        optimizer.step()\n        optimizer.zero_grad(set_to_none=True)\n",
    ),
    "before": "for b in batches:\n    optimizer.zero_grad()\n    model(**b).loss.backward()\n    optimizer.step()",
    "a bad batch is skipped": (
        "for b in batches:\n    loss = model(**b).loss\n    loss.backward()\n    if not torch.isfinite(loss):\n"
        "        optimizer.zero_grad()\n        continue\n    optimizer.step()\n    optimizer.zero_grad()"
    ),
    "a bad batch steps with nothing": (
        "for b in batches:\n    loss = model(**b).loss\n    loss.backward()\n    if not torch.isfinite(loss):\n"
        "        optimizer.zero_grad()\n    optimizer.step()\n    optimizer.zero_grad()"
    ),
    "two optimizers": (
        "other = torch.optim.SGD(head.parameters())\nfor b in batches:\n    model(**b).loss.backward()\n"
        "    optimizer.step()\n    optimizer.zero_grad()\n    other.step()\n    other.zero_grad()"
    ),
    "gradients are put back": (
        "for b in batches:\n    model(**b).loss.backward()\n    kept = [p.grad.clone() for p in model.parameters()]\n"
        "    optimizer.zero_grad()\n    for p, g in zip(model.parameters(), kept):\n        p.grad = g\n"
        "    optimizer.step()\n    optimizer.zero_grad()"
    ),
    "restored by a helper": (
        "for b in batches:\n    model(**b).loss.backward()\n    attack.backup_grad()\n    model.zero_grad()\n"
        "    attack.restore_grad()\n    optimizer.step()\n    model.zero_grad()"
    ),
    "a second pass": (
        "for b in batches:\n    model(**b).loss.backward()\n    optimizer.zero_grad()\n    model(**b).loss.backward()\n"
        "    optimizer.step()\n    optimizer.zero_grad()"
    ),
    "the rest behind the loop": (
        "for i, b in enumerate(batches):\n    model(**b).loss.backward()\n    if i % 4 == 3:\n"
        "        optimizer.step()\n"
        "        optimizer.zero_grad()\noptimizer.step()\noptimizer.zero_grad()"
    ),
    "closure": (
        "def closure():\n    optimizer.zero_grad()\n    loss = model(**b).loss\n    loss.backward()\n    return loss\n"
        "for b in batches:\n    optimizer.step(closure)"
    ),
    "helper": FIRING["helper"].replace(
        "    opt.zero_grad()\n    opt.step()\n", "    opt.step()\n    opt.zero_grad()\n"
    ),
    "one case": (
        "for b in batches:\n    model(**b).loss.backward()\n    match mode:\n        case 1:\n"
        "            optimizer.zero_grad()\n    optimizer.step()\n    optimizer.zero_grad()"
    ),
    "and": (
        "for b in batches:\n    model(**b).loss.backward()\n    skip and optimizer.zero_grad()\n"
        "    optimizer.step()\n    optimizer.zero_grad()"
    ),
    "if in a line": (
        "for b in batches:\n    model(**b).loss.backward()\n"
        "    optimizer.zero_grad() if skip else None\n    optimizer.step()\n    optimizer.zero_grad()"
    ),
    "some gradients are frozen": (
        "for b in batches:\n    model(**b).loss.backward()\n"
        "    model.lm_head.weight.grad = None\n    optimizer.step()\n"
        "    optimizer.zero_grad()"
    ),
    "schedule": (
        "for b in batches:\n    model(**b).loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
        "    scheduler.step()\n    progress.step()"
    ),
}


def messages(code: str) -> list[str]:
    findings = run_rule(parse_module(code, "train.py"), find_rule("gradients-never-used")).findings
    return [one.message for one in findings if "cleared gradients" in one.message]


@pytest.mark.parametrize("name", FIRING)
def test_gradients_that_are_cleared_before_the_step_are_found(name: str) -> None:
    assert len(messages(HEAD + FIRING[name])) == 1


@pytest.mark.parametrize("code", [LIGHTNING, HOOK], ids=["manual", "hook"])
def test_they_are_found_in_lightning(code: str) -> None:
    assert len(messages(code)) == 1


@pytest.mark.parametrize("name", SOUND)
def test_orders_that_train_are_left_alone(name: str) -> None:
    assert messages(HEAD + SOUND[name]) == []


def test_lightning_in_its_usual_order_is_left_alone() -> None:
    assert not messages(
        LIGHTNING.replace(
            "        opt.zero_grad()\n        opt.step()\n",
            "        opt.step()\n        opt.zero_grad()\n",
        )
    )


CLEARED_AT_EACH_MICRO_BATCH = {
    "inner loop": (
        "for group in groups:\n    for b in group:\n        optimizer.zero_grad()\n"
        "        (model(**b).loss / len(group)).backward()\n    optimizer.step()"
    ),
    "behind the forward pass": (
        "for group in groups:\n    for b in group:\n        loss = model(**b).loss\n"
        "        optimizer.zero_grad(set_to_none=True)\n        loss.backward()\n        total += loss.item()\n"
        "    clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()\n    scheduler.step()"
    ),
    "by the model, in a count": (
        "while done < 100:\n    for _ in range(8):\n        b = next(batches)\n        model.zero_grad()\n"
        "        scaler.scale(model(**b).loss).backward()\n    scaler.step(optimizer)\n    done += 1"
    ),
    "in a helper": (
        "def accumulate(b):\n    optimizer.zero_grad()\n    loss = model(**b).loss / 4\n    loss.backward()\n"
        "    return loss.item()\nfor group in groups:\n    total = 0\n    for b in group:\n"
        "        total += accumulate(b)\n    optimizer.step()"
    ),
    "weight by weight": (
        "for group in groups:\n    for b in group:\n        for p in model.parameters():\n            p.grad = None\n"
        "        model(**b).loss.backward()\n    optimizer.step()"
    ),
    "bad losses are skipped": (
        "for group in groups:\n    for b in group:\n        loss = model(**b).loss\n"
        "        if not torch.isfinite(loss):\n            continue\n        optimizer.zero_grad()\n"
        "        loss.backward()\n    optimizer.step()"
    ),
    "a class": (
        "class Loop:\n    def __init__(self, model):\n        self.model = model\n"
        "        self.opt = torch.optim.AdamW(model.parameters())\n"
        "    def update(self, micro):\n        for b in micro:\n            self.opt.zero_grad()\n"
        "            self.model(**b).loss.backward()\n        self.opt.step()"
    ),
    "a name for the condition": (
        "for i, b in enumerate(batches):\n    optimizer.zero_grad()\n    model(**b).loss.backward()\n"
        "    is_update = (i + 1) % 8 == 0\n    if is_update:\n        optimizer.step()"
    ),
    "the next batch instead": (
        "for i, b in enumerate(batches):\n    optimizer.zero_grad()\n    model(**b).loss.backward()\n"
        "    if (i + 1) % 8 != 0:\n        continue\n    optimizer.step()"
    ),
    "a counter": (
        "pending = 0\nfor b in batches:\n    optimizer.zero_grad()\n    model(**b).loss.backward()\n    pending += 1\n"
        "    if pending == 8:\n        optimizer.step()\n        pending = 0"
    ),
}
GRADIENTS_OF_ALL_MICRO_BATCHES = {
    "before the loop": (
        "for group in groups:\n    optimizer.zero_grad()\n    for b in group:\n"
        "        (model(**b).loss / len(group)).backward()\n    optimizer.step()"
    ),
    "behind the step": (
        "for group in groups:\n    for b in group:\n        (model(**b).loss / len(group)).backward()\n"
        "    optimizer.step()\n    optimizer.zero_grad()"
    ),
    "at the first one": (
        "for group in groups:\n    for i, b in enumerate(group):\n        if i == 0:\n"
        "            optimizer.zero_grad()\n        model(**b).loss.backward()\n    optimizer.step()"
    ),
    "losses are added": (
        "for group in groups:\n    loss = 0\n    for b in group:\n        optimizer.zero_grad()\n"
        "        loss = loss + model(**b).loss\n    loss.backward()\n    optimizer.step()"
    ),
    "steps in the inner loop": (
        "for epoch in range(3):\n    for b in batches:\n        optimizer.zero_grad()\n"
        "        model(**b).loss.backward()\n        optimizer.step()\n    print(epoch)"
    ),
    "gradients of each row are kept": (
        "for group in groups:\n    for b in group:\n        optimizer.zero_grad()\n        model(**b).loss.backward()\n"
        "        for n, p in model.named_parameters():\n            summed[n] += clip(p.grad)\n"
        "    put_grads(model, summed)\n    optimizer.step()"
    ),
    "gradients are collected by another": (
        "from mine import Collector\ncollector = Collector()\nfor group in groups:\n    for b in group:\n"
        "        optimizer.zero_grad()\n        model(**b).loss.backward()\n        collector.add(model)\n"
        "    collector.write(model)\n    optimizer.step()"
    ),
    "trials before the training": (
        "for b in probes:\n    optimizer.zero_grad()\n    model(**b).loss.backward()\n"
        "for b in batches:\n    optimizer.zero_grad()\n    model(**b).loss.backward()\n    optimizer.step()"
    ),
    "accelerate clears where it steps": (
        "from accelerate import Accelerator\naccelerator = Accelerator(gradient_accumulation_steps=4)\n"
        "model, optimizer, batches = accelerator.prepare(model, optimizer, batches)\n"
        "for b in batches:\n    with accelerator.accumulate(model):\n        optimizer.zero_grad()\n"
        "        accelerator.backward(model(**b).loss)\n        optimizer.step()"
    ),
    "the next batch before the update": (
        "for i, b in enumerate(batches, 1):\n    (model(**b).loss / 8).backward()\n    if i % 8:\n        continue\n"
        "    optimizer.step()\n    optimizer.zero_grad(set_to_none=True)"
    ),
    "a counter begins again": (
        "held = 0\nfor b in batches:\n    (model(**b).loss / 8).backward()\n    held += 1\n    if held == 8:\n"
        "        optimizer.step()\n        optimizer.zero_grad()\n        held = 0"
    ),
    "a step that is not taken at bad losses": (
        "for b in batches:\n    optimizer.zero_grad()\n    loss = model(**b).loss\n    loss.backward()\n"
        "    is_sound = torch.isfinite(loss)\n    if is_sound:\n        optimizer.step()"
    ),
    "two networks": (
        "critic_optimizer = torch.optim.AdamW(critic.parameters())\nfor group in groups:\n    for b in group:\n"
        "        critic_optimizer.zero_grad()\n        critic(**b).loss.backward()\n"
        "        critic_optimizer.step()\n"
        "    optimizer.zero_grad()\n    model(**b).loss.backward()\n    optimizer.step()"
    ),
}


def messages_on_micro_batches(code: str) -> list[str]:
    findings = run_rule(parse_module(code, "train.py"), find_rule("gradients-never-used")).findings
    return [one.message for one in findings if "the others are cleared unused" in one.message]


@pytest.mark.parametrize("name", CLEARED_AT_EACH_MICRO_BATCH)
def test_gradients_that_are_cleared_at_each_micro_batch_are_found(name: str) -> None:
    assert len(messages_on_micro_batches(HEAD + CLEARED_AT_EACH_MICRO_BATCH[name])) == 1


@pytest.mark.parametrize(
    "code",
    [*GRADIENTS_OF_ALL_MICRO_BATCHES.values(), *SOUND.values()],
    ids=[*GRADIENTS_OF_ALL_MICRO_BATCHES, *SOUND],
)
def test_loops_that_use_all_gradients_are_left_alone(code: str) -> None:
    assert messages_on_micro_batches(HEAD + code) == []
