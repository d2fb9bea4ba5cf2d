"""Conversations that were written as one row for each answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import truetune

Row = dict[str, Any]
CONVERSATIONS = 12


def _turns(conversation: int, answers: int) -> list[Row]:
    turns: list[Row] = []
    for n in range(answers):
        turns.append({"role": "user", "content": f"Question {n} about the boat {conversation}?"})
        turns.append({"role": "assistant", "content": f"Answer {n} on the boat {conversation}."})
    return turns


def _unrolled(answers: int) -> list[Row]:
    """Each conversation as one row for each of its answers."""
    return [
        {"messages": _turns(conversation, until)}
        for conversation in range(CONVERSATIONS)
        for until in range(1, answers + 1)
    ]


def _findings(folder: Path, rows: list[Row], **given: Any) -> list[Any]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [one for one in truetune.check(path, **given).findings if one.code == "ROW071"]


def test_all_answers_of_the_beginnings_are_learned(tmp_path: Path) -> None:
    (found,) = _findings(tmp_path, _unrolled(4))
    assert (found.count, found.total, found.severity) == (36, 48, "warning")
    assert "up to 4 times" in found.message


def test_the_order_of_the_rows_changes_nothing(tmp_path: Path) -> None:
    (found,) = _findings(tmp_path, _unrolled(3)[::-1])
    assert found.count == 24


def test_the_last_answer_alone_is_learned(tmp_path: Path) -> None:
    assert not _findings(tmp_path, _unrolled(4), learn="last")


@pytest.mark.parametrize("mark", [{"train": False}, {"weight": 0}])
def test_earlier_answers_that_are_marked_are_not_learned(mark: Row, tmp_path: Path) -> None:
    rows = _unrolled(4)
    for row in rows:
        for message in row["messages"][:-1]:
            if message["role"] == "assistant":
                message.update(mark)
    assert not _findings(tmp_path, rows)


def test_prompts_of_their_own_are_not_learned(tmp_path: Path) -> None:
    rows = [
        {"prompt": row["messages"][:-1], "completion": row["messages"][-1:]} for row in _unrolled(4)
    ]
    assert not _findings(tmp_path, rows)


@pytest.mark.parametrize("answers", [1, 3])
def test_conversations_of_one_row_each(answers: int, tmp_path: Path) -> None:
    rows = [{"messages": _turns(conversation, answers)} for conversation in range(CONVERSATIONS)]
    assert not _findings(tmp_path, rows)


def test_a_common_greeting_is_no_conversation_in_several_rows(tmp_path: Path) -> None:
    hello = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
    rows = [{"messages": [*hello, *_turns(n, 2)]} for n in range(CONVERSATIONS)]
    assert not _findings(tmp_path, rows)


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=6), data=st.data())
def test_each_beginning_is_counted_once(
    lengths: list[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The rows that are found are those which are a beginning of another, whatever is left out."""
    rows, beginnings = [], 0
    for conversation, length in enumerate(lengths):
        kept = data.draw(st.sets(st.integers(1, length), min_size=1))
        rows += [{"messages": _turns(conversation, until)} for until in sorted(kept)]
        beginnings += len(kept) - 1
    found = _findings(tmp_path_factory.mktemp("rows"), rows)
    is_enough = beginnings >= min(2, max(1, len(rows) // 2))
    assert [one.count for one in found] == ([beginnings] if is_enough else [])
