"""Losses of evaluations that are no numbers: beside a sound training, and in a log without one."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.diagnose_log import diagnose
from truetune.render.byte_tokenizer import BYTE_TOKENIZER
from truetune.settings.run_spec import RunSpec


def evidence(folder: Path, records: list[dict[str, float]]) -> tuple[str, str]:
    """What the rule says of a log: its facts, and its advice."""
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    (found,) = [one for one in diagnose(path).findings if one.code == "LOG004"]
    return " ".join(found.evidence), found.remedy


def test_a_log_of_evaluations_alone(tmp_path: Path) -> None:
    facts, advice = evidence(tmp_path, [{"step": n, "eval_loss": math.nan} for n in (1, 2, 3)])
    assert "the log has no training loss" in facts
    assert "use bfloat16 first" in advice


def test_evaluations_beside_a_sound_training(tmp_path: Path) -> None:
    records = [{"step": n, "loss": 2.0 - n / 50} for n in range(1, 31)]
    facts, advice = evidence(tmp_path, [*records, {"step": 30, "eval_loss": math.nan}])
    assert "the training losses are finite" in facts
    assert "use bfloat16 first" in advice


def test_evaluations_of_which_one_is_a_number(tmp_path: Path) -> None:
    records = [{"step": 1, "eval_loss": 1.2}, {"step": 2, "eval_loss": math.nan}]
    _, advice = evidence(tmp_path, records)
    assert "count the labels" not in advice


def test_a_log_without_steps_names_its_evaluations(tmp_path: Path) -> None:
    records = [
        {"loss": 1.0, "epoch": 0.5},
        {"eval_loss": math.nan, "epoch": 1.0},
        {"loss": 0.9, "epoch": 1.5},
        {"eval_loss": math.nan, "epoch": 2.0},
    ]
    path = tmp_path / "train.log"
    path.write_text("".join(f"{one}\n" for one in records), encoding="utf-8")
    (found,) = [one for one in diagnose(path).findings if one.code == "LOG004"]
    assert found.message == "eval_loss is not finite at 2 of 2 evaluations"
    assert found.evidence[0] == "evaluations 1, 2"
    assert found.figure is None


SCRIPT = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

def shape(row):
    return {"prompt": row["context"] + " Question: " + row["question"], "completion": row["answer"]}

def load(path):
    rows = load_dataset("json", data_files=path, split="train")
    return rows.map(shape, remove_columns=rows.column_names)

args = SFTConfig("out", max_length=256, completion_only_loss=True, per_device_eval_batch_size=1)
SFTTrainer("some/model", args=args, train_dataset=load("train.jsonl"), eval_dataset=load("{name}")).train()
"""


def write_project(folder: Path, name: str, words: int) -> None:
    """A script, rows of training and evaluation, and a log whose evaluations have no number."""

    def rows(count: int, begin: int, length: int) -> str:
        return "".join(
            json.dumps(
                {
                    "context": f"Passage {number}. " + "word " * length,
                    "question": f"What is in {number}?",
                    "answer": f"The answer {number} is {number * 7}.",
                }
            )
            + "\n"
            for number in range(begin, begin + count)
        )

    (folder / "sft.py").write_text(SCRIPT.replace("{name}", name))
    (folder / "train.jsonl").write_text(rows(30, 0, 10))
    (folder / name).write_text(rows(4, 100, 10) + rows(6, 200, words))
    lines = [{"loss": 1.0 - n / 50, "epoch": n / 10} for n in range(1, 11)]
    (folder / "train.log").write_text(
        "".join(f"{one}\n" for one in [*lines, {"eval_loss": math.nan, "epoch": 1.0}])
    )


@pytest.mark.parametrize(
    ("name", "words"), [("eval.jsonl", 90), ("questions.jsonl", 90), ("eval.jsonl", 10)]
)
def test_rows_of_the_evaluation_without_a_label_are_its_cause(
    tmp_path: Path, name: str, words: int
) -> None:
    write_project(tmp_path, name, words)
    report = check_paths([str(tmp_path)], RunSpec(tokenizer=BYTE_TOKENIZER))
    found = {finding.rule: finding for finding in report.findings}
    if words == 10:
        assert "truncation-leaves-no-label" not in found
        return
    empty, lost = found["truncation-leaves-no-label"], found["loss-not-finite"]
    assert empty.severity == "error"
    assert (empty.count, empty.total) == (6, 10)
    assert "6 of 10 examples have no label" in lost.remedy
    assert report.findings.index(empty) < report.findings.index(lost)
