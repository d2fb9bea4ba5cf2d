"""Templates that write an answer more than once, or elsewhere than at its place: no copy of it is ever supervised."""

from __future__ import annotations

import itertools

import pytest

from tests.render.conversations import turns, user
from truetune.data.conversation import Conversation, Message, Origin
from truetune.errors import TemplateError
from truetune.render.inference_contract import UNPLACED, make_stop_patterns
from truetune.render.renderer import Renderer
from truetune.render.rendering import Rendering
from truetune.render.template import Template
from truetune.render.traced_string import plain_text
from truetune.settings.run_spec import RunSpec

STOPS = make_stop_patterns(("</s>",), ())
DUMPS = {
    "JSON": "{{ messages | tojson }}",
    "text": "{{ messages | string }}",
    "contents": "{{ messages | map(attribute='content') | join('|') }}",
    "contents in turn": "{% for d in messages %}{{ d.content }};{% endfor %}",
    "last content": "{{ messages[-1].content }}",
    "upper": "{% for d in messages %}{{ d.content | upper }};{% endfor %}",
    "beginning": "{% for d in messages %}{{ d.content[:4] }};{% endfor %}",
    "words": "{% for d in messages %}{{ d.content.split(' ')[-1] }};{% endfor %}",
    "format": "{% for d in messages %}{{ '%s' % d.content }};{% endfor %}",
    "answers": (
        "{{ messages | selectattr('role', 'equalto', 'assistant') | map(attribute='content') |"
        " join }}"
    ),
    "nothing": "",
}
FRAMES = {
    "before all": (
        "%(dump)s{%% for m in messages %%}<{{ m.role }}>{{ m.content }}</s>{%% endfor %%}"
    ),
    "in the user's turn": (
        "{%% for m in messages %%}<{{ m.role }}>{%% if m.role == 'user' %%}%(dump)s{%% endif %%}{{"
        " m.content }}</s>{%% endfor %%}"
    ),
    "instead of the user's turn": (
        "{%% for m in messages %%}<{{ m.role }}>{%% if m.role == 'user' %%}%(dump)s{%% else %%}{{"
        " m.content }}{%% endif %%}</s>{%% endfor %%}"
    ),
    "in the header": (
        "{%% for m in messages %%}<{{ m.role }} %(dump)s>{{ m.content }}</s>{%% endfor %%}"
    ),
    "after all": "{%% for m in messages %%}<{{ m.role }}>{{ m.content }}</s>{%% endfor %%}%(dump)s",
    "after each turn": (
        "{%% for m in messages %%}<{{ m.role }}>{{ m.content }}</s>%(dump)s{%% endfor %%}"
    ),
    "alone": "%(dump)s",
    "last message first": (
        "{%% for m in messages | reverse %%}<{{ m.role }}>{{ m.content }}</s>{%% endfor %%}%(dump)s"
    ),
    "only the last": "<{{ messages[-1].role }}>{{ messages[-1].content }}</s>%(dump)s",
}
PROMPTS = {
    "prompt": "{% if add_generation_prompt %}<assistant>{% endif %}",
    "thinking prompt": "{% if add_generation_prompt %}<assistant><think>{% endif %}",
    "always": "<assistant>",
    "none": "",
}
CHATS: list[list[Message]] = [
    turns(1),
    turns(3),
    [user("same"), {"role": "assistant", "content": "same"}] * 2,
    [user(""), {"role": "assistant", "content": ""}],
    [{"role": "assistant", "content": "hello there"}, *turns(1)],
    [
        user("a"),
        {"role": "assistant", "content": "aa"},
        user("aaa"),
        {"role": "assistant", "content": "a"},
    ],
]


def plain(template: Template, messages: list[Message], *, prompt: bool = False) -> str | None:
    try:
        return plain_text(template.render(messages, add_generation_prompt=prompt))
    except TemplateError:
        return None


