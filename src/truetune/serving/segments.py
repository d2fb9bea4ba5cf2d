"""Segments: a chat template as the texts that stand around contents, where it is no more than that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from truetune.data.conversation import Message
from truetune.errors import UsageError
from truetune.render.probes import Probes

WORDS = ("kestrel", "heron", "plover", "dunlin", "curlew", "osprey", "merlin", "whimbrel")
SYSTEM = "godwit"
TURNS = 4


@dataclass(frozen=True, slots=True)
class Segments:
    """What is written before and behind each content."""

    opening: str
    """Before everything"""
    default_system: str
    """Behind the opening where there is no system message"""
    system: tuple[str, str] | None
    """None where the template takes no system message"""
    user: tuple[str, str]
    assistant: tuple[str, str]
    generation: str
    """Behind the last turn: the generation prompt"""
    notes: tuple[str, ...] = ()

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt that these texts make."""
        around = {"system": self.system or ("", ""), "user": self.user, "assistant": self.assistant}
        roles = [message["role"] for message in messages]
        text = self.opening + (self.default_system if "system" not in roles else "")
        for message in messages:
            before, behind = around[message["role"]]
            text += before + message["content"] + behind
        return text + self.generation


def segments_of(probes: Probes) -> Segments:
    """Found by rendering conversations of single words, and proved on all of one to four turns.

    Raises UsageError where the template does more than to write texts around contents.
    """
    refusal = UsageError(
        "this template does more than to write texts around contents; serve it with an engine that "
        "takes Jinja: vllm, sglang or llama.cpp"
    )
    whole = probes.text(_talk(3), add_generation_prompt=True)
    if whole is None:
        raise UsageError(
            "there is no chat template that renders a conversation; nothing can be printed for it"
        )
    parts = _between(whole, WORDS[:5])
    if parts is None:
        raise refusal
    first, asked, answered, *_, last = parts
    end = probes.terminator.text if probes.terminator else ""
    behind_answer = _through(answered, end)
    before_user = answered[len(behind_answer) :]
    if not first.endswith(before_user):
        before_user = _shared(first[::-1], answered[::-1])[::-1]
        behind_answer = answered[: len(answered) - len(before_user)]
    shared = _shared(asked, last)
    behind_user = _through(shared, end) if end and end in shared else shared
    head = first[: len(first) - len(before_user)]
    told = _system(probes, before_user)
    opening = _shared(head, told[0]) if told else head
    made = Segments(
        opening=opening,
        default_system=head[len(opening) :],
        system=(told[0][len(opening) :], told[1]) if told else None,
        user=(before_user, behind_user),
        assistant=(asked[len(behind_user) :], behind_answer),
        generation=last[len(behind_user) :],
        notes=tuple(_doubts(probes, has_system=told is not None)),
    )
    for talk in _talks(system=told is not None):
        if made.render(talk) != probes.text(talk, add_generation_prompt=True):
            raise refusal
    return made


def _system(probes: Probes, before_user: str) -> tuple[str, str] | None:
    """Before and behind a system message; None where there is no place for one."""
    text = probes.text(
        [{"role": "system", "content": SYSTEM}, *_talk(1)], add_generation_prompt=True
    )
    parts = _between(text, (SYSTEM, WORDS[0])) if text is not None else None
    if parts is None or not parts[1].endswith(before_user):
        return None
    return parts[0], parts[1][: len(parts[1]) - len(before_user)]


def _doubts(probes: Probes, *, has_system: bool) -> Iterator[str]:
    """What such texts can't do, and the template does."""
    padded = probes.text(
        [{"role": "user", "content": f"  {WORDS[0]}  "}], add_generation_prompt=True
    )
    if padded is not None and f"  {WORDS[0]}  " not in padded:
        yield "the template trims contents; here they are written as they come"
    if probes.template is not None and "strftime_now" in probes.template.source:
        yield "the template writes the date; here it is the day on which this was printed"
    if not has_system:
        yield "the template has no place for a system message"


def _talk(turns: int) -> list[Message]:
    return [
        {"role": ("user", "assistant")[i % 2], "content": word}
        for i, word in enumerate(WORDS[: 2 * turns - 1])
    ]


def _talks(*, system: bool) -> Iterator[list[Message]]:
    for turns in range(1, TURNS + 1):
        yield _talk(turns)
        if system:
            yield [{"role": "system", "content": SYSTEM}, *_talk(turns)]


def _between(text: str, words: Sequence[str]) -> list[str] | None:
    """What stands before, between and behind words that each come once, in order."""
    parts = []
    for word in words:
        before, found, text = text.partition(word)
        if not found or word in text:
            return None
        parts.append(before)
    return [*parts, text]


def _shared(a: str, b: str) -> str:
    """How both begin."""
    return "".join(
        x for x, _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    )


def _through(text: str, end: str) -> str:
    """Up to and with the first `end`, and the white space behind it."""
    at = text.find(end) if end else -1
    if at < 0:
        return ""
    rest = text[at + len(end) :]
    return text[: len(text) - len(rest.lstrip())]
