"""Loops that accumulate gradients and lose them (SRC087): cleared at every batch, or a counter that stands still."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from truetune.checks.lint import lint

IMPORTS = "import torch\nfrom torch.amp import GradScaler\nfrom transformers import AutoModelForCausalLM\n"
MAKE = (
    "model = AutoModelForCausalLM.from_pretrained('m').cuda()\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)\n"
)
EACH = "for i, batch in enumerate(loader):\n"
CLEAR, BACK, STEP = (
    "optimizer.zero_grad()\n",
    "(model(**batch).loss / 8).backward()\n",
    "optimizer.step()\n",
)
EIGHTH, COUNTED = "if (i + 1) % 8 == 0:\n", "if n % 8 == 0:\n"


def block(head: str, *lines: str) -> str:
    """A statement with its indented body."""
    return head + indent("".join(lines), "    ")


CLASS = """
class Tuner:
    def __init__(self, model):
        self.model = model
        self.opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
        self.done = 0

    def step(self, batch):
        self.model(**batch).loss.backward()
        {before}
        if self.done and self.done % 4 == 0:
            self.opt.step()
            self.opt.zero_grad()
            {inside}
"""
HELPER = """
def apply(optimizer, scaler):
    scaler.unscale_(optimizer)
    {step}
    scaler.update()
    optimizer.zero_grad()

scaler = GradScaler()
for batch in loader:
    scaler.scale(model(**batch).loss).backward()
    apply(optimizer, scaler)
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (MAKE + block(EACH, CLEAR, BACK, block(EIGHTH, STEP)), True),
        (MAKE + block(EACH, BACK, block(EIGHTH, STEP), CLEAR), True),
        (MAKE + block(EACH, block("with autocast():\n", BACK, CLEAR), block(EIGHTH, STEP)), True),
        (MAKE + "n = 0\n" + block(EACH, BACK, block(COUNTED, STEP, CLEAR, "n += 1\n")), True),
        (CLASS.format(before="pass", inside="self.done += 1"), True),
        (MAKE + HELPER.format(step="pass"), True),
        (MAKE + block(EACH, BACK, block(EIGHTH, STEP, CLEAR)), False),
        (MAKE + block(EACH, block("if i % 8 == 0:\n", CLEAR), BACK, block(EIGHTH, STEP)), False),
        (MAKE + block(EACH, CLEAR, BACK, STEP, block(EIGHTH, "print(i)\n")), False),
        (
            MAKE + block(EACH, CLEAR, block("for part in batch:\n", BACK), block(EIGHTH, STEP)),
            False,
        ),
        (MAKE + "n = 0\n" + block(EACH, BACK, "n += 1\n", block(COUNTED, STEP, CLEAR)), False),
        (
            MAKE
            + "n = 0\n"
            + block(EACH, BACK, block("if n % 1 == 0:\n", STEP, CLEAR, "n += 1\n")),
            False,
        ),
        (CLASS.format(before="self.done += 1", inside="pass"), False),
        (MAKE + HELPER.format(step="scaler.step(optimizer)"), False),
    ],
)
def test_gradients_between_two_steps(text: str, found: bool, tmp_path: Path) -> None:
    """A step has to see the gradients of every batch since the one before, and has to come again."""
    path = tmp_path / "train.py"
    path.write_text(IMPORTS + text, encoding="utf-8")
    assert bool(lint([path], select=("SRC087",)).findings) == found
