"""Long texts without spaces are judged in time that grows with their length; a role of any JSON type stops no rule."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

CHARACTERS = 20_000
"""A line of base64 or of a log pasted whole; each pattern that tried all beginnings took 5 to 20 s for one such text"""
REPEATED = ("x", "_", "a.", "a0", "\n", " \n", "{", '"', "\\", "é", "中", "<a", "1,", "http://")
MAX_SECONDS = 8
"""Of this process; 1.4 s were measured for all texts, and 12 s while two patterns tried all beginnings"""


def test_long_texts_without_spaces_are_judged_in_seconds(tmp_path: Path) -> None:
    rows = tmp_path / "train.jsonl"
    texts = [unit * (CHARACTERS // len(unit)) for unit in REPEATED]
    lines = [
        json.dumps(
            {"prompt": f"What is this, number {place}? {text}", "completion": f"{text} {place}"}
        )
        for place, text in enumerate(texts)
    ]
    rows.write_text("\n".join(lines) + "\n", encoding="utf-8")
    began = time.process_time()
    report = check_paths([rows], RunSpec())
    assert time.process_time() - began < MAX_SECONDS
    assert report.subjects


@pytest.mark.parametrize("role", [["assistant"], {"name": "assistant"}, None, 1.5, True])
def test_a_role_that_is_no_text_stops_no_rule(role: object, tmp_path: Path) -> None:
    question = {"role": "user", "content": "word " * 1500}
    rows = [
        {"messages": [question, {"role": role, "content": f"answer {number}"}]}
        for number in range(30)
    ]
    data = tmp_path / "train.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(
        """from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

rows = load_dataset("json", data_files="train.jsonl", split="train")
arguments = SFTConfig(output_dir="out", max_length=1024, learning_rate=2e-5)
SFTTrainer(model="Qwen/Qwen2.5-0.5B", train_dataset=rows, args=arguments).train()
""",
        encoding="utf-8",
    )
    report = check_paths([tmp_path], RunSpec())
    reasons = [str(reason) for reason in report.not_judged]
    assert not [reason for reason in reasons if "fault of truetune" in reason]
