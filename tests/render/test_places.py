"""The place of a text is the file's: slicing the row's own field by it gives the text, for every format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.render.conversations import SPECIAL
from truetune.data.conversation import Conversation, Origin
from truetune.data.find_data_files import DataFile
from truetune.data.read_file_records import Record
from truetune.data.read_rows_as_conversations import conversations_of_records
from truetune.render.inference_contract import make_stop_patterns
from truetune.render.renderer import Renderer
from truetune.render.template import Template
from truetune.render.text_origins_in_file import JOINED, READ_AS, TextOrigin, text_origins
from truetune.settings.run_spec import RunSpec

CHATML = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}"
    "{% for call in m.tool_calls or [] %}{{ call | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Texts = list[str]
Row = dict[str, Any]


def call(name: str, said: str) -> Row:
    return {"type": "function", "function": {"name": name, "arguments": {"said": said}}}


def said(*texts: str, role: str = "role", content: str = "content") -> list[Row]:
    return [{role: ("user", "assistant")[i % 2], content: text} for i, text in enumerate(texts)]


ROWS: dict[str, Callable[[Texts], Row]] = {
    "messages": lambda t: {"messages": said(*t[:2]), "system": t[2], "id": t[0]},
    "messages as JSON": lambda t: {"dialogue": json.dumps(said(*t))},
    "a system turn": lambda t: {"messages": [{"role": "system", "content": t[0]}, *said(*t[1:3])], "system": t[3]},
    "parts": lambda t: {"messages": [{"role": "user", "content": [{"type": "text", "value": x} for x in t[:2]]},
                                     {"role": "assistant", "content": t[2]}]},
    "sharegpt": lambda t: {"conversations": [{"from": name, "value": text}
                                             for name, text in zip(("human", "gpt") * 2, t, strict=True)]},
    "sharegpt with calls": lambda t: {
        "conversations": [
            {"from": "human", "value": t[0]},
            {"from": "function_call", "value": json.dumps({"name": "f", "arguments": {"said": t[1]}})},
            {"from": "observation", "value": t[2]}, {"from": "gpt", "value": t[3]}],
        "tools": json.dumps([{"name": "f", "description": t[1]}])},
    "calls": lambda t: {"messages": [*said(t[0]), {"role": "assistant", "content": "",
                                                   "tool_calls": [call("f", t[1])]}]},
    "calls as JSON": lambda t: {"messages": [*said(t[0]), {"role": "assistant", "content": None,
                                                           "tool_calls": json.dumps([call("f", t[1])])}]},
    "alpaca": lambda t: {"instruction": t[0], "input": t[1], "output": t[2], "system": t[3]},
    "alpaca by other names": lambda t: {"query": t[0], "response": t[1]},
    "alpaca with history": lambda t: {"instruction": t[0], "history": [[t[1], t[2]]], "output": t[3]},
    "prompt and completion": lambda t: {"prompt": t[0], "completion": t[1]},
    "a chat and its completion": lambda t: {"prompt": said(*t[:3]), "completion": t[3]},
    "text": lambda t: {"text": t[0]},
    "pair": lambda t: {"prompt": t[0], "chosen": t[1], "rejected": t[2]},
    "pair without a prompt": lambda t: {"chosen": t[0] + t[1], "rejected": t[0] + t[2]},
    "pair of chats": lambda t: {"chosen": said(t[0], t[1]), "rejected": said(t[0], t[2]), "system": t[3]},
    "pair with a chat before": lambda t: {"conversations": [{"from": "human", "value": t[0]}],
                                          "chosen": {"from": "gpt", "value": t[1]},
                                          "rejected": {"from": "gpt", "value": t[2]}},
    "kto": lambda t: {"prompt": said(t[0]), "completion": said("", t[1])[1:], "label": True},
    "kto of alpaca": lambda t: {"instruction": t[0], "output": t[1], "kto_tag": False},
}  # fmt: skip
MAPPED: dict[str, tuple[Row, dict[str, str]]] = {
    "alpaca": ({"frage": "who?", "antwort": "me", "output": "not this"}, {"instruction": "frage", "output": "antwort"}),
    "messages": ({"my turns": said("who?", "me")}, {"messages": "my turns"}),
    "sides exchanged": ({"prompt": "who?", "chosen": "me", "rejected": "you"},
                        {"chosen": "rejected", "rejected": "chosen"}),
}  # fmt: skip
TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    [
        'say "hi"',
        "a\\b\n",
        " two ",
        "[1]",
        '{"a": "b"}',
        "same",
        "same",
        "é👩\u200d👩",
        '[{"role": "user"}]',
    ]
)


@cache
def renderer() -> Renderer:
    return Renderer(
        Template(CHATML, SPECIAL),
        RunSpec(),
        make_stop_patterns(("<|im_end|>",), ()),
        bos="<s>",
        eos="</s>",
    )


def read(row: Row, **more: Any) -> Conversation:
    (made,) = conversations_of_records(
        [Record(1, row)], DataFile(Path("a.jsonl"), "jsonl"), 0, **more
    )
    return made


def spell_origins(row: Conversation) -> Iterator[tuple[str, TextOrigin]]:
    """Each text that is not the template's, of both sides, and its place."""
    for side in (row, row.with_sides_exchanged()) if row.rejected is not None else (row,):
        for rendering in renderer().render_by_template_with_offsets(side):
            found = text_origins(side, rendering)
            assert [place.start for place in found[1:]] == [place.end for place in found[:-1]]
            assert (
                (found[0].start, found[-1].end) == (0, len(rendering.text))
                if found
                else not rendering.text
            )
            yield from (
                (rendering.text[place.start : place.end], place) for place in found if place.path
            )


