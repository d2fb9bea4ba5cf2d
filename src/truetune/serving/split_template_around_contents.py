"""Splits a chat template into the texts before and after each content, where it is no more than
that.

Ollama has templates of its own, so Jinja must become texts before and behind each content. Conversations of single
rare words are rendered, and what stands between the words is what the template writes. The trade-off: only templates
that are such texts can be split; whether one is, is not read from its source but proved by rendering, and a template
that fails the proof is refused rather than approximated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from truetune.data.conversation import Message
from truetune.errors import UsageError
from truetune.render.template_probes import Probes

# Names of birds: no known template holds them, and none is a part of another, so each stands once in a rendering.
CONTENT_WORDS = ("kestrel", "heron", "plover", "dunlin", "curlew", "osprey", "merlin", "whimbrel")
SYSTEM_WORD = "godwit"
# As many as there are words for; what depends on the number of a turn shows at the second or third.
MAX_TURNS = 4


@dataclass(frozen=True, slots=True)
class TemplateSegments:
    """The texts that a template writes before and after each content."""

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
        """The prompt of some messages, made of these texts."""
        around = {"system": self.system or ("", ""), "user": self.user, "assistant": self.assistant}
        roles = [message["role"] for message in messages]
        # Templates with a default system prompt drop it where the chat has one.
        text = self.opening + (self.default_system if "system" not in roles else "")
        for message in messages:
            before, behind = around[message["role"]]
            text += before + message["content"] + behind
        return text + self.generation


def split_template_into_segments(probes: Probes) -> TemplateSegments:
    """Find the segments of a template by rendering conversations of single words, and prove them on
    all of one to four turns.

    Raises UsageError where the template does more than to write texts around contents.
    """
    refusal = UsageError(
        "this template does more than to write texts around contents; serve it with an engine that "
        "takes Jinja: vllm, sglang or llama.cpp"
    )
    whole = probes.text(_make_conversation(3), add_generation_prompt=True)
    if whole is None:
        raise UsageError(
            "there is no chat template that renders a conversation; nothing can be printed for it"
        )
    parts = _texts_around_words(whole, CONTENT_WORDS[:5])
    if parts is None:
        raise refusal
    first, behind_first_question, behind_first_answer, *_, last = parts
    end = probes.terminator.text if probes.terminator else ""
    behind_answer = _cut_after_end_and_white_space(behind_first_answer, end)
    before_user = behind_first_answer[len(behind_answer) :]
    # With nothing to end a turn (Mistral), what both places of a question share is taken to begin the question.
    if not first.endswith(before_user):
        before_user = _common_prefix(first[::-1], behind_first_answer[::-1])[::-1]
        behind_answer = behind_first_answer[: len(behind_first_answer) - len(before_user)]
    # The end of a question and the beginning of an answer lie together; the generation prompt, behind the last
    # question, shows where one ends and the other begins.
    shared = _common_prefix(behind_first_question, last)
    behind_user = _cut_after_end_and_white_space(shared, end) if end and end in shared else shared
    head = first[: len(first) - len(before_user)]
    system = _find_texts_around_system_message(probes, before_user)
    opening = _common_prefix(head, system[0]) if system else head
    segments = TemplateSegments(
        opening=opening,
        default_system=head[len(opening) :],
        system=(system[0][len(opening) :], system[1]) if system else None,
        user=(before_user, behind_user),
        assistant=(behind_first_question[len(behind_user) :], behind_answer),
        generation=last[len(behind_user) :],
        notes=tuple(_list_template_features_beyond_segments(probes, has_system=system is not None)),
    )
    # The proof: the guesses above may be wrong, and a served prompt that is nearly right is the fault itself.
    for talk in _make_proof_conversations(system=system is not None):
        if segments.render(talk) != probes.text(talk, add_generation_prompt=True):
            raise refusal
    return segments


def _find_texts_around_system_message(probes: Probes, before_user: str) -> tuple[str, str] | None:
    """The texts before and after a system message; None where the template has no place for one."""
    text = probes.text(
        [{"role": "system", "content": SYSTEM_WORD}, *_make_conversation(1)],
        add_generation_prompt=True,
    )
    parts = _texts_around_words(text, (SYSTEM_WORD, CONTENT_WORDS[0])) if text is not None else None
    if parts is None or not parts[1].endswith(before_user):
        return None
    return parts[0], parts[1][: len(parts[1]) - len(before_user)]


def _list_template_features_beyond_segments(probes: Probes, *, has_system: bool) -> Iterator[str]:
    """What such texts can't do, and the template does."""
    # Spaces around a word show whether contents are trimmed, which texts around them can't do.
    padded = probes.text(
        [{"role": "user", "content": f"  {CONTENT_WORDS[0]}  "}], add_generation_prompt=True
    )
    if padded is not None and f"  {CONTENT_WORDS[0]}  " not in padded:
        yield "the template trims contents; here they are written as they come"
    if probes.template is not None and "strftime_now" in probes.template.source:
        yield "the template writes the date; here it is the day on which this was printed"
    if not has_system:
        yield "the template has no place for a system message"


def _make_conversation(turns: int) -> list[Message]:
    """A conversation that ends in the question of its last turn."""
    return [
        {"role": ("user", "assistant")[i % 2], "content": word}
        for i, word in enumerate(CONTENT_WORDS[: 2 * turns - 1])
    ]


def _make_proof_conversations(*, system: bool) -> Iterator[list[Message]]:
    """The conversations on which a split is proved."""
    for turns in range(1, MAX_TURNS + 1):
        yield _make_conversation(turns)
        if system:
            yield [{"role": "system", "content": SYSTEM_WORD}, *_make_conversation(turns)]


def _texts_around_words(text: str, words: Sequence[str]) -> list[str] | None:
    """What stands before, between and behind words that each come once, in order."""
    parts = []
    for word in words:
        before, separator, text = text.partition(word)
        if not separator or word in text:
            return None
        parts.append(before)
    return [*parts, text]


def _common_prefix(a: str, b: str) -> str:
    """The text with which both begin."""
    equal = takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    return "".join(character for character, _ in equal)


def _cut_after_end_and_white_space(text: str, end: str) -> str:
    """A text up to and with the first `end`, and the white space after it."""
    at = text.find(end) if end else -1
    if at < 0:
        return ""
    rest = text[at + len(end) :]
    return text[: len(text) - len(rest.lstrip())]
