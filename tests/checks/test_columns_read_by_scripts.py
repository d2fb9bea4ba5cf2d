"""Columns that a script beside the rows reads are used, and part of what makes two rows copies (ROW004, ROW007)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

RULES = ["unused-columns", "duplicate-rows"]
READS = {
    "subscript": "prompt = f\"Context: {row['context']}\\n{row['instruction']}\"",
    "get": "prompt = row.get('context', '') + row['instruction']",
    "template": "P = '{context}\\n{instruction}'\nprompt = P.format(**row)",
    "helper": "def prompt(one):\n    return one['context'] + one['instruction']\n\nprint(prompt(row))",
}
LEAVES = {
    "names another": "prompt = row['instruction']",
    "drops it": "rows = rows.remove_columns(['context'])",
    "writes it": "row['context'] = None",
}


def names(folder: Path, code: str) -> set[str]:
    """The rules that speak of the rows beside a script."""
    rows = [
        {
            "instruction": ["When does it open on Monday?", "Where do I find it?"][n % 2],
            "context": f"Note {n}: the shop at number {n} opens at nine in the morning, and closes late.",
            "output": "It is written in the note.",
        }
        for n in range(40)
    ]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "predict.py").write_text(
        f"import torch, json\nrows = list(map(json.loads, open('rows.jsonl')))\nrow = rows[0]\n{code}\n"
    )
    return {one.rule for one in truetune.check([str(folder)], select=RULES).findings}


@pytest.mark.parametrize("case", READS)
def test_a_column_that_a_script_reads_is_used(case: str, tmp_path: Path) -> None:
    assert names(tmp_path, READS[case]) == set()


@pytest.mark.parametrize("case", LEAVES)
def test_a_column_that_no_script_reads_is_unused(case: str, tmp_path: Path) -> None:
    assert names(tmp_path, LEAVES[case]) == set(RULES)


def held_out(folder: Path, first: int) -> set[str]:
    """What is said of evaluation rows whose contexts begin with this number; those of the training with 0."""
    for name, begin, count in (("train.jsonl", 0, 40), ("eval.jsonl", first, 10)):
        rows = [
            {
                "id": f"{name}-{n}",
                "instruction": "When does it open on Monday?",
                "context": f"Note {n}: the shop at number {n} opens at nine in the morning, and closes late.",
                "output": ["It is open at nine.", "It is closed then.", "It is open late."][n % 3],
            }
            for n in range(begin, begin + count)
        ]
        (folder / name).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "predict.py").write_text(
        "import torch, json\nrows = list(map(json.loads, open('train.jsonl')))\nrow = rows[0]\n"
        f"{READS['subscript']}\nprint(row['id'])\n"
    )
    rules = ["train-eval-leak", "prompts-all-alike"]
    return {one.rule for one in truetune.check([str(folder)], select=rules).findings}


def test_rows_with_other_texts_in_their_prompts_are_no_leak(tmp_path: Path) -> None:
    assert held_out(tmp_path, 100) == set()


def test_rows_with_the_same_texts_in_their_prompts_leak(tmp_path: Path) -> None:
    assert held_out(tmp_path, 5) == {"train-eval-leak"}
