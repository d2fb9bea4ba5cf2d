"""States that are saved from a wrapper and loaded with `strict=False`, in one file and in two."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

TRAIN = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModelForCausalLM
model = DDP(AutoModelForCausalLM.from_pretrained("some/base"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for epoch in range(3):
    for batch in batches:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save({}, f"ckpt/epoch{{epoch}}.pt")
"""
ASK = """
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("some/base")
state = torch.load("{}")
{}
"""
LENIENT = "model.load_state_dict(state, strict=False)"
STRIPPED = "state = {k.replace('module.', ''): v for k, v in state.items()}\n" + LENIENT


@pytest.mark.parametrize(
    ("saved", "file", "load", "count"),
    [
        ("model.state_dict()", "ckpt/epoch2.pt", LENIENT, 1),
        ("model.module.state_dict()", "ckpt/epoch2.pt", LENIENT, 0),
        ("model.state_dict()", "ckpt/epoch2.pt", "model.load_state_dict(state)", 0),
        ("model.state_dict()", "ckpt/epoch2.pt", STRIPPED, 0),
        ("model.state_dict()", "vision/tower.bin", LENIENT, 0),
    ],
)
def test_names_of_a_wrapper(saved: str, file: str, load: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(saved), encoding="utf-8")
    (tmp_path / "ask.py").write_text(ASK.format(file, load), encoding="utf-8")
    findings = lint([tmp_path / "ask.py"], select=["wrapper-keys-not-loaded"]).findings
    assert len(findings) == count
