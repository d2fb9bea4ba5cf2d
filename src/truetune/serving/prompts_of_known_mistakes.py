"""Makes the prompts that known mistakes make of the same messages, to be compared with what is
served.

A doubled BOS, a missing generation prompt, a dropped system message, another template: each is
made, as text or ids, so that the served ids can be looked up among them instead of being guessed
at. The trade-off: the list is finite and each prompt is rendered and encoded a few dozen times;
what is none of these is described by `guess_cause_at_difference`, from its looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from truetune.errors import TemplateError
from truetune.render.template import Template
from truetune.render.template_probes import Probes
from truetune.render.traced_string import plain_text
from truetune.serving.load_contract_of_trained_prompts import TrainedPrompt

ROLES = ("system", "user", "assistant")
# `<s>` and "User" stand in other formats and in plain text; marks from four characters on are their format's own.
MIN_MARK_CHARS = 4
"""Characters of a format's mark that are no white space, at least"""
_DATE = re.compile(r"\d{1,2} \w{3,9} \d{4}|\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """A well-known way to write a chat: its beginning, each role's message, and the generation prompt."""

    head: str
    messages: tuple[str, str, str]
    """Of system, user and assistant, with `{}` for the content"""
    tail: str

    def text(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        """The messages in this format; None where a message is of another role, or is no text."""
        chat_messages = [(message.get("role"), message.get("content")) for message in messages]
        if not all(role in ROLES and isinstance(content, str) for role, content in chat_messages):
            return None
        written = [
            self.messages[ROLES.index(str(role))].replace("{}", str(content))
            for role, content in chat_messages
        ]
        return self.head + "".join(written) + self.tail

    @property
    def user_message_beginning(self) -> str:
        """The text that begins a user's message."""
        return self.messages[1].partition("{}")[0].strip()


def _pattern_for_roles(pattern: str, *roles: str) -> tuple[str, str, str]:
    """One pattern with the name of each role in the place of ROLE."""
    first, second, third = (pattern.replace("ROLE", role) for role in roles or ROLES)
    return first, second, third


# As their authors document them; of models of several versions the commonest.
CHAT_FORMATS = {
    "ChatML": ChatFormat(
        "", _pattern_for_roles("<|im_start|>ROLE\n{}<|im_end|>\n"), "<|im_start|>assistant\n"
    ),
    "Llama 3": ChatFormat(
        "<|begin_of_text|>",
        _pattern_for_roles("<|start_header_id|>ROLE<|end_header_id|>\n\n{}<|eot_id|>"),
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "Gemma": ChatFormat(
        "<bos>",
        _pattern_for_roles("<start_of_turn>ROLE\n{}<end_of_turn>\n", "user", "user", "model"),
        "<start_of_turn>model\n",
    ),
    "Mistral": ChatFormat("<s>", ("{}\n\n", "[INST] {} [/INST]", "{}</s>"), ""),
    "Phi-3": ChatFormat("", _pattern_for_roles("<|ROLE|>\n{}<|end|>\n"), "<|assistant|>\n"),
    "Zephyr": ChatFormat("", _pattern_for_roles("<|ROLE|>\n{}</s>\n"), "<|assistant|>\n"),
    "Alpaca": ChatFormat(
        "", ("{}\n\n", "### Instruction:\n{}\n\n", "### Response:\n{}\n\n"), "### Response:\n"
    ),
    "Vicuna": ChatFormat("", ("{} ", "USER: {} ", "ASSISTANT: {}</s>"), "ASSISTANT:"),
    "plain roles": ChatFormat("", ("{}\n", "User: {}\n", "Assistant: {}\n"), "Assistant:"),
}


def list_mistakes_with_ids_that_differ(
    trained: TrainedPrompt, probes: Probes, base: Probes | None = None
) -> Iterator[tuple[str, list[int]]]:
    """(mistake, the ids that it makes) of a prompt, for each mistake whose ids differ from the
    trained ones.
    """
    # A variant that is equal to the trained prompt is no mistake for this prompt.
    ids_so_far = {tuple(trained.ids)}
    for mistake, ids in _mistakes_with_ids_even_if_equal(trained, probes, base):
        if tuple(ids) not in ids_so_far:
            ids_so_far.add(tuple(ids))
            yield mistake, ids


def _mistakes_with_ids_even_if_equal(
    trained: TrainedPrompt, probes: Probes, base: Probes | None
) -> Iterator[tuple[str, list[int]]]:
    """(mistake, ids) as in `list_mistakes_with_ids_that_differ`, with those that equal the trained ones: the
    likeliest first, for controls are taken from the beginning.
    """
    ids, bos = trained.ids, probes.tokenizer.special.get("bos")

    def encoded(text: str) -> list[int]:
        return list(probes.tokenizer.backend.encode(text, add_special_tokens=False).ids)

    if bos and ids[:1] == [bos.id]:
        mistake = (
            f"BOS ({bos.token}) is there twice: in the template's text, and put before it by the"
            " tokenizer"
        )
        yield mistake, [bos.id, *ids]
        yield f"BOS ({bos.token}) is missing at the beginning", ids[1:]
    elif bos:
        yield (
            f"BOS ({bos.token}) is put before a prompt that was trained without one",
            [bos.id, *ids],
        )
    for mistake, text in _mistakes_with_texts_they_make(trained, probes, base):
        if text is not None:
            yield mistake, encoded(text)


def _mistakes_with_texts_they_make(
    trained: TrainedPrompt, probes: Probes, base: Probes | None
) -> Iterator[tuple[str, str | None]]:
    """(mistake, the text that it makes); None where a template can't make it."""
    messages, tools = trained.messages, trained.tools
    without = [message for message in messages if message.get("role") != "system"]
    yield (
        "the generation prompt is missing at its end",
        _render_prompt_with_change(probes, trained, add_generation_prompt=False),
    )
    yield "white space is taken away at its end", trained.text.rstrip()
    if len(without) < len(messages):
        yield (
            "the system message is left out",
            _render_prompt_with_change(probes, trained, messages=without),
        )
    else:
        # An empty system message silences the default one of templates such as Qwen's.
        silent = _render_prompt_with_change(
            probes, trained, messages=[{"role": "system", "content": ""}, *messages]
        )
        yield "the system prompt that the template adds by itself is not there", silent
    if tools:
        yield "the tools are left out", _render_prompt_with_change(probes, trained, tools=None)
    if trained.settings:
        names = ", ".join(trained.settings)
        yield (
            f"the variables for the template ({names}) are not used",
            _render_prompt_with_change(probes, trained, settings={}),
        )
    # The record may be older than the folder: rendered now, its prompt is another where the template was swapped.
    yield (
        "it is made with the template in MODEL's folder, which is not the one of the training",
        _render_prompt_with_change(probes, trained),
    )
    yield from _list_other_template_texts(trained, probes, base)
    # Both, for several formats have no place for a system message, and servers drop it then.
    for name, format in CHAT_FORMATS.items():
        for chat_messages in (messages, without):
            yield f"it is written in the format of {name}", format.text(chat_messages)


def _list_other_template_texts(
    trained: TrainedPrompt, probes: Probes, base: Probes | None
) -> Iterator[tuple[str, str | None]]:
    """(mistake, text) of templates that are likely mistaken for it: the base model's, and others of
    the tokenizer.
    """
    if base is not None:
        yield (
            "it is made with the template of the base model",
            _render_prompt_with_change(base, trained),
        )
    if probes.template is None:
        return
    for name, source in probes.tokenizer.templates.items():
        if source != probes.template.source and name != "tool_use":
            template = Template(source, probes.template.special, name=name)
            other = replace(probes, template=template, tool_template=None)
            text = _render_prompt_with_change(other, trained)
            yield f"it is made with the tokenizer's template {name!r}", text


def _render_prompt_with_change(
    probes: Probes, trained: TrainedPrompt, *, add_generation_prompt: bool = True, **other: Any
) -> str | None:
    """The text that a template makes of the prompt, with something changed; None where it refuses."""
    chat = {**trained.as_chat_request_body, **other}
    template = probes.template_for(has_tools=bool(chat["tools"]))
    if template is None:
        return None
    try:
        text = template.render(
            chat["messages"],
            tools=chat["tools"] or None,
            add_generation_prompt=add_generation_prompt,
            **chat["settings"],
        )
    except TemplateError:
        return None
    return plain_text(text)


def guess_cause_at_difference(
    trained: TrainedPrompt, in_training: str, on_server: str, whole: str
) -> str:
    """A cause by the texts at the first difference of two prompts; empty where nothing is
    recognised.

    Args:
        trained: the prompt of the training.
        in_training: its text at that place.
        on_server: what the server has there.
        whole: all of the server's prompt.
    """
    name = _name_format_whose_mark_is_only_in_text(whole, trained.text)
    if name:
        return f"it is written in the format of {name}"
    if _DATE.search(in_training) and _DATE.search(on_server):
        return "it has another date"
    if "think" in in_training + on_server:
        is_added = len(on_server) > len(in_training)
        return "a think block is put in" if is_added else "a think block is left out"
    if not any(message.get("role") == "system" for message in trained.messages):
        cause = _guess_system_message_cause(trained, in_training, on_server, whole)
        if cause:
            return cause
    if trained.tools and not on_server and "tool" in in_training + str(trained.tools):
        return "the tools are left out"
    return ""


def _name_format_whose_mark_is_only_in_text(text: str, trained: str) -> str:
    """The well-known format whose mark stands in a text, and not in the trained one; empty where none is."""
    for name, format in CHAT_FORMATS.items():
        is_telling = len(format.user_message_beginning) >= MIN_MARK_CHARS
        if (
            is_telling
            and format.user_message_beginning in text
            and format.user_message_beginning not in trained
        ):
            return name
    return ""


def _guess_system_message_cause(
    trained: TrainedPrompt, in_training: str, on_server: str, whole: str
) -> str:
    """For a chat without a system message: whether the server put one in before the first message,
    or left one out.
    """
    contents = (message.get("content") for message in trained.messages)
    first = next((content for content in contents if isinstance(content, str)), "")
    if "system" in on_server and not in_training and whole.find(on_server) < whole.find(first):
        return "the server puts in a system prompt of its own"
    if "system" in in_training and not on_server:
        return "the system prompt that the template adds by itself is not there"
    return ""
