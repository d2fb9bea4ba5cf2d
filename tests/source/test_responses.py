"""Masks by markers in scripts: what the marker is, and when nothing can be said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import parts
from truetune.checks.check_paths import check_paths
from truetune.checks.reports import DataReport
from truetune.report.supervision_headline import supervision_verdict
from truetune.settings.read_truetune_settings import validate_settings

LLAMA = "<|start_header_id|>assistant<|end_header_id|>\\n\\n"
CHATML = "<|im_start|>assistant\\n"
SCRIPT = """
from unsloth import FastLanguageModel
from unsloth.chat_templates import get_chat_template, train_on_responses_only
from trl import DataCollatorForCompletionOnlyLM, SFTConfig, SFTTrainer

model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen2.5-7B-Instruct")
{before}
rows = rows.map(lambda row: {{"text": {text}}})
trainer = SFTTrainer(model=model, train_dataset=rows, args=SFTConfig(output_dir="out"))
{masked}
trainer.train()
"""
RENDERED = "tokenizer.apply_chat_template(row['messages'], tokenize=False)"
MASKED = 'trainer = train_on_responses_only(trainer, instruction_part="U", response_part="{}")'
COLLATOR = 'collator = DataCollatorForCompletionOnlyLM("{}", tokenizer=tokenizer)'
TEMPLATE = "tokenizer = get_chat_template(tokenizer, chat_template={!r})"


def checked(
    folder: Path, masked: str, *, before: str = "", text: str = RENDERED
) -> tuple[str, bool]:
    """The first sentence on a script and its rows, and whether its marker is a finding."""
    script, data = folder / "train.py", folder / "rows.jsonl"
    script.write_text(SCRIPT.format(before=before, masked=masked, text=text), encoding="utf-8")
    row = {
        "messages": [
            {"role": "user", "content": "Is it open?"},
            {"role": "assistant", "content": "It is open until nine."},
        ]
    }
    data.write_text(f"{json.dumps(row)}\n" * 3, encoding="utf-8")
    given = {"tokenizer": str(parts.folder("qwen2.5-instruct"))}
    report = check_paths([script, data], validate_settings(given, "test"))
    assert isinstance(report, DataReport)
    found = any(finding.code == "ROW012" for finding in report.findings)
    return supervision_verdict(report).plain, found


@pytest.mark.parametrize(
    ("masked", "before"),
    [
        (MASKED.format(LLAMA), ""),
        (MASKED.format(LLAMA), TEMPLATE.format("qwen-2.5")),
        (MASKED.format("<start_of_turn>model\\n"), TEMPLATE.format("chatml")),
        (MASKED.format("### Response:\\n"), ""),
        (COLLATOR.format("[/INST]"), ""),
    ],
)
def test_markers_of_another_model(masked: str, before: str, tmp_path: Path) -> None:
    line, found = checked(tmp_path, masked, before=before)
    assert found
    assert "trains on what your code labels" in line


@pytest.mark.parametrize(
    ("masked", "before", "text"),
    [
        (MASKED.format(CHATML), "", RENDERED),
        (MASKED.format(CHATML), TEMPLATE.format("qwen-2.5"), RENDERED),
        # The script's own template holds them.
        (MASKED.format(LLAMA), TEMPLATE.format("llama-3.1"), RENDERED),
        (MASKED.format(LLAMA), TEMPLATE.format("zephyr"), RENDERED),
        (MASKED.format("A:"), "tokenizer.chat_template = open('my.jinja').read()", RENDERED),
        (MASKED.format("### Response:\\n"), "", "'### Response:\\n' + row['answer']"),
        # The script writes them itself, and asks the trained model by the chat template.
        (MASKED.format("### A:\\n"), f"PROMPT = '### Q: {{}}\\n### A:\\n'; {RENDERED}", "row['q']"),
        (MASKED.format("### A:\\n") + f"\n{RENDERED}", "from mine import PROMPT", "row['q']"),
        (MASKED.format("A:"), RENDERED.replace(")", ", add_generation_prompt=True)"), "row['q']"),
        # Nobody knows the marker.
        ("trainer = train_on_responses_only(trainer)", "", RENDERED),
        (
            "trainer = train_on_responses_only(trainer, response_part=marker_of(model))",
            "",
            RENDERED,
        ),
    ],
)
def test_markers_that_rows_hold_or_may_hold(
    masked: str, before: str, text: str, tmp_path: Path
) -> None:
    line, found = checked(tmp_path, masked, before=before, text=text)
    assert not found
    assert "trains on what your code labels" in line
    assert "100.0 %" not in line
