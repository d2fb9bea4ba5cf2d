"""Rows that are grouped by any column are found, and columns that are mixed or unique are not called keys."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import truetune
from truetune.demo import TOKENIZER

ROWS = 240
RNG = random.Random(5)
WORDS = ["".join(RNG.choices("abcdefghij", k=5)) for _ in range(400)]


def chat(**columns: Any) -> dict[str, Any]:
    said = [" ".join(RNG.choices(WORDS, k=12)) for _ in range(2)]
    turns = [
        {"role": role, "content": text}
        for role, text in zip(("user", "assistant"), said, strict=True)
    ]
    return {"messages": turns, **columns}


def checked(
    folder: Path, of_row: Callable[[int], dict[str, Any]], **settings: Any
) -> truetune.Report:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(chat(**of_row(i))) + "\n" for i in range(ROWS)))
    return truetune.check(
        data=str(path), tokenizer=str(TOKENIZER), select="rows-grouped-by-source", **settings
    )


GROUPED: dict[str, Callable[[int], dict[str, Any]]] = {
    "chunk_id": lambda i: {"chunk_id": i // 10},
    "doc_id": lambda i: {"doc_id": f"7f3a-{i // 12}"},
    "source": lambda i: {"source": "web" if i < 200 else "book"},
    "conversation_id": lambda i: {"id": i, "conversation_id": f"c{i // 8}"},
    "Schwierigkeit": lambda i: {"Schwierigkeit": i // 60},
    "is_easy": lambda i: {"is_easy": i < 120},
    "half": lambda i: {"half": str(i // 30) if i < 120 else str(RNG.randint(0, 9))},
}
MIXED: dict[str, Callable[[int], dict[str, Any]]] = {
    "drawn": lambda i: {"source": RNG.choice("abc")},
    "in turn": lambda i: {"source": "abc"[i % 3]},
    "unique": lambda i: {"id": i},
    "one for all": lambda i: {"split": "train"},
    "all but one": lambda i: {"split": "test" if i == 50 else "train"},
    "rarely there": lambda i: {"topic": str(i // 50) if i % 2 else None},
    "none": lambda i: {},
}


@pytest.mark.parametrize("column", GROUPED)
def test_rows_grouped_by_a_column(column: str, tmp_path: Path) -> None:
    (finding,) = checked(tmp_path, GROUPED[column]).findings
    assert finding.severity == "warning"
    assert f"the same {column!r}" in finding.message


@pytest.mark.parametrize("case", MIXED)
def test_columns_that_group_nothing(case: str, tmp_path: Path) -> None:
    report = checked(tmp_path, MIXED[case])
    assert report.findings == ()
    assert ("neighbours with the same" in report.examined[0].figure) is (
        case in ("drawn", "in turn", "all but one", "rarely there")
    )


def test_groups_of_two_are_a_note(tmp_path: Path) -> None:
    (finding,) = checked(tmp_path, lambda i: {"question_id": i // 2}).findings
    assert finding.severity == "info"


def test_a_trainer_that_shuffles_makes_it_a_note(tmp_path: Path) -> None:
    (finding,) = checked(tmp_path, GROUPED["chunk_id"], trained_by="trl").findings
    assert (finding.severity, "shuffles the rows" in finding.evidence[-1]) == ("info", True)
    (finding,) = checked(
        tmp_path, GROUPED["chunk_id"], trained_by="trl", training={"shuffle": False}
    ).findings
    assert finding.severity == "warning"


def test_both_verdicts_are_said(tmp_path: Path) -> None:
    (finding,) = checked(tmp_path, lambda i: {"doc": i // 10, "stars": RNG.randint(1, 5)}).findings
    assert any("'doc'" in line and line.endswith(": grouped") for line in finding.evidence)
    assert any("'stars'" in line and line.endswith("not grouped") for line in finding.evidence)


LABELS = ("praise", "question", "complaint")


def labelled(
    folder: Path, label_of: Callable[[int], str], form: str = "messages"
) -> truetune.Report:
    """The report on rows whose answers are labels, in this order."""
    rows = []
    for i in range(ROWS):
        said, label = " ".join(RNG.choices(WORDS, k=12)), label_of(i)
        turns = [{"role": "user", "content": said}, {"role": "assistant", "content": label}]
        rows.append(
            {"messages": turns}
            if form == "messages"
            else {"prompt": said, "completion": label}
            if form == "pair"
            else {"instruction": said, "input": "", "output": label}
        )
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return truetune.check(data=str(path), tokenizer=str(TOKENIZER), select="rows-grouped-by-source")


@pytest.mark.parametrize("form", ["messages", "pair", "alpaca"])
@pytest.mark.parametrize(
    "label_of",
    [
        lambda i: LABELS[3 * i // ROWS],
        lambda i: "yes" if i < 60 else "no",
        lambda i: f"team {i // 20}",
    ],
    ids=["three", "two", "twelve"],
)
def test_rows_sorted_by_their_answer(
    label_of: Callable[[int], str], form: str, tmp_path: Path
) -> None:
    (finding,) = labelled(tmp_path, label_of, form).findings
    assert "have the same answer" in finding.message
    assert "split without shuffling tests on labels" in finding.message


@pytest.mark.parametrize(
    "label_of",
    [
        lambda i: RNG.choice(LABELS),
        lambda i: LABELS[i % 3],
        lambda i: "yes" if RNG.random() < 0.95 else "no",
        lambda i: f"room {i // 4}",
        lambda i: "the same",
    ],
    ids=["drawn", "in turn", "rare", "no label", "one"],
)
def test_labels_in_any_order_are_no_groups(label_of: Callable[[int], str], tmp_path: Path) -> None:
    assert not labelled(tmp_path, label_of).findings
