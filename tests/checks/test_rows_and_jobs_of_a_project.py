"""A project's folder: rows that its script trains are judged, whatever lies beside it; so are jobs beside a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.reports import Report
from truetune.settings.run_spec import RunSpec

POLICY = "You sort invoices of a small firm. Use one code for each invoice, in four digits, a dash and a letter. "
JUDGED = {"shared-text-is-learned", "answer-is-little-of-the-loss"}
"""What such rows show, as long as they are judged: the second leaves the first nothing to add"""
SCRIPT = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

rows = load_dataset("json", data_files="data/train.jsonl", split="train")
SFTTrainer("some/model", args=SFTConfig("out", max_length=2048), train_dataset=rows).train()
"""
JOB = """#!/bin/bash
#SBATCH --gpus=1
for step in 200 400; do
  lm_eval --model hf --model_args pretrained=some/model,peft=out/checkpoint-$step --tasks gsm8k --use_cache cache/lm
done
"""


def write_lines(path: Path, rows: list[object]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def chats(count: int = 40) -> list[object]:
    return [
        {
            "messages": [
                {"role": "system", "content": POLICY * 3},
                {"role": "user", "content": f"Invoice {n} of firm {n * 7}"},
                {"role": "assistant", "content": f"{1000 + n}-A"},
            ]
        }
        for n in range(count)
    ]


def checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.chdir(folder)
    return check_paths(["."], RunSpec())


def rules(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings}


@pytest.mark.parametrize("columns", [("expected", "got"), ("firm", "score"), ("was", "should_be")])
def test_answers_beside_a_script_do_not_hide_its_rows(
    columns: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    write_lines(tmp_path / "data" / "train.jsonl", chats())
    one, other = columns
    beside: list[object] = [
        {"invoice": f"invoice {n}", one: f"{n}-A", other: "x"} for n in range(9)
    ]
    write_lines(tmp_path / "answers.jsonl", beside)
    report = checked(tmp_path, monkeypatch)
    assert JUDGED & rules(report)
    assert any("answers.jsonl" in part.what for part in report.not_judged)


def test_rows_that_the_script_trains_itself_are_taken_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = SCRIPT.replace("data/train.jsonl", "train.jsonl")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    write_lines(tmp_path / "train.jsonl", chats())
    report = checked(tmp_path, monkeypatch)
    assert JUDGED & rules(report)
    assert not any("train.jsonl" in part.what for part in report.not_judged)


def test_without_a_tokenizer_the_trainer_says_what_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = SCRIPT.replace("max_length=2048", "max_length=2048, assistant_only_loss=True")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    write_lines(tmp_path / "data" / "train.jsonl", chats())
    shared = [one for one in checked(tmp_path, monkeypatch).findings if one.code == "ROW030"]
    assert [one.severity for one in shared] != ["warning"]


@pytest.mark.parametrize("has_state", [True, False])
def test_a_job_beside_a_runs_state_is_read(
    has_state: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evaluate.sbatch").write_text(JOB, encoding="utf-8")
    if has_state:
        records = [
            {"step": step, "loss": 2.0 - step / 400, "epoch": step / 400}
            for step in range(0, 400, 10)
        ]
        state = {"global_step": 390, "max_steps": 390, "log_history": records}
        (tmp_path / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    assert "checkpoints-evaluated-from-one-cache" in rules(checked(tmp_path, monkeypatch))
