"""A row that is filled into a recipe is what the template makes of it, whatever its fields hold."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.render.conversations import CONVERSATIONS, SPECIAL, TOOLS
from tests.render.templates import all_templates
from truetune.data.conversation import Conversation, Origin
from truetune.errors import TemplateError
from truetune.render import traced_string
from truetune.render.inference_contract import make_stop_patterns
from truetune.render.renderer import Renderer
from truetune.render.rendering import Run
from truetune.render.reusable_render_recipe import GUARD_QUESTIONS, OPERATIONS
from truetune.render.template import Template
from truetune.render.traced_environment import TRACED_METHODS
from truetune.render.traced_json import traced_tojson
from truetune.render.traced_string import Node, Trace, Traced
from truetune.settings.run_spec import RunSpec

HOSTILE = [
    "",
    " ",
    "\n",
    "\n\n x",
    "x \n",
    "<think>",
    "</think>",
    "<think>\n\n</think>\n\nx",
    "a</think>b</think>c",
    "<tool_response>",
    "<tool_response>x</tool_response>",
    "</tool_response>",
    "<|im_end|>",
    "</s>",
    "<eos>",
    "{{ x }}",
    "{% if %}",
    '"',
    "\\",
    '{"a": 1}',
    "[1]",
    "null",
    "é\u200b😀",
    "a" * 300,
    "<|channel|>analysis",
    "<tool_call>",
    "true",
    "0",
    "[INST]",
    "\u2028",
    "\x00",
    "<channel|>",
    "think",
    "Reasoning: low",
    "/no_think",
]
PARTS = 8
"""The templates are shared out over so many tests: one test of all takes a minute, and can't be shared by workers."""
STOPS = make_stop_patterns(
    ("</s>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>"), ("<|im_start|>", "<|call|>")
)


def refill(value: Any, choose: Any) -> Any:
    """The same shape with other strings."""
    if isinstance(value, dict):
        return {
            key: item if key in ("role", "type") else refill(item, choose)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [refill(item, choose) for item in value]
    return choose() if isinstance(value, str) else value


def hostile(rng: random.Random) -> str:
    return rng.choice(HOSTILE) if rng.random() < 0.5 else "plain text"


def outcome(render: Any, row: Conversation) -> Any:
    try:
        return [(r.text, r.runs_of_text_by_origin, r.spans, r.turns, r.turn) for r in render(row)]
    except TemplateError as error:
        return str(error)


def rows(choose: Any) -> list[Conversation]:
    return [
        Conversation(
            Origin("grid", i, i), "messages", refill(copy.deepcopy(messages), choose), tools=tools
        )
        for i, messages in enumerate(CONVERSATIONS.values())
        for tools in (None, TOOLS)
    ]


@pytest.mark.parametrize("part", range(PARTS))
def test_filled_rows_equal_rendered_rows_on_every_template(part: int) -> None:
    compared = filled = 0
    for name, source in list(all_templates().items())[part::PARTS]:
        try:
            template = Template(source, SPECIAL)
        except TemplateError:
            continue
        rng = random.Random(name)
        renderer = Renderer(template, RunSpec(), STOPS)
        exact = Renderer(template, RunSpec(), STOPS)
        for row in rows(lambda: "plain text"):
            outcome(renderer.render, row)
        for _ in range(2):
            for row in rows(partial(hostile, rng)):
                before = renderer.filled
                made, wanted = (
                    outcome(renderer.render, row),
                    outcome(exact.render_by_template_with_offsets, row),
                )
                filled += renderer.filled - before
                compared += 1
                assert coarse(made) == coarse(wanted), (name, row.messages)
    print({"compared": compared, "filled": filled})
    assert filled > compared / 5


def coarse(result: Any) -> Any:
    """Offsets inside a field are known to the exact rendering alone."""
    return (
        result
        if isinstance(result, str)
        else [(text, [*fields(runs)], *rest) for text, runs, *rest in result]
    )


def fields(runs: list[Run]) -> Iterator[list[Any]]:
    """[start, end, source, path] of neighbours that are of one source and one field."""
    last: list[Any] = []
    for start, end, source, path, _ in runs:
        if last[2:] == [source, path]:
            last[1] = end
        else:
            yield from [last] if last else []
            last = [start, end, source, path]
    yield last


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), min_size=1, max_size=3), st.data()
)
def test_filled_rows_equal_rendered_rows_on_any_text(
    pairs: list[tuple[str, str]], data: st.DataObject
) -> None:
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if '</think>' in m.content and not"
        " loop.last %}{{ m.content.split('</think>')[-1].lstrip('\\n') }}{% elif"
        " m.content.startswith('a') %}{{ m.content | trim }}{% else %}{{ m.content }}{% endif"
        " %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{%"
        " endif %}"
    )
    renderer = Renderer(Template(source), RunSpec(), STOPS)
    for case in (pairs, [(answer, question) for question, answer in pairs]):
        messages = [
            {"role": role, "content": content}
            for pair in case
            for role, content in zip(("user", "assistant"), pair, strict=True)
        ]
        row = Conversation(Origin("any", 1, 0), "messages", messages)
        assert coarse(outcome(renderer.render, row)) == coarse(
            outcome(renderer.render_by_template_with_offsets, row)
        )


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), (9,)),
    **dict.fromkeys(("partition", "rpartition", "removeprefix", "removesuffix"), ("a",)),
    **dict.fromkeys(
        ("startswith", "endswith", "find", "rfind", "index", "rindex", "count"), ("a",)
    ),
    "replace": ("a", "b"),
    "join": (("x", "y"),),
    "__contains__": ("a",),
    "__eq__": ("a",),
    **dict.fromkeys(("__lt__", "__le__", "__gt__", "__ge__"), ("a",)),
    "is_part_of": ("abc",),
    "is_one_of": (("a", "b"),),
}
"""Of the methods that can't be called without any"""


def operations_of(node: Node) -> Iterator[str]:
    while node[0] != "leaf":
        yield node[0]
        node = node[1]


def test_a_recipe_can_evaluate_whatever_a_traced_string_writes() -> None:
    trace = Trace()
    field = traced_string.make_traced_input_string("a b", trace, ("field",))
    results: list[Any] = [field[0], field[1:], field[::-1], traced_tojson(field), bool(field)]
    own = {"__eq__", "is_part_of", "is_one_of"}
    for name in sorted(TRACED_METHODS | own | set(traced_string.QUESTIONS)):
        result = getattr(field, name)(*ARGUMENTS.get(name, ()))
        results += result if isinstance(result, list | tuple) else [result]
    assert not trace.opaque
    parts = [
        part
        for one in results
        if isinstance(one, str)
        for part in traced_string.literal_and_field_parts(one)
    ]
    nodes = [part.node for part in parts if isinstance(part, Traced)]
    nodes += [node for node, _, _ in trace.answers]
    assert {name for node in nodes for name in operations_of(node)} == OPERATIONS.keys()
    assert {question for _, question, _ in trace.answers} == GUARD_QUESTIONS.keys()
