"""Finds answers that continue with an invented turn: the marker that begins the prompts comes again behind the answer.

A prompt in plain text has a frame, lines that all prompts share: `### Question:`, `### Answer:`. A model that never
learned to stop answers, and then writes what stood behind an answer in its training: the next question. The frame is
read from the prompts themselves, so that no list of markers is needed; of those whose frame is known, and was taken
off, by the same headers. The last line of the frame begins the answer, and an answer may well repeat it; the lines
before it begin a question, and only they tell an invented turn.

The trade-off: some prompts are needed for a frame, and turns are told only where more than half of the suspected
answers have them; a model that invents a turn now and then is not named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from truetune.data.parse_rendered_prompts import find_user_header_inside_text
from truetune.generation.answer_samples import Sample

# Chosen, not measured.
MIN_PROMPTS = 8
"""Prompts that a frame needs: fewer share a line by chance"""
# Chosen, not measured: some rows of a file have another form, and a word that most questions begin with is no frame.
FRAME_SHARE = 0.9
"""Share of the prompts that have a line of the frame"""
MAX_MARKER = 40
"""Characters of a marker: a longer line is a text"""


@dataclass(frozen=True, slots=True)
class InventedTurns:
    """Answers that continue with the next turn."""

    marker: str
    """The line of the prompts' frame that comes again most"""
    answers: int
    """With a turn of their own behind some text"""
    right: int
    """Of these, whose text before it is the reference word for word"""


def find_invented_turns(
    asked: Sequence[Sample], suspected: Sequence[Sample]
) -> InventedTurns | None:
    """The turns that more than half of some answers invent.

    Args:
        asked: all samples of a pass, whose prompts tell the frame.
        suspected: those whose answers are too long, or do not stop.
    """
    frame = _question_markers([sample.prompt.question for sample in asked])
    markers, right = Counter[str](), 0
    for sample in suspected:
        text = sample.answer.text
        start, marker = _first_invented_turn(sample, frame) or (0, "")
        if marker:
            markers[marker] += 1
            right += text[:start].split() == sample.prompt.reference.split()
    if 2 * markers.total() <= len(suspected):
        return None
    return InventedTurns(markers.most_common(1)[0][0], markers.total(), right)


def _first_invented_turn(sample: Sample, frame: Sequence[str]) -> tuple[int, str] | None:
    """Where the first turn of its own begins in an answer, and its marker; None where the reference has such too."""
    text, reference = sample.answer.text, sample.prompt.reference
    if not frame and sample.prompt.chat is not None:
        known = find_user_header_inside_text(text)
        return known if known is not None and known[1] not in reference else None
    own = set(_possible_markers_of_lines(reference))
    starts = (_find_marker_behind_text(marker, text) for marker in frame if marker not in own)
    return min((start for start in starts if start is not None), default=None)


def _question_markers(prompts: Sequence[str]) -> list[str]:
    """The markers that begin a question: those of the prompts' frame but the last, which begins the answer."""
    if len(prompts) < MIN_PROMPTS:
        return []
    counts = Counter(
        marker for prompt in prompts for marker in set(_possible_markers_of_lines(prompt))
    )
    ends = {next(reversed(list(_possible_markers_of_lines(prompt))), "") for prompt in prompts}
    return [
        marker
        for marker, count in counts.items()
        if count >= FRAME_SHARE * len(prompts) and marker not in ends
    ]


def _possible_markers_of_lines(text: str) -> Iterator[str]:
    """What may be a marker, of each line: `### Question:`, and `Q:` of `Q: Is it open?`."""
    for line in text.splitlines():
        head, colon, _ = line.partition(":")
        marker = (head + colon).strip()
        is_marker = colon or line.lstrip().startswith(("#", "<", "["))
        if is_marker and len(marker) <= MAX_MARKER and any(map(str.isalpha, marker)):
            yield marker


def _find_marker_behind_text(marker: str, text: str) -> tuple[int, str] | None:
    """Where this marker begins a line behind some text, and the marker; None where it does not."""
    position = 0
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith(marker) and text[:position].strip():
            return position, marker
        position += len(line)
    return None
