"""Adapters of rank 1 on one projection, in the settings of several stacks, and what is near them."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

SCRIPT = """
from dataclasses import dataclass, field
from peft import LoraConfig
from trl import {kind}Config, {kind}Trainer
@dataclass
class Hyper:
    r: int = {r}
    on: list[str] = field(default_factory=lambda: {targets})
h = Hyper()
lora = LoraConfig(r=h.r, lora_alpha=2, target_modules=h.on)
args = {kind}Config(output_dir="out", max_length=2048)
{kind}Trainer(model="some/base", args=args, train_dataset=rows, peft_config=lora).train()
"""


@pytest.mark.parametrize(
    ("kind", "r", "targets", "expected"),
    [
        ("SFT", 1, '["q_proj"]', 1),
        ("DPO", 1, '["v_proj"]', 1),
        ("SFT", 1, '["q_proj", "v_proj"]', 0),
        ("SFT", 1, '"all-linear"', 0),
        ("SFT", 1, '["query_key_value"]', 0),
        ("SFT", 4, '["q_proj"]', 0),
        ("SFT", "rank()", '["q_proj"]', 0),
        ("GRPO", 1, '["q_proj"]', 0),
    ],
)
def test_rank_and_targets(kind: str, r: int, targets: str, expected: int, tmp_path: Path) -> None:
    text = SCRIPT.format(kind=kind, r=r, targets=targets)
    if kind == "GRPO":
        text = text.replace(", max_length=2048", "")
    path = tmp_path / "train.py"
    path.write_text(text, encoding="utf-8")
    assert len(lint([path], select=["lora-rank-1-on-one-projection"]).findings) == expected