def check_spans(template: Template, messages: list[Message], rendering: Rendering) -> int:
    """Each span begins at the end of its serving prompt, or where that is no beginning of the text, at its one copy."""
    for span in rendering.spans:
        index = span.turn
        own = plain(template, messages[: index + 1]) or rendering.text
        prompt = plain(template, messages[:index], prompt=True) if index else None
        text = rendering.text[span.start : span.end]
        assert rendering.text[: span.end] == own[: span.end], "what is trained is what is served"
        if prompt is not None and own.startswith(prompt):
            assert span.start == len(prompt)
            continue
        assert next(turn for turn in rendering.turns if turn.message == index).skew
        answer = str(messages[index]["content"])
        assert text
        others = [str(message["content"]) for message in messages[:index]]
        if prompt is not None and len(answer) > 3 and answer not in others:
            assert own.count(answer) <= 1, (
                "where its prompt is no beginning, an answer is trained if it stands once"
            )
            assert all(own.rfind(other, span.start) < 0 for other in others if len(other) > 4)
    return len(rendering.spans)


@pytest.mark.parametrize("frame", FRAMES)
def test_no_copy_of_an_answer_is_supervised(frame: str) -> None:
    trained = untrained = 0
    for dump, prompt, history in itertools.product(
        DUMPS.values(), PROMPTS.values(), ("as-served", "single")
    ):
        source = FRAMES[frame] % {"dump": dump} + prompt
        template = Template(source)
        renderer = Renderer(template, RunSpec.model_validate({"history": history}), STOPS)
        for number, messages in enumerate(CHATS):
            row = Conversation(Origin(source, number, number), "messages", messages)
            for rendering in renderer.render_by_template_with_offsets(row):
                trained += check_spans(template, messages, rendering)
                untrained += sum(UNPLACED in str(turn.skew) for turn in rendering.turns)
    print({"frame": frame, "spans": trained, "turns not trained": untrained})
    assert trained or frame == "only the last"


@pytest.mark.parametrize(
    "dump", ["JSON", "text", "contents", "contents in turn", "format", "answers"]
)
def test_a_dump_in_the_users_turn_is_not_trained(dump: str) -> None:
    """What issue 17 found: 42 of 42 rows had the answer supervised inside the prompt."""
    source = FRAMES["instead of the user's turn"] % {"dump": DUMPS[dump]} + PROMPTS["prompt"]
    row = Conversation(Origin("dump", 1, 0), "messages", turns(1))
    (rendering,) = Renderer(Template(source), RunSpec(), STOPS).render(row)
    assert not rendering.spans
    assert UNPLACED in str(rendering.turns[0].skew)


def test_a_summary_behind_the_answer_is_no_part_of_it() -> None:
    source = FRAMES["after all"] % {
        "dump": "Summary: {{ messages[0].content }}, {{ messages[-1].content }}</s>"
    }
    template = Template(source)
    row = Conversation(Origin("summary", 1, 0), "messages", turns(1))
    (rendering,) = Renderer(template, RunSpec(), STOPS).render(row)
    assert all("Summary" not in rendering.text[span.start : span.end] for span in rendering.spans)


def test_turns_end_where_they_end_in_text_of_unknown_origin() -> None:
    """Nothing of such a rendering is known but where the serving prompts end and which tokens end turns."""
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.encode().decode()"
        " }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{%"
        " endif %}"
    )
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": f"{'AB'[i % 2]}{i}"} for i in range(6)
    ]
    renderer = Renderer(
        Template(source), RunSpec(), make_stop_patterns(("<|im_end|>",), ("<|im_start|>",))
    )
    (rendering,) = renderer.render(Conversation(Origin("unknown", 1, 0), "messages", messages))
    spans = [rendering.text[span.start : span.end] for span in rendering.spans]
    assert spans == ["B1<|im_end|>", "B3<|im_end|>", "B5<|im_end|>"]
