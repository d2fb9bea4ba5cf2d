"""Suspects: prompts that known mistakes make of the same messages, to be compared with what is served."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from truetune.errors import TemplateError
from truetune.render.probes import Probes
from truetune.render.template import Template
from truetune.render.traced_string import parts
from truetune.serving.trained import Trained

ROLES = ("system", "user", "assistant")
MARK = 4
"""Characters of a format's mark that are no white space, at least"""
_DATE = re.compile(r"\d{1,2} \w{3,9} \d{4}|\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class Format:
    """A well-known way to write a chat: its beginning, each role's message, and the generation prompt."""

    head: str
    messages: tuple[str, str, str]
    """Of system, user and assistant, with `{}` for the content"""
    tail: str

    def text(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        """None where a message is of another role, or is no text."""
        said = [(message.get("role"), message.get("content")) for message in messages]
        if not all(role in ROLES and isinstance(content, str) for role, content in said):
            return None
        written = [
            self.messages[ROLES.index(str(role))].replace("{}", str(content))
            for role, content in said
        ]
        return self.head + "".join(written) + self.tail

    @property
    def mark(self) -> str:
        """What begins a user's message."""
        return self.messages[1].partition("{}")[0].strip()


def _each(pattern: str, *roles: str) -> tuple[str, str, str]:
    first, second, third = (pattern.replace("ROLE", role) for role in roles or ROLES)
    return first, second, third


FORMATS = {
    "ChatML": Format("", _each("<|im_start|>ROLE\n{}<|im_end|>\n"), "<|im_start|>assistant\n"),
    "Llama 3": Format("<|begin_of_text|>", _each("<|start_header_id|>ROLE<|end_header_id|>\n\n{}<|eot_id|>"),
                      "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    "Gemma": Format("<bos>", _each("<start_of_turn>ROLE\n{}<end_of_turn>\n", "user", "user", "model"),
                    "<start_of_turn>model\n"),
    "Mistral": Format("<s>", ("{}\n\n", "[INST] {} [/INST]", "{}</s>"), ""),
    "Phi-3": Format("", _each("<|ROLE|>\n{}<|end|>\n"), "<|assistant|>\n"),
    "Zephyr": Format("", _each("<|ROLE|>\n{}</s>\n"), "<|assistant|>\n"),
    "Alpaca": Format("", ("{}\n\n", "### Instruction:\n{}\n\n", "### Response:\n{}\n\n"), "### Response:\n"),
    "Vicuna": Format("", ("{} ", "USER: {} ", "ASSISTANT: {}</s>"), "ASSISTANT:"),
    "plain roles": Format("", ("{}\n", "User: {}\n", "Assistant: {}\n"), "Assistant:"),
}  # fmt: skip


def suspects(
    trained: Trained, made: Probes, base: Probes | None = None
) -> Iterator[tuple[str, list[int]]]:
    """(mistake, the ids that it makes), each other than the trained ones."""
    seen = {tuple(trained.ids)}
    for mistake, ids in _all(trained, made, base):
        if tuple(ids) not in seen:
            seen.add(tuple(ids))
            yield mistake, ids


def _all(trained: Trained, made: Probes, base: Probes | None) -> Iterator[tuple[str, list[int]]]:
    ids, bos = trained.ids, made.tokenizer.special.get("bos")

    def encoded(text: str) -> list[int]:
        return list(made.tokenizer.backend.encode(text, add_special_tokens=False).ids)

    if bos and ids[:1] == [bos.id]:
        yield (
            (
                f"BOS ({bos.token}) stands twice: in the template's text, and put before it by the"
                " tokenizer"
            ),
            [bos.id, *ids],
        )
        yield f"BOS ({bos.token}) is missing at the beginning", ids[1:]
    elif bos:
        yield (
            f"BOS ({bos.token}) is put before a prompt that was trained without one",
            [bos.id, *ids],
        )
    for mistake, text in _texts(trained, made, base):
        if text is not None:
            yield mistake, encoded(text)


def _texts(trained: Trained, made: Probes, base: Probes | None) -> Iterator[tuple[str, str | None]]:
    messages, tools = trained.messages, trained.tools
    without = [message for message in messages if message.get("role") != "system"]
    yield (
        "the generation prompt is missing at its end",
        _rendered(made, trained, add_generation_prompt=False),
    )
    yield "white space is taken away at its end", trained.text.rstrip()
    if len(without) < len(messages):
        yield "the system message is left out", _rendered(made, trained, messages=without)
    else:
        silent = _rendered(made, trained, messages=[{"role": "system", "content": ""}, *messages])
        yield "the system prompt that the template adds by itself is not there", silent
    if tools:
        yield "the tools are left out", _rendered(made, trained, tools=None)
    if trained.settings:
        names = ", ".join(trained.settings)
        yield (
            f"the variables for the template ({names}) are not used",
            _rendered(made, trained, settings={}),
        )
    now = _rendered(made, trained)
    yield (
        "it is made with the template in MODEL's folder, which is not the one of the training",
        now,
    )
    if base is not None:
        yield "it is made with the template of the base model", _rendered(base, trained)
    for name, source in made.tokenizer.templates.items():
        if made.template is not None and source != made.template.source and name != "tool_use":
            other = replace(
                made,
                template=Template(source, made.template.special, name=name),
                tool_template=None,
            )
            yield f"it is made with the tokenizer's template {name!r}", _rendered(other, trained)
    for name, format in FORMATS.items():
        for said in (messages, without):
            yield f"it is written in the format of {name}", format.text(said)


def _rendered(
    made: Probes, trained: Trained, *, add_generation_prompt: bool = True, **other: Any
) -> str | None:
    """What a template makes of the prompt, or of it with something changed; None where it refuses."""
    asked = {**trained.chat, **other}
    template = (made.tool_template if asked["tools"] else None) or made.template
    if template is None:
        return None
    try:
        text = template.render(
            asked["messages"],
            tools=asked["tools"] or None,
            add_generation_prompt=add_generation_prompt,
            **asked["settings"],
        )
    except TemplateError:
        return None
    return "".join(parts(text))


def likely(trained: Trained, was: str, now: str, whole: str) -> str:
    """A cause by what stands at the place of the difference: `was` in training, `now` on the server, whose prompt is
    `whole`; empty where nothing is recognised."""
    first = next(
        (str(m["content"]) for m in trained.messages if isinstance(m.get("content"), str)), ""
    )
    asked = any(message.get("role") == "system" for message in trained.messages)
    for name, format in FORMATS.items():
        if len(format.mark) >= MARK and format.mark in whole and format.mark not in trained.text:
            return f"it is written in the format of {name}"
    if _DATE.search(was) and _DATE.search(now):
        return "it has another date"
    if "think" in was + now:
        return "a think block is put in" if len(now) > len(was) else "a think block is left out"
    if "system" in now and not was and not asked and whole.find(now) < whole.find(first):
        return "the server puts in a system prompt of its own"
    if "system" in was and not now and not asked:
        return "the system prompt that the template adds by itself is not there"
    if trained.tools and not now and "tool" in was + str(trained.tools):
        return "the tools are left out"
    return ""
