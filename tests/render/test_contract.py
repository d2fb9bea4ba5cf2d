"""What the contract supervises: on real tokenizers, and against the masks of TRL's own training templates."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections import Counter
from typing import Any

import pytest

from tests import parts
from tests.render.conversations import CONVERSATIONS, TOOLS, assistant, turns, user
from truetune.data.conversation import Conversation, Origin
from truetune.errors import TemplateError
from truetune.render.inference_contract import CONTEXT_REWRITTEN, REWRITTEN
from truetune.render.rendering import Rendering
from truetune.render.template import Template
from truetune.render.template_probes import Probes, make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec

PLAIN = [user("Hi"), assistant("Yo"), user("ok"), assistant("bye")]
ENDS = {
    "llama2-chat": " bye </s>",
    "llama3-instruct": "bye<|eot_id|>",
    "llama3-instruct-launch": "bye<|eot_id|>",
    "llama3.1-instruct": "bye<|eot_id|>",
    "qwen2.5-instruct": "bye<|im_end|>",
    "qwen2.5-base": "bye<|im_end|>",
    "qwen3": "<think>\n\n</think>\n\nbye<|im_end|>",
    "mistral-7b-v0.1": "bye</s>",
    "mistral-7b-v0.3": " bye</s>",
    "mistral-nemo": "bye</s>",
    "gemma2": "bye<end_of_turn>",
    "gemma3": "bye<end_of_turn>",
    "gemma4": "bye<turn|>",
    "phi3": "bye<|end|>",
    "phi4": "bye<|im_end|>",
    "smollm2": "bye<|im_end|>",
    "gpt-oss": "<|channel|>final<|message|>bye<|return|>",
    "deepseek-v3": "bye<｜end▁of▁sentence｜>",
    "deepseek-r1": "bye<｜end▁of▁sentence｜>",
}


def probes_of(family: str, **settings: Any) -> Probes:
    return make_probes(load_tokenizer(str(parts.folder(family))), RunSpec(**settings))


def spans(rendering: Rendering) -> list[str]:
    return [rendering.text[span.start : span.end] for span in rendering.spans]


@pytest.mark.parametrize("family", ENDS)
def test_last_turn_of_a_plain_chat(family: str) -> None:
    renderings = probes_of(family).renderings(PLAIN)
    assert spans(renderings[-1])[-1] == ENDS[family]
    trained = [span.turn for rendering in renderings for span in rendering.spans]
    assert trained == [1, 3], "every assistant turn is trained once"


def test_thinking_off_is_no_part_of_the_answer() -> None:
    renderings = probes_of("qwen3", template_kwargs={"enable_thinking": False}).renderings(PLAIN)
    assert [spans(r) for r in renderings] == [["Yo<|im_end|>"], ["bye<|im_end|>"]]


def test_as_served_and_single_history() -> None:
    chat = [
        user("a"),
        assistant("A", reasoning_content="r"),
        user("b"),
        assistant("B", reasoning_content="s"),
    ]
    served = probes_of("qwen3").renderings(chat)
    wanted = ["<think>\nr\n</think>\n\nA<|im_end|>", "<think>\ns\n</think>\n\nB<|im_end|>"]
    assert [spans(r) for r in served] == [[text] for text in wanted]
    assert [r.turn for r in served] == [1, 3]
    (single,) = probes_of("qwen3", history="single").renderings(chat)
    assert spans(single) == ["<think>\ns\n</think>\n\nB<|im_end|>"]
    assert single.turns[0].skew == REWRITTEN


@pytest.mark.parametrize(
    ("learn", "wanted"),
    [
        ({"what": "assistant"}, ["Yo<|im_end|>", "bye<|im_end|>"]),
        ({"what": "last"}, ["bye<|im_end|>"]),
        ({"what": "completion"}, ["bye<|im_end|>"]),
    ],
)
def test_learn(learn: dict[str, Any], wanted: list[str]) -> None:
    (rendering,) = probes_of("qwen2.5-instruct", learn=learn).renderings(PLAIN)
    assert spans(rendering) == wanted


def test_learn_all_supervises_the_whole_text() -> None:
    (rendering,) = probes_of("qwen2.5-instruct", learn="all").renderings(PLAIN)
    assert spans(rendering) == [rendering.text]


def test_reasoning_and_tool_calls_can_be_left_out() -> None:
    chat = [user("W?"), {**CONVERSATIONS["reasoning and tool call"][1], "content": "Let me look."}]
    found = {}
    for reasoning in (True, False):
        for calls in (True, False):
            setting = {"reasoning": reasoning, "tool_calls": calls}
            (rendering,) = probes_of("qwen3", learn=setting).renderings(chat, TOOLS)
            found[reasoning, calls] = "".join(spans(rendering))
    assert found[True, True].startswith("<think>\nneed tool\n</think>\n\nLet me look.\n<tool_call>")
    assert found[True, False] == "<think>\nneed tool\n</think>\n\nLet me look.<|im_end|>"
    assert found[False, True].startswith("Let me look.\n<tool_call>")
    assert found[False, False] == "Let me look.<|im_end|>"


def test_per_message_train_and_weight() -> None:
    chat = [user("a"), assistant("A", train=False), user("b"), assistant("B", weight=0.5)]
    (rendering,) = probes_of("qwen2.5-instruct").renderings(chat)
    assert [(span.turn, span.weight) for span in rendering.spans] == [(3, 0.5)]


def test_a_prefilled_think_block_is_skew() -> None:
    (rendering,) = probes_of("deepseek-r1").renderings(turns(1))
    assert "<think>" in str(rendering.turns[0].skew)
    assert spans(rendering) == ["answer 0<｜end▁of▁sentence｜>"]


EXTRA = {
    "llama3-instruct": r"",
    "qwen2.5-instruct": r"\n",
    "qwen3": r"\n|<think>\n\n</think>\n\n",
    "qwen3.5": r"\n|<think>\n(?:\n</think>\n\n)?",
    "gemma2": r"\n",
    "gemma3": r"\n",
    "phi3": r"\n|\n<\|endoftext\|>",
    "phi3.5": r"\n|\n<\|endoftext\|>",
    "deepseek-r1": r"<｜Assistant｜>|<｜tool▁outputs▁end｜>",
    "gpt-oss": r"<\|start\|>assistant.*",
}
"""What TRL's templates supervise beyond the contract; docs/masks.md gives the reasons."""


