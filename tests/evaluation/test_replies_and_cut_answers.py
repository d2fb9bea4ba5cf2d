"""Replies of a server in a log of one's own, predictions in folders below, and answers that break off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.rows.refusals_in_answers import REFUSALS
from truetune.data.tell_training_files_from_predictions import list_prediction_files
from truetune.evaluation.score_predictions import score

QUESTION = {"role": "user", "content": "Which invoices have a quantity above 650?"}
TURNS = [{"role": "system", "content": "Answer with SQL only."}, QUESTION]
SENTENCE = "The crew closed the valve at noon and wrote a report on what had happened"


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def found(folder: Path) -> list[str]:
    """Names of the files that are taken for predictions."""
    return [Path(file).name for file in list_prediction_files([str(folder)])]


@pytest.mark.parametrize(
    "beside",
    [
        {"reply": "SELECT 1", "finish_reason": "stop"},
        {"response": "SELECT 1", "finish_reason": "length", "latency": 0.4},
        {"content": "SELECT 1", "usage": {"completion_tokens": 3}},
        {"text": "SELECT 1", "stop_reason": "stop", "ts": "2026-01-01"},
        {"output": "SELECT 1", "completion_tokens": 12},
    ],
)
def test_requests_with_their_reply(tmp_path: Path, beside: dict[str, Any]) -> None:
    write(tmp_path / "log.jsonl", [{"messages": TURNS, **beside}] * 8)
    assert found(tmp_path) == ["log.jsonl"]


@pytest.mark.parametrize(
    "row",
    [
        {
            "messages": [*TURNS, {"role": "assistant", "content": "SELECT 1"}],
            "finish_reason": "stop",
        },
        {"messages": [*TURNS, {"role": "assistant", "content": "SELECT 1"}]},
        {"messages": TURNS, "answer": "SELECT 1"},
        {"prompt": "Which?", "completion": "SELECT 1", "finish_reason": "stop"},
    ],
)
def test_rows_of_training(tmp_path: Path, row: dict[str, Any]) -> None:
    write(tmp_path / "rows.jsonl", [row] * 8)
    assert found(tmp_path) == []


def test_a_training_that_reads_the_log(tmp_path: Path) -> None:
    write(
        tmp_path / "log.jsonl", [{"messages": TURNS, "reply": "SELECT 1", "finish_reason": "stop"}]
    )
    (tmp_path / "train.py").write_text('rows = load_dataset("json", data_files="log.jsonl")\n')
    assert found(tmp_path) == []


def test_predictions_in_folders_below(tmp_path: Path) -> None:
    row = {"prompt": "Which?", "predict": "SELECT 1", "label": "SELECT 2"}
    write(tmp_path / "saves" / "predict" / "generated_predictions.jsonl", [row] * 8)
    write(
        tmp_path / "data" / "answers_train.jsonl", [{"prompt": "Which?", "completion": "SELECT 1"}]
    )
    write(tmp_path / "a" / "b" / "c" / "d" / "predictions.jsonl", [row])
    write(tmp_path / ".cache" / "predictions.jsonl", [row])
    write(tmp_path / "rows.jsonl", [{"prompt": "Which?", "completion": "SELECT 1"}] * 8)
    assert found(tmp_path) == ["generated_predictions.jsonl"]


def codes(answers: list[str], references: list[str], **more: Any) -> list[str]:
    report = score(
        answers,
        prompts=[f"Report {n}?" for n in range(len(answers))],
        references=references,
        **more,
    )
    return [one.code for one in report.findings if one.code == "ANS041"]


def test_answers_that_break_off() -> None:
    references = [f"Unit {n}: {SENTENCE}." for n in range(12)]
    longer = [f"Unit {n}: {SENTENCE}. {SENTENCE} and then it" for n in range(12)]
    assert codes(longer, references) == ["ANS041"]
    assert codes([f"## Report\n{one}," for one in longer], references) == ["ANS041"]
    # They end.
    assert codes([f"{one} did." for one in longer], references) == []
    # What ended them is known.
    assert codes(longer, references, stopped=[True] * 12) == []
    # No longer than the references, and references without a full stop.
    assert codes([one.rstrip(".") for one in references], references) == []
    assert codes(longer, [one.rstrip(".") for one in references]) == []
    # A signature, and one of twelve.
    assert codes([f"{one} did.\nBest regards,\nAnna" for one in longer], references) == []
    assert codes([longer[0], *references[1:]], references) == []


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "Sorry, I cannot assist with this.",
        "Sorry, can't do that.",
        "Unfortunately, I am unable to provide this.",
        "I am sorry, but I simply cannot create that.",
        "My apologies, we're not able to comply.",
    ],
)
def test_refusals(text: str) -> None:
    assert REFUSALS["refuses"].search(text)


@pytest.mark.parametrize(
    "text",
    [
        "Sorry to hear that your second monitor cannot be found. Please reconnect it.",
        "I'm sorry that you cannot log in. Reset your password first.",
        "Sorry about the VPN client that can't connect; update it.",
        "Unfortunately, this can't be undone. Export the file first.",
        "I'm sorry for the delay, your order cannot be traced before Monday.",
        "Sorry to hear that I cannot be reached by phone; write to us.",
    ],
)
def test_help_that_begins_with_sorry(text: str) -> None:
    assert not REFUSALS["refuses"].search(text)
