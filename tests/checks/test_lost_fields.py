"""A field that reaches no token is found whatever the template is, and what reaches one is never called lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests import parts
from truetune.checks.findings import Finding
from truetune.checks.reports import DataReport
from truetune.demo import TOKENIZER
from truetune.errors import DataError

CALL = [{"type": "function", "function": {"name": "opening_hours", "arguments": {"day": "Monday"}}}]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "opening_hours", "description": "When it is open", "parameters": {}},
    }
]
TURN = "<|im_start|>{{ m.role }}\n{% BODY %}<|im_end|>\n"
CONTENT = "{{ m.content or '' }}"
BY_PARTS = (
    "{{% if m.content is string %}}{{{{ m.content }}}}{{% else %}}"
    "{{% for p in m.content %}}{{{{ {} }}}}{{% endfor %}}{{% endif %}}"
)
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def template(body: str = CONTENT, before: str = "", loop: str = "{% for m in messages %}") -> str:
    return before + loop + TURN.replace("{% BODY %}", body) + "{% endfor %}" + PROMPT


def row(
    answer: dict[str, Any], more: list[dict[str, Any]] | None = None, **beside: Any
) -> dict[str, Any]:
    question = {"role": "user", "content": "Is it open on Monday?"}
    return {"messages": [question, {"role": "assistant", **answer}, *(more or [])], **beside}


def found(folder: Path, source: str, *rows: dict[str, Any], **settings: Any) -> list[Finding]:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "own.jinja").write_text(source)
    report = truetune.check(
        data=str(folder / "rows.jsonl"),
        tokenizer=str(TOKENIZER),
        template=str(folder / "own.jinja"),
        select="field-reaches-no-token",
        **settings,
    )
    assert not any("field" in part.what for part in report.not_judged if part.asked), (
        report.not_judged
    )
    return list(report.findings)


OTHER_CALL = {"type": "function", "function": {"name": "prices", "arguments": {"what": "lunch"}}}
ONLY_A_CALL = row({"content": "", "tool_calls": CALL})
RESULT = [
    {"role": "tool", "content": "Nine to five."},
    {"role": "assistant", "content": "From nine."},
]
NO_TOOL_TURNS = "{% for m in messages if m.role != 'tool' %}"
LOST = {
    "the second of two calls": (
        template(CONTENT + "{{ m.tool_calls[0] | tojson if m.tool_calls }}"),
        row({"content": "", "tool_calls": [*CALL, OTHER_CALL]}),
        "error",
        "some of several tool_calls of 1 row",
    ),
    "tools by name alone": (
        template(before="{% for t in tools or [] %}{{ t.function.name }} {% endfor %}"),
        row({"content": "Yes."}, tools=TOOLS),
        "warning",
        "descriptions of tools of 1 row",
    ),
    "a call, nothing left": (template(), ONLY_A_CALL, "error", "tool_calls of 1 row"),
    "a call, words left": (
        template(),
        row({"content": "One moment.", "tool_calls": CALL}),
        "error",
        "tool_calls",
    ),
    "an old function_call": (
        template(),
        row({"content": "", "function_call": CALL[0]["function"]}),
        "error",
        "function_call",
    ),
    "a call named in prose alone": (
        template(),
        row({"content": "The opening_hours on Monday ...", "tool_calls": CALL}),
        "error",
        "tool_calls",
    ),
    "a call of a turn that is skipped": (
        template(loop="{% for m in messages if not m.tool_calls %}"),
        row({"content": "", "tool_calls": CALL}, RESULT),
        "error",
        "tool_calls",
    ),
    "a call beside a null content": (
        template(),
        row({"content": None, "tool_calls": CALL}),
        "error",
        "tool_calls",
    ),
    "a call of a turn that is not learned": (
        template(),
        row({"content": "", "tool_calls": CALL, "train": False}, RESULT),
        "warning",
        "tool_calls",
    ),
    "definitions": (template(), row({"content": "Yes."}, tools=TOOLS), "warning", "tools"),
    "documents": (
        template(),
        row({"content": "Yes."}, documents=[{"title": "Hours", "text": "Nine to five"}]),
        "warning",
        "documents",
    ),
    "results": (
        template(loop=NO_TOOL_TURNS),
        row({"content": "One moment."}, RESULT),
        "warning",
        "tool results",
    ),
    "the system prompt": (
        template(loop="{% for m in messages if m.role != 'system' %}"),
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                *row({"content": "Yes."})["messages"],
            ]
        },
        "warning",
        "system content",
    ),
    "reasoning alone": (
        template(),
        row({"content": "", "reasoning_content": "Monday is no holiday."}),
        "error",
        "reasoning_content",
    ),
    "images": (
        template(BY_PARTS.format("p.text")),
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "image": "a.png"},
                        {"type": "text", "text": "What is it?"},
                    ],
                },
                {"role": "assistant", "content": "A door."},
            ]
        },
        "warning",
        "images",
    ),
    "names": (
        template(),
        {
            "messages": [
                {"role": "user", "name": "Ada", "content": "Hi"},
                {"role": "assistant", "content": "Hello."},
            ]
        },
        "info",
        "names",
    ),
    "sentences under a key of one's own": (
        template(),
        row({"content": "Yes.", "rationale": "The shop opens on each Monday that is no holiday."}),
        "info",
        "rationale",
    ),
}


@pytest.mark.parametrize("case", LOST)
def test_what_no_token_comes_from_is_found(case: str, tmp_path: Path) -> None:
    source, one, severity, field = LOST[case]
    (finding,) = found(tmp_path, source, one, row({"content": "It is open."}))
    assert (finding.severity, finding.count) == (severity, 1)
    assert finding.message.startswith(field)


JSON_CALL = '<tool_call>{"name": "opening_hours", "arguments": {"day": "Monday"}}</tool_call>'
BY_STRING = "{{ m.content or '' }}{% if m.tool_calls %}{{ m.tool_calls | string }}{% endif %}"
BY_FORMAT = (
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ '%s' % c.function.name }}{% endfor %}"
)
BY_HASH = (
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ {'n': c.function.name}['n'] | upper"
    " }}{% endfor %}"
)
BY_MACRO = (
    "{% macro d(t) %}{{ t.function.name }}: {{ t.function.description }}{% endmacro %}"
    "{% for t in tools or [] %}{{ d(t) }}{% endfor %}"
)
LAST_REASONING = (
    "{% if m.reasoning_content and loop.last %}<think>{{ m.reasoning_content }}</think>{% endif"
    " %}{{ m.content }}"
)
WRITTEN = {
    "calls as JSON": (
        template(CONTENT + "{{ m.tool_calls | tojson if m.tool_calls }}"),
        ONLY_A_CALL,
    ),
    "calls as Python prints them": (template(BY_STRING), ONLY_A_CALL),
    "calls by a format": (template(BY_FORMAT), ONLY_A_CALL),
    "calls in capitals": (template(BY_HASH), ONLY_A_CALL),
    "calls that stand in the content too": (
        template(),
        row({"content": JSON_CALL, "tool_calls": CALL}),
    ),
    "calls that stand in the content as code": (
        template(),
        row({"content": 'opening_hours(day="Monday")', "tool_calls": CALL}),
    ),
    "definitions in the system prompt": (
        template(),
        {
            "messages": [
                {"role": "system", "content": json.dumps(TOOLS)},
                *row({"content": "Yes."})["messages"],
            ],
            "tools": TOOLS,
        },
    ),
    "definitions by a macro": (
        template(before=BY_MACRO),
        row({"content": "Yes."}, tools=TOOLS),
    ),
    "empty and null fields": (
        template(),
        row(
            {"content": "Yes.", "tool_calls": [], "name": "", "reasoning_content": None},
            tools=[],
            documents=None,
        ),
    ),
    "ids, types and scores": (
        template(),
        row({"content": "Yes.", "id": "m-1", "type": "text", "score": 0.5, "lang": "en"}),
    ),
    "the name of a tool's result": (
        template(),
        row({"content": "One moment."}, [{**RESULT[0], "name": "opening_hours"}, RESULT[1]]),
    ),
    "reasoning of earlier turns": (
        template(LAST_REASONING),
        {"messages": row({"content": "Yes.", "reasoning_content": "Monday."})["messages"] * 2},
    ),
    "images with a placeholder": (
        template(BY_PARTS.format("'<image>' if p.type == 'image' else p.text")),
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "image": "a.png"},
                        {"type": "text", "text": "What is it?"},
                    ],
                },
                {"role": "assistant", "content": "A door."},
            ]
        },
    ),
    "an empty answer": (template(), row({"content": ""})),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_what_reaches_a_token_is_not_called_lost(case: str, tmp_path: Path) -> None:
    source, one = WRITTEN[case]
    assert found(tmp_path, source, one) == []


def test_the_rejected_side_is_judged_too(tmp_path: Path) -> None:
    pair = {
        "prompt": [{"role": "user", "content": "Is it open?"}],
        "chosen": [{"role": "assistant", "content": "Yes."}],
        "rejected": [{"role": "assistant", "content": "", "tool_calls": CALL}],
    }
    (finding,) = found(tmp_path, template(), pair)
    assert (finding.severity, finding.count) == ("error", 1)


def test_encode_refuses_what_would_be_learned_empty_and_counts_the_rest(tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text(template(loop=NO_TOOL_TURNS))
    data = tmp_path / "rows.jsonl"
    data.write_text(
        "".join(
            json.dumps(one) + "\n" for one in (ONLY_A_CALL, row({"content": "One moment."}, RESULT))
        )
    )
    template_path = str(tmp_path / "own.jinja")
    with pytest.raises(
        DataError, match=r"rows.jsonl:1: the tool_calls of turn 1 reach no token.*--template"
    ):
        truetune.encode(str(data), TOKENIZER, tmp_path / "out", template=template_path)
    encoded = truetune.encode(
        str(data), TOKENIZER, tmp_path / "out", on_error="skip", template=template_path
    )
    assert (encoded.counts["encoded"], encoded.counts["rejected"]) == (1, 1)
    assert encoded.lost_fields == encoded.manifest["lost_fields"] == {"tool results": 1}


@pytest.mark.parametrize("family", ["phi4", "phi3", "llama3-instruct", "smollm2"])
def test_published_templates_that_drop_calls(family: str) -> None:
    report = truetune.check(
        data=str(parts.data("llamafactory/glaive_toolcall_en_demo.json")),
        tokenizer=str(parts.folder(family)),
        select="field-reaches-no-token",
    )
    calls = next(finding for finding in report.findings if finding.severity == "error")
    assert (calls.count, calls.total) == (153, 300)
    assert isinstance(report, DataReport)
    assert report.data["lost_fields"]["tools"] == 191


@pytest.mark.parametrize("family", ["qwen3", "qwen2.5-instruct", "llama3.1-instruct"])
def test_published_templates_that_write_calls(family: str) -> None:
    report = truetune.check(
        data=str(parts.data("llamafactory/glaive_toolcall_en_demo.json")),
        tokenizer=str(parts.folder(family)),
        select="field-reaches-no-token",
    )
    assert report.findings == ()
