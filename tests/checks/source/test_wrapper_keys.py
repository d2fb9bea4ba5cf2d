"""What is saved and loaded is not what was trained: names of a wrapper, a base that nothing touched."""

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
OF_ENTRY = "model.load_state_dict(state['net'], strict=False)"
STRIPPED = "state = {k.replace('module.', ''): v for k, v in state.items()}\n" + LENIENT


@pytest.mark.parametrize(
    ("saved", "file", "load", "count"),
    [
        ("model.state_dict()", "ckpt/epoch2.pt", LENIENT, 1),
        ("model.module.state_dict()", "ckpt/epoch2.pt", LENIENT, 0),
        ("model.state_dict()", "ckpt/epoch2.pt", "model.load_state_dict(state)", 0),
        ("model.state_dict()", "ckpt/epoch2.pt", STRIPPED, 0),
        ("model.state_dict()", "vision/tower.bin", LENIENT, 0),
        ("{'net': model.state_dict()}", "ckpt/epoch2.pt", OF_ENTRY, 1),
        ("{'net': model.module.state_dict()}", "ckpt/epoch2.pt", OF_ENTRY, 0),
        ("{'ema': model.state_dict(), 'net': other}", "ckpt/epoch2.pt", OF_ENTRY, 0),
        ("model.state_dict()", "ckpt/epoch2.pt", "model.load_state_dict(state, False)", 1),
    ],
)
def test_names_of_a_wrapper(saved: str, file: str, load: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(saved), encoding="utf-8")
    (tmp_path / "ask.py").write_text(ASK.format(file, load), encoding="utf-8")
    findings = lint([tmp_path / "ask.py"], select=["wrapper-keys-not-loaded"]).findings
    assert len(findings) == count


MERGE = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
other = AutoModelForCausalLM.from_pretrained("{}")
tuned = PeftModel.from_pretrained(base, "adapter").merge_and_unload()
{}
"""
OF_HUB, OF_FOLDER = "Qwen/Qwen2.5-7B-Instruct", "out/merged"


@pytest.mark.parametrize(
    ("name", "save", "count"),
    [
        (OF_HUB, "other.save_pretrained('out')", 1),
        (OF_HUB, "other.to('cpu').eval()\nother.push_to_hub('me/tuned')", 1),
        (OF_HUB, "tuned.save_pretrained('out')", 0),
        (OF_HUB, "base.save_pretrained('out')", 0),
        (OF_HUB, "other.save_pretrained('base')\ntuned.save_pretrained('out')", 0),
        (OF_HUB, "other.load_state_dict(tuned.state_dict())\nother.save_pretrained('out')", 0),
        (OF_FOLDER, "other.save_pretrained('out')", 0),
    ],
)
def test_a_base_that_is_saved_as_the_tuned_model(
    name: str, save: str, count: int, tmp_path: Path
) -> None:
    path = tmp_path / "merge.py"
    path.write_text(MERGE.format(name, save), encoding="utf-8")
    assert len(lint([path], select=["untouched-base-saved"]).findings) == count
