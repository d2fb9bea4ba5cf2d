"""Evaluation rows whose answers were trained on: rows that were rephrased, and split only then."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

WORDS = ("order", "parcel", "late", "refund", "please", "shoes", "cable", "invoice", "box", "card")
Row = Mapping[str, Any]


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def rephrased(key: str, rows: int = 40, *, answer_words: int = 20) -> list[Row]:
    """Five questions to each of the answers."""
    rng = random.Random(5)
    made: list[Row] = []
    for entry in range(rows // 5):
        answer = f"{words(rng, answer_words)} {entry}"
        made += [
            {"prompt": f"{words(rng, 12)} {n}?", "completion": answer, key: f"faq-{entry}"}
            for n in range(5)
        ]
    rng.shuffle(made)
    return made


def split_by_row(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    return list(rows[: len(rows) * 3 // 4]), list(rows[len(rows) * 3 // 4 :])


def messages_of(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "messages": [
                {"role": "user", "content": row["prompt"]},
                {"role": "assistant", "content": row["completion"]},
            ]
        }
        for row in rows
    ]


def told(folder: Path, train: Sequence[Row], evaluation: Sequence[Row]) -> list[tuple[str, str]]:
    """(message, remedy) of what is found of answers on both sides."""
    for name, rows in (("train", train), ("eval", evaluation)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    spec = RunSpec(eval_data=(str(folder / "eval.jsonl"),))
    report = check_paths([str(folder / "train.jsonl")], spec)
    return [
        (finding.message, finding.remedy)
        for finding in report.findings
        if finding.rule == "train-eval-leak" and "have the same answer" in finding.message
    ]


@pytest.mark.parametrize("key", ["faq_id", "group", "Artikel"])
def test_the_column_that_tells_the_groups_is_named(key: str, tmp_path: Path) -> None:
    train, evaluation = split_by_row(rephrased(key, 200))
    ((message, remedy),) = told(tmp_path, train, evaluation)
    assert message.startswith("50 of 50 evaluation rows")
    assert f"split by {key}," in remedy


def test_without_a_column_the_rows_are_told_all_the_same(tmp_path: Path) -> None:
    train, evaluation = split_by_row(messages_of(rephrased("faq_id", 200)))
    ((_, remedy),) = told(tmp_path, train, evaluation)
    assert "by the source that the rows were made from" in remedy


def test_half_of_the_rows_is_enough(tmp_path: Path) -> None:
    train, evaluation = split_by_row(rephrased("faq_id", 200))
    rng = random.Random(9)
    fresh = [
        {"prompt": f"{words(rng, 12)}?", "completion": f"{words(rng, 20)} new", "faq_id": f"n{n}"}
        for n in range(40)
    ]
    assert told(tmp_path, train, [*evaluation, *fresh])


def silent_cases() -> dict[str, tuple[Sequence[Row], Sequence[Row]]]:
    """Splits that are sound."""
    by_group = sorted(rephrased("faq_id", 200), key=lambda row: str(row["faq_id"]))
    short = rephrased("faq_id", 200, answer_words=2)
    set_phrases = [
        {
            **row,
            "completion": f"Thank you for your message; {WORDS[n % 4]} will answer it within two working days.",
        }
        for n, row in enumerate(rephrased("faq_id", 200))
    ]
    train, evaluation = split_by_row(rephrased("faq_id", 200))
    rng = random.Random(11)
    mostly_fresh = [
        {"prompt": f"{words(rng, 12)}?", "completion": f"{words(rng, 20)} {n}"} for n in range(60)
    ]
    own = [{**row, "completion": f"{row['completion']} {n}"} for n, row in enumerate(by_group)]
    return {
        "split by group": (by_group[:150], by_group[150:]),
        "short answers": split_by_row(short),
        "set phrases": split_by_row(set_phrases),
        "few of many": (train, [*evaluation[:12], *mostly_fresh]),
        "answers of their own": split_by_row(own),
    }


@pytest.mark.parametrize("name", silent_cases())
def test_sound_splits_are_silent(name: str, tmp_path: Path) -> None:
    assert told(tmp_path, *silent_cases()[name]) == []
