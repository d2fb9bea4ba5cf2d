"""Finds how a chat template marks the turns of a conversation, as bytes that can be found again
among token ids.

Small conversations are rendered. What the template writes between the end of one turn and the content of the next is
the header of that role. A header is searched as bytes and not as ids, since the content's first token may take the
header's last space with it; where it begins with an added token, that token must be there, not text spelled like it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import tokenizers

from truetune.encoding.token_bytes import TokenBytes
from truetune.errors import TruetuneError
from truetune.render.rendering import Rendering, Source
from truetune.render.template_probes import Probes

# Chosen, not measured: at half, `Q:` would be found in most texts; at double, `[INST]` of Llama 2
# would not be found.
MIN_HEADER_BYTES = 4
"""Bytes of a header without a control token: a shorter one stands in ordinary text"""
PROBE_SYSTEM, PROBE_RESULT = "Be brief and kind.", "The light is on."
# Ordinary short sentences: contents that no template rewrites, strips or refuses, and that hold no
# words of a header.
PROBE_QUESTIONS = ("Where is the lighthouse?", "When was it built?", "Who keeps it now?")
PROBE_ANSWERS = ("On the northern cliff.", "Two hundred years ago.", "A family of four.")
PROBE_CALL = {
    "type": "function",
    # Nine characters: Mistral's templates refuse ids of another length.
    "id": "call00001",
    "function": {"name": "see", "arguments": {"what": "light"}},
}
ROLE_NAMES: Mapping[Source, str] = {
    Source.SYSTEM: "system",
    Source.USER: "user",
    Source.ASSISTANT: "assistant",
    Source.TOOL_RESULT: "tool",
}


@dataclass(frozen=True)
class TurnHeader:
    """The bytes that the template writes before the content of a role."""

    role: Source
    text: bytes
    first: int | None
    """The added token with which it begins; None where it begins with ordinary text"""


@dataclass(frozen=True)
class TurnLayout:
    """The headers and end tokens by which the turns of a template are found among ids."""

    headers: tuple[TurnHeader, ...]
    """Longest first: of two that begin alike, the longer one is meant"""
    closers: Mapping[Source, frozenset[int]]
    """By role, the tokens that end a turn"""
    bos_opens_turns: bool
    """Is BOS part of the headers, as in SmolLM2's `<|im_start|>`?"""
    bos_in_every_turn: bool
    """Does the template write BOS more than once in a conversation, as Llama 2's does?"""
    header_is_learned: bool
    """Must the model write a token of the answer's header itself, as gpt-oss writes its channel?"""

    @cached_property
    def header_bytes_pattern(self) -> re.Pattern[bytes] | None:
        """Finds the headers in bytes, the number of each as its group; None where there are none."""
        if not self.headers:
            return None
        return re.compile(b"|".join(b"(%s)" % re.escape(header.text) for header in self.headers))

    def has_header_for_role(self, role: Source) -> bool:
        """Has this role a header of its own?"""
        return any(header.role is role for header in self.headers)


class TextBetween(NamedTuple):
    """What a rendering has between the content of one turn and that of the next."""

    before: Source
    """Of the content before; TEMPLATE at the beginning"""
    role: Source
    """Of the content that follows; TEMPLATE at the end"""
    text: str


def find_turn_layout(probes: Probes) -> TurnLayout:
    """The headers of a template; none where there is no template, or it renders none of the probes."""
    stops = {stop.token: stop.id for stop in probes.stops}
    betweens = [
        between
        for messages in _probe_conversations()
        for between in _texts_between_contents(probes, messages)
    ]
    decoder = probes.tokenizer.backend.get_added_tokens_decoder()
    added = {token.content: id for id, token in decoder.items()}
    closers = _added_tokens_after_contents_by_role(betweens, added)
    ends = _tokens_that_end_turns(closers, stops)
    bos = probes.tokenizer.special.get("bos")
    opens = bos is not None and _is_written_before_answers(bos.token, betweens, ends)
    # A BOS that begins the text is no part of a header: rows may lack it, and that is a finding of its own.
    leading = "" if bos is None or opens else bos.token
    texts = _header_texts_by_role(betweens, ends, added, leading)
    return TurnLayout(
        headers=tuple(
            _headers_longest_first_without_doubles(
                _shared_or_single_headers_by_role(texts, added, probes.tokenizer.backend)
            )
        ),
        closers={
            role: frozenset([*stops.values(), *(added[token] for token in closers[role])])
            for role in ROLE_NAMES
        },
        bos_opens_turns=opens,
        bos_in_every_turn=bos is not None and _template_repeats_token(probes, bos.token),
        header_is_learned=_supervised_span_begins_with_header(probes, added),
    )


