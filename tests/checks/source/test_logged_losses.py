"""Training losses that are logged after they were divided by the accumulation steps, and those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

LOOP = """import torch, wandb
from transformers import AutoModelForCausalLM
from data import loader
model = AutoModelForCausalLM.from_pretrained("m")
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
accum = cfg["accum"]
running = 0.0
for i, batch in enumerate(loader):
    out = model(**batch)
    DIVIDE
    BACKWARD
    if (i + 1) % accum == 0:
        opt.step()
        opt.zero_grad()
        LOG
"""
MICRO = """import torch
from model import GPT
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
def train(steps, micro_steps, get_batch):
    for step in range(steps):
        for _ in range(micro_steps):
            x, y = get_batch()
            _, loss = model(x, y)
            loss = loss / micro_steps
            loss.backward()
        opt.step()
        opt.zero_grad()
        print(f"step {step}: loss LOGGED")
"""


def count(text: str, folder: Path) -> int:
    (folder / "train.py").write_text(text, encoding="utf-8")
    return len(lint([folder / "train.py"], select=["SRC406"], allow_unjudged=True).findings)


def loop(divide: str, log: str, backward: str = "loss.backward()") -> str:
    return LOOP.replace("DIVIDE", divide).replace("LOG", log).replace("BACKWARD", backward)


@pytest.mark.parametrize(
    ("divide", "log", "found"),
    [
        ("loss = out.loss / accum", "wandb.log({'loss': loss.item()})", 1),
        ("loss = out.loss\n    loss /= accum", "print(i, round(float(loss), 4))", 1),
        # the mean of two losses, and every second batch is shown
        ("loss = (out.loss + other(batch)) / 2\n    if i % 2 == 0:\n        print(loss.item())", "pass", 0),
        ("loss = out.loss\n    loss = loss / accum", "print('%.4f' % loss.item())", 1),
        ("loss = out.loss / accum", "value = loss.detach().item()\n        bar.set_postfix(loss=value)", 1),
        ("loss = out.loss\n    if accum > 1:\n        loss = loss / accum", "log.info(f'{loss.item():.3f}')", 1),
        ("loss = out.loss / accum", "wandb.log({'loss': loss.item() * accum})", 0),
        ("loss = out.loss / accum", "value = loss.item() * accum\n        print(value)", 0),
        ("loss = out.loss / accum", "wandb.log({'loss': out.loss.item()})", 0),
        ("loss = out.loss / accum\n    running += loss.item()", "print(running)\n        running = 0.0", 0),
        ("loss = out.loss / accum", "print(loss.shape, loss.device)", 0),
        ("loss = out.loss / batch['tokens']", "print(loss.item())", 0),
        ("loss = out.loss", "print(loss.item())", 0),
    ],
)  # fmt: skip
def test_losses_divided_by_the_accumulation(
    divide: str, log: str, found: int, tmp_path: Path
) -> None:
    assert count(loop(divide, log), tmp_path) == found


def test_a_scaler_and_accelerate_make_the_backward_pass(tmp_path: Path) -> None:
    divide, log = "loss = out.loss / accum", "print(loss.item())"
    assert count(loop(divide, log, "scaler.scale(loss).backward()"), tmp_path) == 1
    assert count(loop(divide, log, "accelerator.backward(loss)"), tmp_path) == 1
    assert count(loop(divide, log, "out.loss.backward()"), tmp_path) == 0


@pytest.mark.parametrize(
    ("logged", "found"), [("{loss.item()}", 1), ("{loss.item() * micro_steps}", 0)]
)
def test_micro_batches_in_a_loop_of_their_own(logged: str, found: int, tmp_path: Path) -> None:
    assert count(MICRO.replace("LOGGED", logged), tmp_path) == found
