"""A model's folder that holds its config.json and no file of a tokenizer: transformers makes an empty one of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.render.find_tokenizer_folder import lacks_tokenizer
from truetune.settings.run_spec import RunSpec

SETTINGS = """\
base_model: ./model
datasets:
  - path: ./rows.jsonl
    type: chat_template
sequence_len: 512
micro_batch_size: 1
"""


def test_nothing_is_said_of_a_tokenizer_that_is_not_here(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "How far is it?"}, {"role": "assistant", "content": "Far."}]
    lines = "".join(json.dumps({"messages": chat, "n": n}) + "\n" for n in range(30))
    (tmp_path / "rows.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "lora.yaml").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen2"}', encoding="utf-8")
    report = check_paths([str(tmp_path / "lora.yaml")], RunSpec())
    found = {one.rule for one in report.findings}
    assert found.isdisjoint({"chat-data-without-template", "pad-missing"})
    assert any("no tokenizer file" in one.reason for one in report.not_judged)


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("config.json", True),
        ("generation_config.json", True),
        ("tokenizer.json", False),
        ("tokenizer_config.json", False),
        ("spiece.model", False),
        ("vocab.txt", False),
        ("qwen.tiktoken", False),
    ],
)
def test_files_of_a_tokenizer(name: str, lacks: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_text("{}", encoding="utf-8")
    assert lacks_tokenizer(tmp_path) is lacks