@pytest.mark.parametrize("family", EXTRA)
def test_masks_of_trl(family: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    base = probes_of(family, history="single")
    source = (parts.folder(family) / "training_chat_template.jinja").read_text(encoding="utf-8")
    special: dict[str, Any] = {
        f"{name}_token": token.token for name, token in base.tokenizer.special.items()
    }
    ours = dataclasses.replace(base, template=Template(source, special))
    counts: Counter[str] = Counter()
    for case, messages in CONVERSATIONS.items():
        for tools in (None, TOOLS):
            plain = [
                {k: v for k, v in message.items() if v is not None}
                for message in copy.deepcopy(messages)
            ]
            try:
                rendered: Any = render_jinja_template(
                    [plain],
                    tools=tools,
                    chat_template=source,
                    return_assistant_tokens_mask=True,
                    **special,
                )
            except Exception:
                counts["raises"] += 1
                with pytest.raises(TemplateError):
                    ours.renderer().render_by_template_with_offsets(
                        Conversation(Origin(case, 1, 0), "messages", messages, tools=tools)
                    )
                continue
            (text,), (blocks,) = rendered
            (rendering,) = ours.renderings(messages, tools)
            assert rendering.text == text
            mine = [False] * len(text)
            theirs = [False] * len(text)
            for span in rendering.spans:
                mine[span.start : span.end] = [True] * (span.end - span.start)
            for start, end in blocks:
                theirs[start:end] = [True] * (end - start)
            kinds = "".join(" +-"[(b - a) % 3] for a, b in zip(mine, theirs, strict=True))
            assert "-" not in kinds, (case, "ours is wider")
            for match in re.finditer(r"\++", kinds):
                extra = text[match.start() : match.end()]
                assert re.fullmatch(EXTRA[family], extra, re.S), (case, extra)
            counts["same" if "+" not in kinds else "listed difference"] += 1
    print(family, dict(counts))
    assert counts["same"] + counts["listed difference"] > 20


@pytest.mark.parametrize(
    ("count", "named"), [(1_000, "1,000 assistant turns"), (50_000, "100,000 messages")]
)
def test_a_conversation_that_is_too_long_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, count: int, named: str
) -> None:
    """Before the template is run at all: it would be run twice for each turn, over all that stands before it."""
    renderer = probes_of("llama3-instruct").renderer()
    monkeypatch.setattr(Template, "render_prefixes", None)
    with pytest.raises(TemplateError, match=f"{named}.*share it out over several rows"):
        renderer.render(Conversation(Origin("long", 1, 0), "messages", turns(count)))


def test_a_long_conversation_of_which_one_turn_is_learned() -> None:
    (rendering,) = probes_of("llama3-instruct", learn="last").renderings(turns(1_000))
    assert spans(rendering) == ["answer 999<|eot_id|>"]
    assert [turn.message for turn in rendering.turns if turn.end >= 0] == [1_999]


def test_a_system_prompt_that_only_the_serving_prompt_has() -> None:
    """The context is written otherwise once the turn is there; the turn begins where its serving prompt ends."""
    chat = [{"role": "system", "content": "Be brief."}, *PLAIN]
    found = probes_of("mistral-7b-v0.3").renderings(chat)
    assert [spans(rendering) for rendering in found] == [[" Yo</s>", " bye</s>"]]
    assert {turn.skew for turn in found[0].turns} == {CONTEXT_REWRITTEN}
