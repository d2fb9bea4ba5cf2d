"""Which accumulations are longer than an epoch, and which end in a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import json, torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("m")
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
ds = load_dataset("json", data_files="rows.jsonl", split="train")
EPOCHS = 3
"""
LOADER = "loader = DataLoader(ds, batch_size=4)\n"
EPOCH = "for epoch in range(EPOCHS):\n"
LOOP = EPOCH + "    for i, batch in enumerate(loader):\n        model(**batch).loss.backward()\n"
STEP = "        if (i + 1) % ACCUM == 0:\n            opt.step()\n            opt.zero_grad()\n"
NAMED = "    for batch in loader:\n        model(**batch).loss.backward()\n        n += 1\n"
NAMED_STEP = "        if not n % ACCUM:\n            opt.step()\n"
ACCELERATE = (
    "acc = Accelerator(gradient_accumulation_steps=ACCUM)\n"
    "model, opt, loader = acc.prepare(model, opt, loader)\n"
    "for epoch in range(EPOCHS):\n    for batch in loader:\n        with acc.accumulate(model):\n"
    "            acc.backward(model(**batch).loss)\n            opt.step()\n"
)
ROWS = (
    "class Rows(Dataset):\n    def __init__(self, path):\n"
    "        self.rows = [json.loads(line) for line in open(path)]\n"
    "    def __len__(self):\n        return len(self.rows)\n"
    "    def __getitem__(self, i):\n        return self.rows[i]\nds = Rows('rows.jsonl')\n"
)
APPENDED = "ds = []\nfor line in open('rows.jsonl'):\n    ds.append(json.loads(line))\n"
SKIP = "        if (i + 1) % ACCUM != 0:\n            continue\n        opt.step()\n"
SCALER = STEP.replace("opt.step()", "torch.amp.GradScaler().step(opt)")
CHUNKS = "def cut(batch):\n    return {'text': batch['text'] * 9}\nds = ds.map(cut, batched=True)\n"
# Of 40 rows in batches of 4: ten batches an epoch.
LONG = {
    "enumerate": (LOADER + LOOP + STEP, "error"),
    "progress bar": (
        LOADER + "from tqdm import tqdm\n" + LOOP.replace("(loader)", "(tqdm(loader))") + STEP,
        "error",
    ),
    "skipped": (LOADER + LOOP + SKIP, "error"),
    "scaler": (LOADER + LOOP + SCALER, "error"),
    "data set of one's own": (ROWS + LOADER + LOOP + STEP, "error"),
    "appended rows": (APPENDED + LOADER + LOOP + STEP, "error"),
    "a name that begins anew": (
        LOADER + EPOCH + "    n = 0\n" + NAMED + NAMED_STEP,
        "error",
    ),
    "a name that goes on": (LOADER + "n = 0\n" + EPOCH + NAMED + NAMED_STEP, "error"),
    "accelerate": (LOADER + ACCELERATE, "warning"),
    "a limit": ("ds = load_dataset('a/b').select(range(36))\n" + LOADER + LOOP + STEP, "error"),
}
STEPPED = {
    "last batch": LOADER + LOOP + STEP.replace("== 0", "== 0 or i == len(loader) - 1"),
    "behind the epoch": LOADER + LOOP + STEP + "    opt.step()\n",
    "a name that goes on for long": LOADER + "n = 0\nEPOCHS = 90\n" + EPOCH + NAMED + NAMED_STEP,
    "rows are cut": CHUNKS + LOADER + LOOP + STEP,
    "rows of a hub": "ds = load_dataset('a/b', split='train')\n" + LOADER + LOOP + STEP,
    "rows repeated": "ds = ds.repeat(9)\n" + LOADER + LOOP + STEP,
    "two rows of each": APPENDED + "    ds.append({})\n" + LOADER + LOOP + STEP,
    "a sampler": "loader = DataLoader(ds, batch_size=4, sampler=draw(ds))\n" + LOOP + STEP,
    "accelerate over many epochs": LOADER + "EPOCHS = 30\n" + ACCELERATE,
}


def severities(text: str, accumulation: int, folder: Path) -> list[str]:
    (folder / "rows.jsonl").write_text('{"text": "a"}\n' * 40, encoding="utf-8")
    text = HEAD + f"ACCUM = {accumulation}\n" + text
    rule = find_rule("accumulation-beyond-the-epoch")
    made = run_rule(parse_module(text, str(folder / "train.py")), rule)
    return [finding.severity for finding in made.findings]


@pytest.mark.parametrize(("text", "severity"), LONG.values(), ids=LONG)
def test_a_long_accumulation_is_found(text: str, severity: str, tmp_path: Path) -> None:
    assert severities(text, 32, tmp_path) == [severity]
    assert severities(text, 5, tmp_path) == []


@pytest.mark.parametrize("text", STEPPED.values(), ids=STEPPED)
def test_what_steps_or_is_not_known_is_left_alone(text: str, tmp_path: Path) -> None:
    assert severities(text, 32, tmp_path) == []
