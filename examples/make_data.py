"""Write the data sets of these examples from the demo's support chats.

Each stack gets other chats, in the form in which its users keep them: `messages`, ShareGPT turns,
prompt and completion, or a table of instruction and response. `python make_data.py` always writes
the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from truetune.demo import DATA

HERE = Path(__file__).parent
ROWS_PER_STACK = 24
Turn = dict[str, str]
Row = Mapping[str, str | Sequence[Turn]]
SHAREGPT_ROLES = {"system": "system", "user": "human", "assistant": "gpt"}
AXOLOTL_ROLES = {"system": "system", "user": "customer", "assistant": "agent"}
TOPICS = (
    ("delivery", ("arrive", "parcel", "deliver", "shipp", "track")),
    ("returns", ("send back", "return", "broken", "damage")),
    ("payment", ("pay", "invoice", "refund", "card")),
)
"""The desk's tag of a question: the first topic with a word in it."""


def read_chats() -> list[list[Turn]]:
    """Read the demo's chats without tools and without surplus keys."""
    rows = [json.loads(line)["messages"] for line in DATA.read_text(encoding="utf-8").splitlines()]
    return [chat for chat in rows if all(turn.keys() == {"role", "content"} for turn in chat)]


def rename_roles(chat: Sequence[Turn], roles: Mapping[str, str]) -> list[Turn]:
    """Write a chat as ShareGPT does: `from` and `value`, with these names of roles."""
    return [{"from": roles[turn["role"]], "value": turn["content"]} for turn in chat]


def make_table_row(chat: Sequence[Turn]) -> dict[str, str]:
    """Make instruction, response and topic of a chat with one question."""
    question, answer = (turn["content"] for turn in chat)
    named = (topic for topic, words in TOPICS if any(word in question.lower() for word in words))
    return {"instruction": question, "response": answer, "topic": next(named, "other")}


def make_plain_pair(chat: Sequence[Turn]) -> dict[str, str]:
    """Make prompt and completion, both plain strings, of a chat with one question."""
    question, answer = (turn["content"] for turn in chat)
    return {"prompt": question, "completion": answer}


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as JSON Lines."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Write the data set of every stack."""
    chats = read_chats()
    is_pair = [[turn["role"] for turn in chat] == ["user", "assistant"] for chat in chats]
    pairs = [chat for chat, pair in zip(chats, is_pair, strict=True) if pair]
    write_rows(
        HERE / "llama-factory" / "data" / "support.jsonl",
        map(make_table_row, islice(pairs, ROWS_PER_STACK)),
    )
    write_rows(HERE / "trl" / "questions.jsonl", map(make_plain_pair, pairs[ROWS_PER_STACK:]))
    left = iter([chat for chat in chats if chat not in pairs])
    for stack in ("transformers", "unsloth", "lightning", "pytorch"):
        rows = ({"messages": chat} for chat in islice(left, ROWS_PER_STACK))
        write_rows(HERE / stack / "chats.jsonl", rows)
    for stack, roles in (("axolotl", AXOLOTL_ROLES), ("torchtune", SHAREGPT_ROLES)):
        rows = (
            {"conversations": rename_roles(chat, roles)} for chat in islice(left, ROWS_PER_STACK)
        )
        write_rows(HERE / stack / "chats.jsonl", rows)


if __name__ == "__main__":
    main()
