"""Tells which tokens the model must produce when served, where no rendering tells it.

A line that is no rendering of a row is read by the template's own marker: what it writes before every answer. From
behind it through the stop token is expected. The trade-off: a line of another template has no such marker, and then
nothing is said of what is expected in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.find_rendered_rows_in_batch_ids import assistant_token_mask
from truetune.render.rendering import Source
from truetune.render.template_probes import ANSWER, QUESTION, Probes, alternating_chat

# Chosen, not measured: shorter texts ("A:") stand in contents as well.
MIN_MARKER_CHARS = 4
"""Characters of a marker without a control token"""


class TokenRange(NamedTuple):
    """A range of a line whose rows were looked for in its text."""

    ids: NDArray[np.int64]
    pieces: tuple[bytes, ...]
    """What each id spells"""
    source: NDArray[np.uint8]
    """A view of the line's sources: stops and answers that are found are written into it"""


def find_answer_marker(probes: Probes | None) -> bytes:
    """What the template writes before every answer, in prompts and in history; empty where there is no such thing."""
    if probes is None or probes.template is None:
        return b""
    prompt = probes.text(alternating_chat(QUESTION), add_generation_prompt=True) or ""
    whole = probes.text(alternating_chat(QUESTION, ANSWER)) or ""
    # A template may refuse a chat, or write neither as it is given: then there is no marker to look for.
    if QUESTION not in prompt or QUESTION not in whole or ANSWER not in whole:
        return b""
    opening = _text_opening_answer_in_prompt(probes, prompt)
    # A generation prompt may continue where history does not (an empty think block): only what both have is a marker.
    before = whole[whole.rindex(QUESTION) + len(QUESTION) : whole.index(ANSWER)]
    count = next((n for n in range(len(opening), 0, -1) if opening[:n] in before), 0)
    shared = opening[:count]
    marker = shared if len(shared.strip()) >= MIN_MARKER_CHARS else opening
    return _without_text_swallowed_by_tokens(probes, marker.strip(" ")).encode()


def _text_opening_answer_in_prompt(probes: Probes, prompt: str) -> str:
    """What opens an answer in a prompt: the generation prompt alone, where the template has one that it appends."""
    without_prompt = probes.text(alternating_chat(QUESTION)) or ""
    if prompt != without_prompt and prompt.startswith(without_prompt):
        return prompt[len(without_prompt) :]
    return prompt[prompt.rindex(QUESTION) + len(QUESTION) :]


def _without_text_swallowed_by_tokens(probes: Probes, marker: str) -> str:
    """The marker without what its control tokens swallow: those of Phi-3 take the line break behind them away."""
    backend = probes.tokenizer.backend
    ids = backend.encode(marker, add_special_tokens=False).ids
    spelled = str(backend.decode(ids, skip_special_tokens=False)).strip(" ")
    return spelled if "".join(spelled.split()) == "".join(marker.split()) else marker


def find_answer_starts(part: TokenRange, marker: bytes) -> list[int]:
    """The tokens that begin behind a marker."""
    # No marker, or one that stands in any text.
    if len(marker) < MIN_MARKER_CHARS:
        return []
    text = b"".join(part.pieces)
    begins = np.cumsum([0, *map(len, part.pieces)])
    starts, at = [], text.find(marker)
    while at >= 0:
        first = int(np.searchsorted(begins[:-1], at + len(marker)))
        if first < len(part.ids):
            starts.append(first)
        at = text.find(marker, at + len(marker))
    return starts


def mark_first_stop_after_answers(part: TokenRange, stops: frozenset[int]) -> None:
    """The first stop token behind an answer becomes STOP; so does the one that ends plain text."""
    last, is_stop = Source.TEMPLATE, np.isin(part.ids, list(stops))
    answers = (Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL)
    for i in np.flatnonzero((part.source != Source.TEMPLATE) | is_stop).tolist():
        # Template text between an answer and its stop is passed over; between two turns a stop ends nothing.
        if is_stop[i]:
            if last in answers or (last is Source.TEXT and i + 1 == len(part.ids)):
                part.source[i] = Source.STOP
            last = Source.TEMPLATE
        else:
            last = Source(int(part.source[i]))


def expected_token_mask_by_fields(
    part: TokenRange, marks: list[int], prompt: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """(tokens,) what is expected: from the first token of each answer, or what the template writes behind its marker,
    through the stop token; without one to the last token of the answer.

    `prompt` marks the answers that the row gives as part of its prompt.
    """
    answer = assistant_token_mask(part.source) & ~prompt
    expected = np.zeros(len(part.ids), np.bool_)
    first = last = -1
    for i in np.flatnonzero(part.source != Source.TEMPLATE).tolist():
        kind = part.source[i]
        if answer[i]:
            first = _move_answer_start_back_to_marker(part.source, marks, i) if first < 0 else first
            last = i
        elif first >= 0:
            expected[first : (i if kind == Source.STOP else last) + 1] = True
            first = -1
    if first >= 0:
        expected[first : last + 1] = True
    return expected


def _move_answer_start_back_to_marker(
    source: NDArray[np.uint8], marks: list[int], first: int
) -> int:
    """The token after the marker before an answer, where only template text stands between."""
    # What the template writes between marker and answer (an empty think block) is generated, too.
    mark = max((mark for mark in marks if mark <= first), default=first)
    return mark if (source[mark:first] == Source.TEMPLATE).all() else first


def expected_token_mask_by_markers(
    part: TokenRange, marks: list[int], stops: frozenset[int]
) -> NDArray[np.bool_]:
    """(tokens,) what is expected: from after each marker through the next stop token, which becomes STOP."""
    expected = np.zeros(len(part.ids), np.bool_)
    ends = np.flatnonzero(np.isin(part.ids, list(stops)))
    for mark, following in zip(marks, [*marks[1:], len(part.ids)], strict=True):
        stop = next((int(end) for end in ends if mark <= end < following), None)
        end = following if stop is None else stop + 1
        expected[mark:end] = True
        inside = part.source[mark:end]
        # OTHER: the text of a column that no format knows; the template says whose turn it is in.
        inside[np.isin(inside, (Source.TEMPLATE, Source.TEXT, Source.OTHER))] = Source.ASSISTANT
        if stop is not None:
            part.source[stop] = Source.STOP
    return expected
