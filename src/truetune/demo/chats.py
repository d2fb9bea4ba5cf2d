"""The support chats of the demo, drawn from `support.yaml`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

from truetune.data.conversation import Message
from truetune.parsing.yaml_reader import parse_yaml

Row = dict[str, Any]


@cache
def bank() -> dict[str, Any]:
    """`support.yaml`."""
    loaded: dict[str, Any] = parse_yaml(
        Path(__file__).with_name("support.yaml").read_text("utf-8")
    ).value
    return loaded


def chats(rows: int, rng: Random) -> list[Row]:
    """That many chats of one to three turns, no two with the same first question, the topics mixed."""
    makers: list[Callable[[Random], Row]] = [
        partial(_tool_chat, state) for state in bank()["tool"]["states"]
    ]
    plain = [
        partial(_chat, topic, ask, reply, detail)
        for topic in bank()["topics"].values()
        for ask, reply in topic["asks"]
        for detail in topic["details"]
    ]
    makers += rng.sample(plain, rows - len(makers))
    made: dict[str, Row] = {}
    for make in rng.sample(makers, rows):
        while (question := first_question(row := make(rng))) in made:
            pass
        made[question] = row
    return list(made.values())


def first_question(row: Row) -> str:
    """What the customer asks first."""
    return next(str(message["content"]) for message in row["messages"] if message["role"] == "user")


def _chat(topic: dict[str, Any], ask: str, reply: str, detail: str, rng: Random) -> Row:
    slots = _slots(rng)
    answer = f"{rng.choice(bank()['openings'])}{reply} {detail}{rng.choice(bank()['closings'])}"
    turns = [
        (_question(ask, rng), answer),
        *rng.sample(topic["then"], rng.choice((0, 0, 0, 1, 1, 2))),
    ]
    system = rng.choice((None, None, *bank()["systems"]))
    messages = [{"role": "system", "content": system}] if system else []
    for asked, replied in turns:
        messages += _turn(asked.format(**slots), replied.format(**slots))
    return {"messages": messages}


def _question(ask: str, rng: Random) -> str:
    greeting: str = rng.choice(bank()["greetings"])
    ending: str = rng.choice(bank()["endings"])
    return (greeting + ask if greeting else ask[0].upper() + ask[1:]) + ending


def _turn(asked: str, replied: str) -> list[Message]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": replied}]


def _tool_chat(state: dict[str, str], rng: Random) -> Row:
    tool, slots = bank()["tool"], _slots(rng)
    question, answer = _turn(
        _question(rng.choice(tool["asks"]), rng).format(**slots), state["says"].format(**slots)
    )
    call = {
        "type": "function",
        "function": {"name": tool["name"], "arguments": {"order": slots["order"]}},
    }
    return {
        "messages": [
            question,
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {
                "role": "tool",
                "content": f'{{"order": {slots["order"]}, "status": "{state["status"]}"}}',
            },
            answer,
        ],
        "tools": [_schema(tool)],
    }


def _schema(tool: dict[str, Any]) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {"order": {"type": "integer"}},
        "required": ["order"],
    }
    described = {"name": tool["name"], "description": tool["description"], "parameters": parameters}
    return {"type": "function", "function": described}


def _slots(rng: Random) -> dict[str, Any]:
    return {
        "order": rng.randrange(10_000, 100_000),
        "days": rng.randrange(2, 15),
        "amount": rng.randrange(12, 190),
        "name": rng.choice(bank()["names"]),
        "city": rng.choice(bank()["cities"]),
        "item": rng.choice(bank()["items"]),
    }
