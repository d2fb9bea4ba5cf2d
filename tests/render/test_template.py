"""Rendering with provenance gives what transformers gives, character for character, or raises where it raises."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from tests.render.conversations import CONVERSATIONS, SETTINGS, SPECIAL, TOOLS
from tests.render.templates import all_templates
from truetune.errors import TemplateError
from truetune.render import traced_string
from truetune.render.template import Template
from truetune.render.template_protocol import PrefixRequest
from truetune.render.traced_string import Trace, Traced

PARTS = 8
"""The templates are shared out over so many tests, which workers can share."""


def expected(
    source: str, messages: list[dict[str, Any]], tools: list[Any] | None, **variables: Any
) -> Any:
    """transformers' rendering, or the exception that it raises."""
    from transformers.utils.chat_template_utils import render_jinja_template

    plain = [
        {key: value for key, value in message.items() if value is not None}
        for message in copy.deepcopy(messages)
    ]
    settings: dict[str, Any] = {**SPECIAL, **variables}
    try:
        return render_jinja_template([plain], tools=tools, chat_template=source, **settings)[0][0]
    except Exception as error:
        return error


@pytest.mark.parametrize("part", range(PARTS))
def test_renders_as_transformers_does(part: int, record_property: Any) -> None:
    counts: Counter[str] = Counter()
    for name, source in list(all_templates().items())[part::PARTS]:
        try:
            template: Template | None = Template(source, SPECIAL)
        except TemplateError:
            template = None
        for case, messages in CONVERSATIONS.items():
            for tools in (None, TOOLS):
                for settings in SETTINGS:
                    wanted = expected(source, messages, tools, **settings)
                    where = (name, case, bool(tools), settings)
                    if isinstance(wanted, Exception):
                        counts["raise alike"] += 1
                        if template is not None:
                            with pytest.raises(TemplateError) as caught:
                                template.render(messages, tools=tools, **settings)
                            assert str(wanted) in str(caught.value), where
                        continue
                    assert template is not None, where
                    text = template.render(messages, tools=tools, **settings)
                    assert traced_string.plain_text(text) == wanted, where
                    _check_map(text, {"messages": messages, "tools": tools})
                    counts["identical"] += 1
    record_property("grid", dict(counts))
    print(dict(counts))
    assert counts["identical"] > 10_000 / PARTS


def _check_map(text: str, inputs: dict[str, Any]) -> None:
    """Every character that is said to come from a field is there in the field."""
    for part in traced_string.literal_and_field_parts(text):
        if not isinstance(part, Traced):
            continue
        assert sum(segment.length for segment in part.segments) == len(part.plain)
        at = 0
        for length, path, offset in part.segments:
            if (
                path is not None
                and offset >= 0
                and length > 1
                and part.node[0] not in ("json_body", "upper", "lower")
            ):
                field: Any = inputs
                for key in path:
                    field = field[key]
                assert field[offset : offset + length] == part.plain[at : at + length], (
                    path,
                    part.node,
                )
            at += length


def test_a_template_that_is_not_jinja_names_the_line() -> None:
    with pytest.raises(TemplateError, match="line 2"):
        Template("a\n{% for %}")


def test_options_of_tojson() -> None:
    source = (
        "{{ messages[0] | tojson(indent=2, sort_keys=true, ensure_ascii=true, separators=(',',"
        " ':')) }}"
    )
    message = {"role": "user", "content": 'é "q" \n 😀'}
    text = Template(source).render([message])
    assert traced_string.plain_text(text) == expected(source, [message], None)


def test_documents_and_named_variables() -> None:
    source = (
        "{% for d in documents %}{{ d.title }}: {{ d.text }}\n{% endfor %}{{ style }}{{"
        " strftime_now('%Y')|length }}"
    )
    text = Template(source).render([], documents=[{"title": "T", "text": "x"}], style="rag")
    assert traced_string.plain_text(text) == "T: x\nrag4"
    paths = [
        part.segments[0].path
        for part in traced_string.literal_and_field_parts(text)
        if isinstance(part, Traced)
    ]
    assert paths == [("documents", 0, "title"), ("documents", 0, "text")]


def test_a_plain_rendering_before_the_first_traced_one_spoils_no_text() -> None:
    template = Template("{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}")
    messages = [{"role": "user", "content": "yes"}, {"role": "assistant", "content": "no"}]
    inputs = template.make_inputs(messages, None, None)
    requests = [PrefixRequest(1, False, traced) for traced in (False, True)]
    requests.append(PrefixRequest(2, False, True))
    renderings = template.render_prefixes(inputs, Trace(), requests, {})
    texts = ["".join(parts) for parts in renderings if not isinstance(parts, TemplateError)]
    assert texts == ["<user>yes</>", "<user>yes</>", "<user>yes</><assistant>no</>"]
