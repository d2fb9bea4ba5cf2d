"""Edits of JSON text: what changes, and that nothing else does."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from truetune.fixing.row_edits import (
    Edit,
    EditError,
    PutValue,
    RemoveEntry,
    RemoveRepeatedKey,
    RenameKey,
    edit_json_text,
    edit_table_value,
    find_repeated_keys_in_json,
    json_text_at_path,
)


@pytest.mark.parametrize(
    ("text", "edit", "after"),
    [
        ('{"a": 1.0, "b": 1e5}', PutValue(("b",), "x"), '{"a": 1.0, "b": "x"}'),
        ('{ "a" :\t"x" }', PutValue(("a",), "y"), '{ "a" :\t"y" }'),
        (r'{"a":"caf\u00e9 \/ bot"}', PutValue(("a",), "café / bit"), r'{"a":"caf\u00e9 \/ bit"}'),
        (
            r'{"a":"\ud83d\ude00 \ud83d!"}',
            PutValue(("a",), "😀 \ufffd!"),
            r'{"a":"\ud83d\ude00 \ufffd!"}',
        ),
        ('{"a":"é"}', PutValue(("a",), "éü"), '{"a":"éü"}'),
        ('{"a":"e"}', PutValue(("a",), "eü"), r'{"a":"e\u00fc"}'),
        ('{"a":1}', PutValue(("b",), ""), '{"a":1, "b":""}'),
        ('{"a":1,"c":2}', PutValue(("b",), ""), '{"a":1,"c":2,"b":""}'),
        (
            '{\n  "a": 1,\n  "c": 2\n}',
            PutValue(("b",), []),
            '{\n  "a": 1,\n  "c": 2,\n  "b": []\n}',
        ),
        ('{\n  "a": 1\n}', PutValue(("b",), ""), '{\n  "a": 1,\n  "b": ""\n}'),
        ("{}", PutValue(("b",), 1), '{"b": 1}'),
        ('{"a": {"x": 1}}', PutValue(("a",), None, "[ 1.50 ]"), '{"a": [ 1.50 ]}'),
        (
            '{"from": "x", "value": "y"}',
            RenameKey(("from",), "role"),
            '{"role": "x", "value": "y"}',
        ),
        ('{"a": [1, 2, 3]}', RemoveEntry(("a", 1)), '{"a": [1, 3]}'),
        ('{"a": [1, 2, 3]}', RemoveEntry(("a", 2)), '{"a": [1, 2]}'),
        ('{"a": 1, "b": 2}', RemoveEntry(("a",)), '{"b": 2}'),
        ('{"a": 1}', RemoveEntry(("a",)), "{}"),
        ('{"a":1,"b":0,"a":2}', RemoveRepeatedKey((), "a"), '{"b":0,"a":2}'),
        (
            r'{"m": "[{\"role\": \"bot\"}]"}',
            PutValue(("m", 0, "role"), "assistant"),
            r'{"m": "[{\"role\": \"assistant\"}]"}',
        ),
        (
            r'{"m": "{\"s\": \"{\\\"k\\\": 1}\"}"}',
            PutValue(("m", "s", "k"), 2),
            r'{"m": "{\"s\": \"{\\\"k\\\": 2}\"}"}',
        ),
        (r'{"m": "{\"k\":1,\"k\":1}"}', RemoveRepeatedKey(("m",), "k"), r'{"m": "{\"k\":1}"}'),
    ],
)
def test_an_edit_changes_its_place_alone(text: str, edit: Edit, after: str) -> None:
    assert edit_json_text(text, edit) == after


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ('{"a": 1}', RenameKey(("b",), "c")),
        ('{"a": 1}', RemoveEntry(("b",))),
        ('{"a": 1}', PutValue(("a", "b"), 1)),
        ('{"a": "no JSON"}', PutValue(("a", "b"), 1)),
        ('{"a": [1]}', PutValue(("a", 4), 1)),
        ("{broken", PutValue(("a",), 1)),
    ],
)
def test_what_is_not_there_is_an_error(text: str, edit: Edit) -> None:
    with pytest.raises(EditError):
        edit_json_text(text, edit)


def test_text_and_values_are_edited_alike() -> None:
    """Random documents, random places: the text says what the value says, and all other places keep their spelling."""
    draw = random.Random(4)
    for _ in range(400):
        value = {"k": _random(draw, 4), "l": _random(draw, 3)}
        text = json.dumps(value, ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, 1]))
        places = list(_places(value, ()))
        path = draw.choice(places)
        new = draw.choice(["", 'é\n"😀', 5, None, {"z": [1]}])
        after = edit_json_text(text, PutValue(path, new))
        assert json.loads(after) == edit_table_value(value, PutValue(path, new))
        for other in places:
            if other[: len(path)] != path and path[: len(other)] != other:
                assert json_text_at_path(after, other) == json_text_at_path(text, other)


def _random(draw: random.Random, depth: int) -> Any:
    kind = draw.randrange(5 if depth else 3)
    if kind == 0:
        return "".join(draw.choice('a"\\\n/é😀\u2028') for _ in range(draw.randrange(6)))
    if kind == 1:
        return draw.choice([0, 1.5, -3, None, True])
    if kind == 2:
        return "x"
    if kind == 3:
        return [_random(draw, depth - 1) for _ in range(draw.randrange(1, 4))]
    return {f"k{i}": _random(draw, depth - 1) for i in range(draw.randrange(1, 4))}


def _places(value: Any, path: tuple[str | int, ...]) -> Any:
    if path:
        yield path
    steps = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for step, item in steps:
        yield from _places(item, (*path, step))


def test_keys_that_stand_twice_are_found_where_they_stand() -> None:
    text = '{"a": [{"k": 1, "k": 1.0}], "b": {"k": 1, "k": 2}, "c": {"k": 1}}'
    assert list(find_repeated_keys_in_json(text)) == [(("a", 0), "k", True), (("b",), "k", True)]
    assert list(find_repeated_keys_in_json('{"k": {"x": 1, "y": 2}, "k": {"y": 2, "x": 1}}')) == [
        ((), "k", False)
    ]