def _is_written_before_answers(token: str, betweens: Sequence[TextBetween], ends: set[str]) -> bool:
    """Does the template write a token between the end of a turn and the answer's content?"""
    return any(
        between.role is Source.ASSISTANT and token in _text_after_end_of_turn(between, ends)
        for between in betweens
    )


def _tokens_that_end_turns(
    closers: Mapping[Source, set[str]], stops: Mapping[str, int]
) -> set[str]:
    """The tokens behind which a header begins: stop tokens, and those that close the turns of several roles."""
    closing = {token for tokens in closers.values() for token in tokens}
    return {token for token in closing if _closes_turns_of_several_roles(token, closers)} | {*stops}


def _header_texts_by_role(
    betweens: Sequence[TextBetween], ends: set[str], added: Mapping[str, int], leading: str
) -> dict[Source, list[str]]:
    """By role, the text before each of its contents; `leading` is BOS where it is no part of the headers."""
    texts: defaultdict[Source, list[str]] = defaultdict(list)
    for between in betweens:
        header = _text_after_end_of_turn(between, ends)
        if leading:
            header = header.removeprefix(leading).lstrip()
        if between.role is not Source.TEMPLATE and header.strip():
            texts[between.role].append(_cut_header_at_first_empty_line(header, added))
    return texts


def _template_repeats_token(probes: Probes, token: str) -> bool:
    """Does the template write a token more than once in a conversation of several turns?"""
    text = probes.text(_probe_conversations()[0]) or ""
    return text.count(token) > 1


def _supervised_span_begins_with_header(probes: Probes, added: Mapping[str, int]) -> bool:
    """Does a supervised span begin with an added token before the content?"""
    try:
        renderings = probes.renderings(_probe_conversations()[2], history="single")
    except TruetuneError:
        return False
    for rendering in renderings:
        content = next(
            (
                run.start
                for run in rendering.runs_of_text_by_origin
                if run.source is Source.ASSISTANT
            ),
            0,
        )
        start = min((span.start for span in rendering.spans), default=content)
        if any(token in rendering.text[start:content] for token in added):
            return True
    return False


def _probe_conversations() -> list[list[dict[str, Any]]]:
    """Conversations to render as probes: turns alone, with a system text, one turn, and one with a
    tool call and its result.
    """
    turns: list[dict[str, Any]] = []
    for question, answer in zip(PROBE_QUESTIONS, PROBE_ANSWERS, strict=True):
        # Three turns of each role: some templates write the first or the last one otherwise.
        turns += {"role": "user", "content": question}, {"role": "assistant", "content": answer}
    system = {"role": "system", "content": PROBE_SYSTEM}
    called = {"role": "assistant", "content": "", "tool_calls": [PROBE_CALL]}
    answered = {"role": "tool", "name": "see", "tool_call_id": "call00001", "content": PROBE_RESULT}
    return [turns, [system, *turns], turns[:2], [*turns[:1], called, answered, *turns[1:2]]]


def _texts_between_contents(probes: Probes, messages: list[dict[str, Any]]) -> list[TextBetween]:
    """What the template writes between the contents of these messages; nothing where it refuses them."""
    try:
        renderings = probes.renderings(messages, history="single")
    except TruetuneError:
        return []
    return list(_texts_between_contents_of_rendering(renderings[0])) if len(renderings) == 1 else []


def _texts_between_contents_of_rendering(rendering: Rendering) -> Iterator[TextBetween]:
    """The texts between contents of one rendering."""
    before, at = Source.TEMPLATE, 0
    for run in rendering.runs_of_text_by_origin:
        # Text of the template, and tools: it stands between the contents.
        if run.source not in ROLE_NAMES:
            continue
        yield TextBetween(before, run.source, rendering.text[at : run.start])
        before, at = run.source, run.end
    if before is not Source.TEMPLATE:
        yield TextBetween(before, Source.TEMPLATE, rendering.text[at:])


