"""Rows made of the turns of conversations, split only then: evaluation rows that begin or continue training rows."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import truetune

Rows = list[dict[str, Any]]


def conversation(number: int, exchanges: int = 4) -> Rows:
    """Messages of one conversation."""
    drawn = random.Random(number)
    messages = []
    for turn in range(exchanges):
        words = [" ".join(f"w{drawn.randrange(900)}" for _ in range(25)) for _ in range(2)]
        messages += [
            {"role": "user", "content": f"Question {number}.{turn} {words[0]}"},
            {"role": "assistant", "content": f"Answer {words[1]}"},
        ]
    return messages


def unrolled(messages: Rows) -> list[Rows]:
    """A row for each answer with all before it."""
    return [messages[: end + 2] for end in range(0, len(messages), 2)]


def found(
    folder: Path, train: list[Rows], held_out: list[Rows], key: str = "messages"
) -> list[str]:
    """What the rule says."""
    for name, rows in (("train", train), ("val", held_out)):
        lines = [json.dumps({key: row}) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    data, evaluation = str(folder / "train.jsonl"), str(folder / "val.jsonl")
    report = truetune.check(data, eval_data=[evaluation], select="ROW006")
    return [one.message for one in report.findings if "conversations" in one.message]


def shuffled(rows: list[Rows]) -> tuple[list[Rows], list[Rows]]:
    """A random split of the rows."""
    rows = random.Random(0).sample(rows, len(rows))
    return rows[20:], rows[:20]


ROWS = [row for number in range(30) for row in unrolled(conversation(number))]


def sharegpt(rows: list[Rows]) -> list[Rows]:
    """The same messages with the names of ShareGPT."""
    names = {"user": "human", "assistant": "gpt"}
    return [[{"from": names[m["role"]], "value": m["content"]} for m in row] for row in rows]


def with_system(rows: list[Rows]) -> list[Rows]:
    """Each row with a system prompt of its own."""
    return [
        [{"role": "system", "content": f"Day {number}."}, *row] for number, row in enumerate(rows)
    ]


@pytest.mark.parametrize("shape", [list, with_system])
def test_turns_of_one_conversation_on_both_sides(
    tmp_path: Path, shape: Callable[[list[Rows]], list[Rows]]
) -> None:
    (message,) = found(tmp_path, *shuffled(shape(ROWS)))
    assert message.startswith("20 of 20 evaluation rows are turns of conversations")


def test_rows_of_sharegpt(tmp_path: Path) -> None:
    train, held_out = shuffled(ROWS)
    assert found(tmp_path, sharegpt(train), sharegpt(held_out), key="conversations")


def test_whole_conversations_beside_their_beginnings(tmp_path: Path) -> None:
    whole = [conversation(number) for number in range(30)]
    assert found(tmp_path, whole, [one[:4] for one in whole[:10]])
    assert found(tmp_path, [one[:2] for one in whole], whole[:10])


GREETING = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello, how can I help?"},
]
OPENING = [
    {"role": "user", "content": "/start"},
    {"role": "assistant", "content": "Welcome to the shop. " * 12},
]


@pytest.mark.parametrize(
    ("train", "held_out"),
    [
        ([conversation(n) for n in range(30)], [conversation(n) for n in range(40, 60)]),
        (
            [GREETING, *([*GREETING, *conversation(n)] for n in range(30))],
            [[*GREETING, *conversation(n)] for n in range(40, 60)],
        ),
        (
            [OPENING, *([*OPENING, *conversation(n)] for n in range(30))],
            [OPENING, *([*OPENING, *conversation(n)] for n in range(40, 60))],
        ),
        (
            [[*conversation(n)[:1], conversation(90 + n)[1]] for n in range(30)],
            [conversation(n) for n in range(20)],
        ),
        (
            [row for n in range(30) for row in unrolled(conversation(n))],
            [row for n in range(40, 50) for row in unrolled(conversation(n))],
        ),
    ],
    ids=["whole", "greeting", "opening", "other answers", "split before"],
)
def test_other_conversations(tmp_path: Path, train: list[Rows], held_out: list[Rows]) -> None:
    assert found(tmp_path, train, held_out) == []
