"""Finds the sentences that a chat template writes by itself, and where a content holds them already.

The sentences are what the template writes around contents that no template knows, so none is listed here. A sentence is
a line of the template's text: headers and marks are shorter. Numbers in it, and a word in front of one (the month of a
date), stand for any, since templates write today's date.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from truetune.data.conversation import Message
from truetune.errors import TemplateError
from truetune.render.template_probes import ANSWER, QUESTION, Probes, alternating_chat

SYSTEM = "Mind the quiet canary."
TOOL = {
    "type": "function",
    "function": {"name": "canary", "description": "canary", "parameters": {"type": "object"}},
}
PROBE_TEXTS = (SYSTEM, QUESTION, ANSWER)
# As for default system prompts: role names and headers are one word or two.
MIN_WORDS = 3
"""Words of letters in a line from which it is a sentence"""
CONTROL_TOKEN = re.compile(r"<[|\uff5c][^<>\n]{0,60}[|\uff5c]>|</?[a-z_]{1,40}>")
"""What stands in one line with a sentence: `<|im_start|>`, `<tools>`"""
MIN_CHARACTERS = 20
"""Of such a line. Chosen: three short words (`that can span`) are in many texts"""
MIN_EAST_ASIAN = 6
"""Characters of scripts without spaces from which a line is a sentence. Chosen: a role's name is two or three"""
EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
LETTERS = re.compile(r"[^\W\d_]{2,}")
DIGIT, DIGITS = re.compile(r"\d"), re.compile(r"\d+")


class OwnSentence(NamedTuple):
    """A sentence that the template writes."""

    needle: str
    """Its longest word, to look for first: patterns take time"""
    at_line_start: re.Pattern[str]
    """Finds it at the beginning of a line, whatever its numbers are"""
    anywhere: re.Pattern[str]
    """Finds it behind a header too"""


def own_sentences_of_template(probes: Probes) -> list[OwnSentence]:
    """The sentences that a template writes around contents: of chats with a system prompt or tools, and without.

    Empty where there is no template.
    """
    chat = alternating_chat(QUESTION, ANSWER)
    system: Message = {"role": "system", "content": SYSTEM}
    lines: dict[str, None] = {}
    for messages, tools in ((chat, None), ([system, *chat], None), ([system, *chat], [TOOL])):
        text = _render(probes, messages, tools)
        lines.update(dict.fromkeys(_lines_besides_probe_texts(text)))
    sentences = map(_sentence_of_line, lines)
    return [sentence for sentence in sentences if sentence is not None]


def find_sentence_that_stands_twice(
    sentences: list[OwnSentence], content: str, contents: str, rendered: str
) -> str | None:
    """The first sentence of the template that a content holds as well, and that the row's text holds once more.

    Args:
        sentences: of the template.
        content: of one message.
        contents: of all messages of the row.
        rendered: the text of the whole row.

    Returns:
        The content's own words for it; None where it holds none.
    """
    for sentence in sentences:
        match = sentence.at_line_start.search(content) if sentence.needle in content else None
        if match is None:
            continue
        # A default system prompt, for one, is not written beside a row's own.
        times_in_contents = len(sentence.anywhere.findall(contents))
        if len(sentence.anywhere.findall(rendered)) > times_in_contents:
            return match[0].strip()
    return None


def _render(probes: Probes, messages: list[Message], tools: list[Any] | None) -> str:
    """The text of a small chat; empty where the template refuses it."""
    if probes.template is None:
        return ""
    try:
        return "\n".join(one.text for one in probes.renderings(messages, tools))
    except TemplateError:
        return ""


def _lines_besides_probe_texts(text: str) -> list[str]:
    """The lines of a rendering without control tokens and without what the probes wrote."""
    for probe in PROBE_TEXTS:
        text = text.replace(probe, "\n")
    lines = (line.strip() for line in CONTROL_TOKEN.sub("\n", text).splitlines())
    return [line for line in lines if line and "canary" not in line]


def _sentence_of_line(line: str) -> OwnSentence | None:
    """What finds a line again with other numbers and white space; None where it is no sentence."""
    words = line.split()
    literal = [word for word in words if LETTERS.search(word) and not DIGIT.search(word)]
    is_sentence = len(literal) >= MIN_WORDS and len(line) >= MIN_CHARACTERS
    if not is_sentence and len(EAST_ASIAN.findall(line)) < MIN_EAST_ASIAN:
        return None
    parts: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        is_month = word.isalpha() and word[0].isupper() and following[:1].isdigit()
        parts.append(r"\S+" if is_month else DIGITS.sub(r"\\d+", re.escape(word)))
    pattern = r"\s+".join(parts)
    return OwnSentence(
        _longest_stretch_of_letters(parts),
        re.compile(rf"^[ \t]*{pattern}", re.MULTILINE),
        re.compile(pattern),
    )


def _longest_stretch_of_letters(parts: list[str]) -> str:
    """The longest run of letters that a text must hold for a pattern of such parts to match."""
    stretches = [one for part in parts for one in LETTERS.findall(part.replace(r"\d+", " "))]
    return max(stretches, key=len, default="")
