"""The first line of a report on data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune
from truetune.checks.reports import DataReport
from truetune.demo import TOKENIZER
from truetune.report.supervision_headline import supervision_verdict


@pytest.mark.parametrize(
    ("method", "begins"),
    [("grpo", "grpo trains on answers that it samples"), ("sft", "with an ideal mask")],
)
def test_answers_of_the_rows_are_not_said_to_be_learned_where_answers_are_sampled(
    method: str, begins: str, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    row = {"prompt": "What is 2 + 2?", "completion": "4"}
    rows.write_text(json.dumps(row) + "\n", encoding="utf-8")
    report = truetune.check(data=str(rows), tokenizer=str(TOKENIZER), training={"method": method})
    assert isinstance(report, DataReport)
    headline = supervision_verdict(report).plain
    assert headline.startswith(begins), headline
    assert "1 row" in headline or "1 example" in headline
