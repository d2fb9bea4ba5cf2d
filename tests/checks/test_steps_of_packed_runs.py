"""Few steps because rows are packed: by the settings alone, and beside the log of the run; with near misses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

AXOLOTL = """\
base_model: some/model
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
datasets: [{path: rows.jsonl, type: chat_template}]
sequence_len: 8192
sample_packing: PACKS
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 4
learning_rate: 0.0002
bf16: true
"""
TRL = """\
model_name_or_path: some/model
datasets: [{path: json, data_files: rows.jsonl}]
output_dir: out
use_peft: true
packing: true
max_length: 8192
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
num_train_epochs: 4
learning_rate: 0.0002
"""
LOG = "".join(
    f"{{'loss': {loss}, 'grad_norm': 1.1, 'learning_rate': 0.0001, 'epoch': {epoch}.0}}\n"
    f" {epoch * 33}%|###       | {epoch}/3 [01:58<00:00, 39.48s/it]\n"
    for epoch, loss in enumerate((2.69, 2.67, 2.55), 1)
) + (
    "{'train_runtime': 118.4406, 'train_samples_per_second': 0.203, 'train_steps_per_second': 0.025,"
    " 'train_loss': 2.63, 'epoch': 3.0}\n"
)


def write_rows(folder: Path, rows: int, words: int) -> None:
    row = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": "word " * words},
    ]
    lines = (
        json.dumps({"messages": [*row[:1], {**row[1], "content": f"{n} {row[1]['content']}"}]})
        for n in range(rows)
    )
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("settings", "rows", "words", "steps"),
    [
        (AXOLOTL.replace("PACKS", "true"), 260, 60, "at most"),
        (TRL, 260, 60, "at most"),
        (AXOLOTL.replace("PACKS", "false"), 260, 60, None),
        (AXOLOTL.replace("PACKS", "false"), 40, 60, "20 optimizer steps"),
        # Long rows: packing joins few of them, and the rows themselves are the bound.
        (AXOLOTL.replace("PACKS", "true"), 260, 1_500, None),
        (AXOLOTL.replace("PACKS", "true"), 9_000, 60, None),
    ],
)
def test_steps_by_the_settings(
    settings: str, rows: int, words: int, steps: str | None, tmp_path: Path
) -> None:
    write_rows(tmp_path, rows, words)
    (tmp_path / "sft.yaml").write_text(settings, encoding="utf-8")
    report = truetune.check(str(tmp_path / "sft.yaml"), select="CFG043")
    messages = [one.message for one in report.findings if "optimizer step" in one.message]
    assert bool(messages) == (steps is not None)
    assert all((steps or "") in one for one in messages)


@pytest.mark.parametrize(("packs", "is_told"), [("true", True), ("false", False)])
def test_packing_is_the_reason_for_few_steps_of_a_log(
    packs: str, is_told: bool, tmp_path: Path
) -> None:
    write_rows(tmp_path, 260, 60)
    (tmp_path / "sft.yaml").write_text(AXOLOTL.replace("PACKS", packs), encoding="utf-8")
    (tmp_path / "train.log").write_text(LOG, encoding="utf-8")
    (few,) = (one for one in truetune.check(str(tmp_path)).findings if one.code == "LOG038")
    assert any("packing joins 260 rows" in one for one in few.evidence) == is_told
    assert ("packing" in (few.remedy or "")) == is_told
    assert any("8 rows" in one for one in few.evidence) != is_told


def test_a_trainer_state_counts_steps_behind_the_last_loss(tmp_path: Path) -> None:
    history = [
        {"step": step, "epoch": step / 375, "loss": 0.6 - step / 1000, "learning_rate": 1e-5}
        for step in range(10, 375, 10)
    ]
    summary = {
        "step": 375,
        "epoch": 1.0,
        "train_loss": 0.2,
        "train_runtime": 5312.6,
        "train_samples_per_second": 2.259,
    }
    state = {"global_step": 375, "max_steps": 375, "epoch": 1.0, "log_history": [*history, summary]}
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps(state), encoding="utf-8")
    (subject,) = truetune.check(str(path)).subjects
    facts = dict(subject.facts)
    assert facts["epochs"] == "1"
    assert facts["an optimizer step has"].startswith("32 rows (12,000 in 375 optimizer steps")
