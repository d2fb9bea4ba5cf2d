"""Rows that lose their end at a limit nobody set, and the answers without an end that come of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from truetune.checks.findings import Finding
from truetune.checks.put_row_cuts_before_endless_answers import put_cuts_before_answers
from truetune.checks.shared_by_rules_on_cut_answers import ENDS_ARE_LOST
from truetune.render.byte_tokenizer import BYTE_TOKENIZER
from truetune.settings.run_spec import RunSpec
from truetune.troubleshooting.check_project import check_project

SENTENCE = "The caretaker of the house should look at the boiler in the cellar by Friday. "
LONG, SHORT = SENTENCE * 100, SENTENCE * 20
SCRIPT = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

rows = load_dataset("json", data_files="rows.jsonl", split="train")
args = SFTConfig(output_dir="out", learning_rate=1e-4{more})
trainer = SFTTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", args=args, train_dataset=rows{trainer})
trainer.train()
"""
WITH_UNSLOTH = "from unsloth import FastLanguageModel\n"
OWN_COLLATOR = "def collate(rows):\n    return cut_and_pad(rows, 8192)\n"
CUT = Finding(
    "rows-surely-cut",
    "CFG064",
    "warning",
    "30 of 40 rows are certainly cut",
    "raise the limit",
    evidence=(ENDS_ARE_LOST,),
    count=30,
    total=40,
)
ENDLESS = Finding(
    "answers-never-stop", "ANS001", "warning", "9 of 9 answers do not stop", "supervise the stop"
)

MakeRow = Callable[[str, int], dict[str, object]]


def turns(answer: str, number: int) -> list[dict[str, str]]:
    texts = (("user", f"Question {number}?"), ("assistant", f"{number}. {answer}"))
    return [{"role": role, "content": text} for role, text in texts]


def messages(answer: str, number: int) -> dict[str, object]:
    return {"messages": turns(answer, number)}


def split(answer: str, number: int) -> dict[str, object]:
    question, reply = turns(answer, number)
    return {"prompt": [question], "completion": [reply]}


def plain(answer: str, number: int) -> dict[str, object]:
    return {"prompt": f"Question {number}?", "completion": f" {number}. {answer}"}


def codes(folder: Path, script: str, rows: list[dict[str, object]], pins: str = "") -> set[str]:
    """The rules that a folder of a script, its rows and its requirements makes fire."""
    (folder / "train.py").write_text(script, encoding="utf-8")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "requirements.txt").write_text(pins)
    report = check_project([str(folder)], RunSpec())
    return {finding.code for finding in report.findings}


@pytest.mark.parametrize("pins", ["", "trl==0.24.0\n", "trl==0.9.6\ntransformers==4.44.0\n"])
@pytest.mark.parametrize("row", [messages, split, plain])
def test_a_default_cuts_rows_in_each_release(tmp_path: Path, pins: str, row: MakeRow) -> None:
    rows = [row(LONG, number) for number in range(20)]
    assert "CFG064" in codes(tmp_path, SCRIPT.format(more="", trainer=""), rows, pins)


@pytest.mark.parametrize(
    ("head", "more", "trainer"),
    [
        ("", ", max_length=8192", ""),
        ("", ", max_length=None", ""),
        ("", ", max_seq_length=8192", ""),
        ("", ", **options", ""),
        ("", "", ", max_seq_length=8192"),
        (WITH_UNSLOTH, "", ""),
        (OWN_COLLATOR, "", ", data_collator=collate"),
        ("", ", packing=True", ""),
    ],
)
def test_a_length_that_is_set_or_not_known(
    tmp_path: Path, head: str, more: str, trainer: str
) -> None:
    rows = [messages(LONG, number) for number in range(20)]
    script = head + SCRIPT.format(more=more, trainer=trainer)
    assert "CFG064" not in codes(tmp_path, script, rows, "trl==0.24.0\n")


def test_rows_that_may_fit_the_default(tmp_path: Path) -> None:
    rows = [messages(SHORT, number) for number in range(20)]
    found = codes(tmp_path, SCRIPT.format(more="", trainer=""), rows, "trl==0.24.0\n")
    assert "CFG064" not in found


def found_with_tokenizer(folder: Path, answer: str, more: str = "") -> list[Finding]:
    """The findings on limits where a tokenizer is named, and answers that do not stop lie beside the rows."""
    rows = [messages(answer, number) for number in range(20)]
    (folder / "train.py").write_text(SCRIPT.format(more=more, trainer=""), encoding="utf-8")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = [
        {
            "prompt": f"What of house {number}?",
            "prediction": f"{number}. {SENTENCE * 9}",
            "reference": f"{number}. {SENTENCE}",
            "finish_reason": "length",
        }
        for number in range(20)
    ]
    (folder / "preds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
    report = check_project([str(folder)], RunSpec(tokenizer=BYTE_TOKENIZER))
    names = {"rows-longer-than-default-max-length", "answers-never-stop", "answers-are-cut-off"}
    return [finding for finding in report.findings if finding.rule in names]


def test_the_rows_of_a_script_are_counted_with_a_tokenizer(tmp_path: Path) -> None:
    first = found_with_tokenizer(tmp_path, LONG)[0]
    assert first.rule == "rows-longer-than-default-max-length"
    assert any("20 of 20 examples lose the stop token" in text for text in first.evidence)


def test_a_limit_that_fits_is_no_cause(tmp_path: Path) -> None:
    found = found_with_tokenizer(tmp_path, LONG, ", max_length=16384")
    assert "rows-longer-than-default-max-length" not in {one.rule for one in found}


def test_the_cut_comes_first_and_is_the_help() -> None:
    cause, answers = put_cuts_before_answers([ENDLESS, CUT])
    assert (cause.rule, cause.severity) == (CUT.rule, "error")
    assert ENDLESS.message in cause.evidence[-1]
    assert CUT.remedy in answers.remedy


@pytest.mark.parametrize(
    "findings",
    [
        [ENDLESS, replace(CUT, count=12)],
        [ENDLESS, replace(CUT, evidence=("the rows are left out",))],
        [ENDLESS, replace(CUT, count=None, total=None)],
        [replace(ENDLESS, severity="info"), CUT],
        [replace(ENDLESS, rule="answers-loop"), CUT],
        [CUT],
        [ENDLESS],
    ],
)
def test_findings_that_are_not_one_cause(findings: list[Finding]) -> None:
    assert put_cuts_before_answers(findings) == findings