def field(row: Any, path: str) -> Any:
    """What stands at a path; JSON is taken for what it holds."""
    for name in re.findall(r"[^.\[\]]+", path):
        row = json.loads(row) if isinstance(row, str) else row
        row = row[int(name)] if isinstance(row, list) else row[name]
    return row


def check(row: Row, made: Conversation) -> int:
    """The number of characters whose place is known."""
    known = 0
    for text, place in spell_origins(made):
        if place.path == JOINED:
            assert text == "\n\n"
        elif place.offset >= 0:
            assert field(row, place.path)[place.offset : place.offset + len(text)] == text, place
            known += len(text)
        else:
            assert place.path.startswith(READ_AS) or field(row, place.path) is not None, place
    return known


@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=25, deadline=None)
@given(st.lists(TEXT, min_size=4, max_size=4))
def test_slicing_the_field_gives_the_text(name: str, texts: Texts) -> None:
    row = ROWS[name](texts)
    check(row, read(row))


@pytest.mark.parametrize("name", ROWS)
def test_the_place_of_each_text_is_known(name: str) -> None:
    row = ROWS[name](["who is it?", "me", "you", "they"])
    made = read(row)
    assert all(place.offset >= 0 or place.path == JOINED for _, place in spell_origins(made))
    assert check(row, made)
    columns = {re.split(r"[.\[]", place.path)[0] for _, place in spell_origins(made)} - {JOINED}
    assert columns == row.keys() - {
        "id",
        "label",
        "kto_tag",
        *(["system"] if name == "a system turn" else []),
    }


@pytest.mark.parametrize("name", MAPPED)
def test_columns_are_called_as_the_file_calls_them(name: str) -> None:
    row, columns = MAPPED[name]
    made = read(row, columns=columns)
    assert check(row, made)
    assert {re.split(r"[.\[]", place.path)[0] for _, place in spell_origins(made)} == row.keys() - {
        "output"
    }


def test_sides_that_are_the_same_have_places_of_their_own() -> None:
    found = [
        place.path
        for text, place in spell_origins(read({"prompt": "q", "chosen": "a", "rejected": "a"}))
        if text == "a"
    ]
    assert found == ["chosen", "rejected"]


def test_what_is_joined_names_each_column() -> None:
    row = read({"instruction": "add", "input": "1 1", "output": "2"})
    assert [
        (text, place.path, place.offset, place.message) for text, place in spell_origins(row)
    ] == [
        ("add", "instruction", 0, 0),
        ("\n\n", JOINED, -1, 0),
        ("1 1", "input", 0, 0),
        ("2", "output", 0, 1),
    ]


def test_what_a_template_escapes_has_no_offset_and_what_follows_has() -> None:
    row = read(
        {
            "messages": [
                *said("q"),
                {"role": "assistant", "content": "", "tool_calls": [call("f", 'a"b')]},
            ]
        }
    )
    path = "messages[1].tool_calls[0].function.arguments.said"
    assert [(text, place.offset) for text, place in spell_origins(row) if place.path == path] == [
        ("a", 0),
        ('\\"', -1),
        ("b", 2),
    ]


def test_a_text_that_was_made_otherwise_does_not_pretend() -> None:
    row = read(
        {
            "messages": [
                {"role": "user", "content": {"a": "b"}},
                {"role": "assistant", "content": "c"},
            ]
        }
    )
    assert [(text, place.path, place.offset) for text, place in spell_origins(row)] == [
        ('{"a": "b"}', f"{READ_AS}messages[0].content", -1),
        ("c", "messages[1].content", 0),
    ]


def test_a_row_from_no_file_has_its_own_paths() -> None:
    row = Conversation(Origin("a", 1, 0), "messages", said("q", "a"))
    assert [place.path for _, place in spell_origins(row)] == [
        "messages[0].content",
        "messages[1].content",
    ]
