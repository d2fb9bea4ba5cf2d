"""Makes the support chats of the demo, drawn from `support.yaml`.

Every choice is drawn from one generator in a fixed order, so that the same seed gives the same bytes. The trade-off:
phrases from a bank read alike, as no real chats do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

from truetune.data.conversation import Message
from truetune.parsing.parse_yaml_within_limits import parse_yaml

Row = dict[str, Any]


@cache
def load_phrases() -> dict[str, Any]:
    """The phrases of `support.yaml`."""
    loaded: dict[str, Any] = parse_yaml(
        Path(__file__).with_name("support.yaml").read_text("utf-8")
    ).value
    return loaded


def make_chats(count: int, rng: Random) -> list[Row]:
    """Make `count` chats of one to three turns, no two with the same first question, the topics
    mixed.
    """
    makers: list[Callable[[Random], Row]] = [
        partial(_make_tool_chat, state) for state in load_phrases()["tool"]["states"]
    ]
    plain = [
        partial(_make_chat, topic, ask, reply, detail)
        for topic in load_phrases()["topics"].values()
        for ask, reply in topic["asks"]
        for detail in topic["details"]
    ]
    # Every state of an order once; the rest are chats about topics.
    makers += rng.sample(plain, count - len(makers))
    by_question: dict[str, Row] = {}
    for make in rng.sample(makers, count):
        row = make(rng)
        # Drawn again until it is new: equal questions would be findings that nobody has planted.
        while first_question(row) in by_question:
            row = make(rng)
        by_question[first_question(row)] = row
    return list(by_question.values())


def first_question(row: Row) -> str:
    """The first question of the customer in a chat."""
    return next(str(message["content"]) for message in row["messages"] if message["role"] == "user")


def _make_chat(topic: dict[str, Any], ask: str, reply: str, detail: str, rng: Random) -> Row:
    """Make a chat about a topic: a first question, and none to two more."""
    slots = _draw_slots(rng)
    answer = f"{rng.choice(load_phrases()['openings'])}{reply} {detail}{rng.choice(load_phrases()['closings'])}"
    turns = [
        (_perhaps_add_greeting_and_ending(ask, rng), answer),
        *rng.sample(topic["then"], rng.choice((0, 0, 0, 1, 1, 2))),
    ]
    # Rows with and without a system message: a template may treat them otherwise.
    system = rng.choice((None, None, *load_phrases()["systems"]))
    messages = [{"role": "system", "content": system}] if system else []
    for question, replied in turns:
        messages += _make_turn(question.format(**slots), replied.format(**slots))
    return {"messages": messages}


def _perhaps_add_greeting_and_ending(ask: str, rng: Random) -> str:
    """A question with a greeting before it and an ending after it, each perhaps."""
    greeting: str = rng.choice(load_phrases()["greetings"])
    ending: str = rng.choice(load_phrases()["endings"])
    # Without a greeting, the question begins the sentence.
    return (greeting + ask if greeting else ask[0].upper() + ask[1:]) + ending


def _make_turn(question: str, answer: str) -> list[Message]:
    """A question and its answer as messages."""
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _make_tool_chat(state: dict[str, str], rng: Random) -> Row:
    """Make a chat in which the assistant asks a tool for an order."""
    tool, slots = load_phrases()["tool"], _draw_slots(rng)
    question, answer = _make_turn(
        _perhaps_add_greeting_and_ending(rng.choice(tool["asks"]), rng).format(**slots),
        state["says"].format(**slots),
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
        "tools": [_tool_schema(tool)],
    }


def _tool_schema(tool: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a tool."""
    parameters = {
        "type": "object",
        "properties": {"order": {"type": "integer"}},
        "required": ["order"],
    }
    described = {"name": tool["name"], "description": tool["description"], "parameters": parameters}
    return {"type": "function", "function": described}


def _draw_slots(rng: Random) -> dict[str, Any]:
    """Draw the values for the gaps of the phrases."""
    return {
        "order": rng.randrange(10_000, 100_000),
        "days": rng.randrange(2, 15),
        "amount": rng.randrange(12, 190),
        "name": rng.choice(load_phrases()["names"]),
        "city": rng.choice(load_phrases()["cities"]),
        "item": rng.choice(load_phrases()["items"]),
    }
