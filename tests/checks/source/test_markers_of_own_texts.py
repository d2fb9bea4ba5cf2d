"""Markers of answers that are no header of the script's own text, and those that may be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

TEXTS = "PROMPT = '''Read the question.\n\n### Question:\n{question}\n\n### Answer:\n{answer}'''\n"
TRL = """
from trl import DataCollatorForCompletionOnlyLM, SFTTrainer
from texts import PROMPT
def write(row):
    return PROMPT.format(**row)
collator = DataCollatorForCompletionOnlyLM({marker}, tokenizer=tokenizer)
SFTTrainer("model", train_dataset=rows, formatting_func=write, data_collator=collator).train()
"""
OWN = """
MARKER = {marker}
def encode(row, tokenizer):
    text = {text}
    ids = tokenizer(text)["input_ids"]
    at = text.find(MARKER)
    labels = [-100] * len(ids) if at < 0 else ids[:]
    return {{"input_ids": ids, "labels": labels}}
rows = rows.map(encode)
print(f"Rows: {{len(rows)}}")
"""


def fires(tmp_path: Path, **files: str) -> bool:
    """Does the rule speak of these files?"""
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    report = lint([str(tmp_path / f"{name}.py") for name in files], select=["SRC391"])
    return bool(report.findings)


@pytest.mark.parametrize(
    ("marker", "texts", "expected"),
    [
        ("'### Response:'", TEXTS, True),
        ("'\\n### answer:'", TEXTS, True),
        ("'### Answer:\\n'", TEXTS, False),
        ("'### Response:'", TEXTS.replace("Answer:", "{role}:"), False),
        # The rows bring their text, and the marker may stand in it.
        ("'### Response:'", "PROMPT = '{text}'\n", False),
        (
            "'### Response:'",
            TEXTS + "TRAINED = '### Instruction:\\n{q}\\n### Response:\\n{a}'\n",
            False,
        ),
        ("' [/INST]'", TEXTS, False),
    ],
)
def test_the_collators_marker_and_the_texts_of_another_file(
    tmp_path: Path, marker: str, texts: str, expected: bool
) -> None:
    assert fires(tmp_path, train=TRL.format(marker=marker), texts=texts) is expected


@pytest.mark.parametrize(
    ("marker", "text", "expected"),
    [
        ("'Assistant:'", "f\"User: {row['q']}\\nBot: {row['a']}\"", True),
        ("'Assistant:'", "'User: ' + row['q'] + '\\nAgent: ' + row['a']", True),
        ("'Bot:'", "f\"User: {row['q']}\\nBot: {row['a']}\"", False),
        (
            "'Assistant:'",
            "''.join(f\"{turn['role']}: {turn['content']}\\n\" for turn in row['turns'])",
            False,
        ),
        # The marker is put into the text by its name, and another text is printed.
        (
            "'### Response:'",
            "f\"### Instruction: {row['q']}\\n{MARKER}{row['a']}\"\n"
            "    print(f'### Question: {row}\\n### Answer: {ids}')",
            False,
        ),
        # Only what is printed has headers.
        ("'Assistant:'", "row['text']", False),
    ],
)
def test_a_marker_that_the_script_searches_for(
    tmp_path: Path, marker: str, text: str, expected: bool
) -> None:
    assert fires(tmp_path, train=OWN.format(marker=marker, text=text)) is expected
