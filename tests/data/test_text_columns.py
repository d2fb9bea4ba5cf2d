"""The only column of text is read as the text, and nothing is guessed where another may be the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truetune
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.demo import TOKENIZER
from truetune.errors import DataError

LONG = "The lighthouse on the northern cliff was built of grey stone."
TAKEN: dict[str, dict[str, Any]] = {
    "body": {"body": LONG},
    "content": {"id": "a-1", "content": LONG, "url": "https://example.org"},
    "raw_content": {"raw_content": LONG, "digest": 5, "title": "The lighthouse of the north"},
    "markdown": {"markdown": LONG, "created_at": "2024-05-01", "tokens": 12},
    "Inhalt": {"Inhalt": LONG, "docId": "x y z"},
    "abstract": {"abstract": LONG, "year": 1999, "authors": None},
    "story": {"story": LONG, "language": "en", "is_good": True},
    "doc": {"doc": "灯塔矗立在北方的悬崖上，照亮了整个海湾的夜空。"},
    "training_text": {"training_text": LONG, "empty": ""},
    "code": {"code": "def f(x):\n    return x + 1\n", "path": "a/b.py", "repo_name": "a/b"},
}
REFUSED: dict[str, dict[str, Any]] = {
    "two texts": {"problem": LONG, "training_text": LONG},
    "a short answer": {"frage": LONG, "antwort": "Ja."},
    "a state beside it": {"problem": LONG, "state": "CONCLUDE"},
    "an answer in numbers": {"problem": LONG, "answer": 12},
    "a label": {"review": LONG, "label": 1},
    "a word": {"zzz": "a"},
    "a code": {"sku": "A-123-B-456-C-789-D-0"},
    "a list beside it": {"story": LONG, "turns": [{"said": "Hi"}]},
    "a prompt alone": {"prompt": LONG},
    "a question alone": {"question": LONG, "difficulty": 3},
}


def first(folder: Path, row: dict[str, Any]) -> Any:
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    return next(read_conversations([str(folder / "rows.jsonl")]))


@pytest.mark.parametrize("column", TAKEN)
def test_the_only_text_is_the_text(column: str, tmp_path: Path) -> None:
    row = first(tmp_path, TAKEN[column])
    assert (row.format, row.text) == ("text", TAKEN[column][column])
    report = truetune.check(
        data=str(tmp_path / "rows.jsonl"), tokenizer=str(TOKENIZER), select="text-column-guessed"
    )
    assert repr(column) in report.findings[0].message


@pytest.mark.parametrize("case", REFUSED)
def test_nothing_is_guessed(case: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no format fits the columns.*--map"):
        first(tmp_path, REFUSED[case])


def test_the_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--map prompt=problem --map completion=training_text"):
        first(tmp_path, {"problem": LONG, "state": "CONCLUDE", "training_text": LONG + LONG})