def _added_tokens_after_contents_by_role(
    betweens: Sequence[TextBetween], added: Mapping[str, int]
) -> dict[Source, set[str]]:
    """By role, the added tokens that come right after its content."""
    closers: dict[Source, set[str]] = {role: set() for role in ROLE_NAMES}
    for between in betweens:
        # Template text may begin with a line break before the token.
        token = _added_token_at_start(between.text.lstrip(), added)
        if between.before in closers and token:
            closers[between.before].add(token)
    return closers


def _closes_turns_of_several_roles(token: str, closers: Mapping[Source, set[str]]) -> bool:
    """Does a token close the turns of several roles? One after user content alone may be the header
    of the answer: `[/INST]`.
    """
    return sum(token in tokens for tokens in closers.values()) > 1


def _added_token_at_start(text: str, added: Mapping[str, int]) -> str:
    """The added token with which a text begins; empty where it begins with none."""
    return max((token for token in added if text.startswith(token)), key=len, default="")


def _text_after_end_of_turn(between: TextBetween, ends: set[str]) -> str:
    """The text without what ends the turn before."""
    end = max(
        (between.text.rfind(token) + len(token) for token in ends if token in between.text),
        default=0,
    )
    header = between.text[end:].lstrip()
    # Spaces at its end may be part of the content's first token, and are then not found as bytes of their own.
    return header.rstrip(" ")


def _cut_header_at_first_empty_line(header: str, added: Mapping[str, int]) -> str:
    """A header up to the first empty line behind its last added token: what follows is text, such as today's date."""
    last = max((header.rfind(token) + len(token) for token in added if token in header), default=0)
    empty_line = header.find("\n\n", last)
    return header if not last or empty_line < 0 else header[: empty_line + 2]


def _shared_or_single_headers_by_role(
    texts: Mapping[Source, Sequence[str]], added: Mapping[str, int], backend: tokenizers.Tokenizer
) -> Iterator[TurnHeader]:
    """The header that all turns of a role share, as bytes of its ids; where they share none, each
    of them.

    Its bytes are those of its ids: some added tokens swallow the white space beside them (Phi-3's do).
    """
    vocabulary = TokenBytes(backend)
    for role, role_texts in texts.items():
        shared = _common_prefix_in_whole_tokens(role_texts, added)
        for text in (
            [shared] if len(shared.strip()) >= MIN_HEADER_BYTES else dict.fromkeys(role_texts)
        ):
            first = _added_token_at_start(text, added)
            # A tool result without a token of its own is written into the user's turn by most
            # templates: its words are text.
            is_found_by_token = bool(first) or role is not Source.TOOL_RESULT
            if len(text.strip()) >= MIN_HEADER_BYTES and is_found_by_token:
                ids = backend.encode(text, add_special_tokens=False).ids
                spelled = b"".join(vocabulary.spell(id) for id in ids).lstrip()
                yield TurnHeader(role, spelled, added[first] if first else None)


def _common_prefix_in_whole_tokens(texts: Sequence[str], added: Mapping[str, int]) -> str:
    """What all texts begin with, in whole added tokens."""
    # What the smallest and the largest text share, all texts between them share.
    low, high = min(texts), max(texts)
    size = min(len(low), len(high))
    count = next((i for i in range(size) if low[i] != high[i]), size)
    for token in added:
        at = low.rfind(token, 0, count + len(token))
        # A cut inside of an added token would search for half of it.
        if 0 <= at < count < at + len(token):
            count = at
    return low[:count]


def _headers_longest_first_without_doubles(headers: Iterator[TurnHeader]) -> list[TurnHeader]:
    """The headers, longest first; of two roles with the same header (a system text in the user's
    turn) the user's.
    """
    by_text: dict[bytes, TurnHeader] = {}
    for header in headers:
        known = by_text.get(header.text)
        # A pattern can give one role alone.
        if known is None or header.role is Source.USER:
            by_text[header.text] = header
    return sorted(by_text.values(), key=lambda header: -len(header.text))
