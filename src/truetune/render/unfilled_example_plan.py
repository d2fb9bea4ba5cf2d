"""Plan: a training example as pieces with marks, before its fields are filled in.

A rendering is a list of pieces: literal text, and expressions over fields (`traced_string.Node`). A mark points into
a piece, so it stays right whatever the fields hold.

`make_plan` turns the parts of a traced rendering into pieces with their sources; `fill_plan` turns a plan and the
texts of its pieces into a Rendering, whose positions are characters. The trade-off: one more form between template
and rendering, but it is what all rows of a shape share, so that a recipe has only texts to compute.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from truetune.data.conversation import Conversation, Message
from truetune.render.rendering import Rendering, Run, Source, Span, Turn
from truetune.render.template import REASONING_KEYS, Template, path_as_text
from truetune.render.traced_string import (
    UNKNOWN,
    Node,
    Path,
    Segment,
    Traced,
    field_path_of_expression,
)
from truetune.settings.run_spec import Learn

THINK, THINK_END = "<think>", "</think>"


class Piece(NamedTuple):
    """Literal text (node is None), or one expression over one field."""

    literal: str
    """The characters, of a field those of the row that the plan was made of"""
    node: Node | None
    """How the text is made from a field; None for text of the template"""
    source: Source
    path: str
    """The field, `messages[2].content`; empty for text of the template"""
    offset: int
    """Where in the field it begins, in characters, in the row that the plan was made of; -1 where only the field is
    known"""
    segments: tuple[Segment, ...]
    """Likewise of that row alone; `split_rendering_sources_by_segments` makes runs of them"""


class Mark(NamedTuple):
    """A place in a rendering: before character `offset` of a piece."""

    piece: int
    offset: int


class TurnPlan(NamedTuple):
    """The marks of one assistant turn; None for what is not there. See rendering.Turn."""

    message: int
    start: Mark | None
    stop: Mark | None
    end: Mark | None
    skew: str | None
    weight: float
    """0 where the turn is not supervised"""


@dataclass(frozen=True)
class Plan:
    """One training example with its fields left open."""

    pieces: tuple[Piece, ...]
    turns: tuple[TurnPlan, ...]
    turn: int | None
    """The only turn that is trained, where each turn has its own example."""
    bos: int
    """How many characters of BOS the first piece begins with; 0 where it does not, or is nothing else."""
    template: str
    """The name of the chat template that wrote it"""

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The source of each piece; one of BOS and of what follows it, where they share a piece."""
        return (
            *((Source.BOS, Source.TEMPLATE) if self.bos else ()),
            *(p.source for p in self.pieces[bool(self.bos) :]),
        )

    @cached_property
    def places(self) -> tuple[tuple[str, int], ...]:
        """The place of each of the sources: (path, offset)."""
        return (
            *((("", -1),) * bool(self.bos)),
            *((piece.path, piece.offset) for piece in self.pieces),
        )

    @cached_property
    def assistant_sources(self) -> tuple[int, ...]:
        """The numbers of the sources that hold an answer, and maybe the thinking before it as well."""
        return tuple(i for i, source in enumerate(self.sources) if source is Source.ASSISTANT)


def make_plan(
    parts: tuple[str | Traced, ...],
    turns: tuple[TurnPlan, ...],
    turn: int | None,
    row: Conversation,
    template: Template,
) -> Plan:
    """The plan of a rendering, each of its pieces with its source.

    Args:
        parts: what the template wrote.
        turns: the assistant turns, their marks into these parts.
        turn: the only turn that is trained; None where the example trains all of them.
        row: the conversation, whose roles say what a field is.
        template: what wrote them; it knows the tokenizer's BOS token, where there is one.
    """
    bos = template.special.get("bos_token")
    pieces = [_make_piece(part, row) for part in parts]
    bos_length = 0
    if pieces and bos and pieces[0].node is None and pieces[0].literal.startswith(bos):
        pieces[0] = pieces[0]._replace(source=Source.BOS)
        # BOS and the header behind it are one literal part. Cutting it here would shift every mark that points into
        # it, so that it stays one piece with two sources.
        if pieces[0].literal != bos:
            bos_length = len(bos)
    return Plan(tuple(pieces), turns, turn, bos_length, template.name)


def _make_piece(part: str | Traced, row: Conversation) -> Piece:
    """The piece of one part of a rendering."""
    if not isinstance(part, Traced):
        return Piece(part, None, Source.TEMPLATE, "", -1, ())
    path = field_path_of_expression(part.node)
    if path == UNKNOWN:
        # How it was made can't be told, but its characters may still name their field.
        path = next((segment.path for segment in part.segments if segment.path), UNKNOWN)
    offset = part.segments[0].offset if part.segments else 0
    source = source_of_field(path, row.messages)
    if source is Source.ASSISTANT and _is_text_before_think_end(part.node):
        source = Source.REASONING
    return Piece(part.plain, part.node, source, path_as_text(path), offset, part.segments)


def _is_text_before_think_end(node: Node) -> bool:
    """Is it what a template takes from before `</think>`, as `content.split('</think>')[0]` does?"""
    while node[0] != "leaf":
        if node[0] == "item" and node[1][0] in ("split", "partition") and THINK_END in node[1][2]:
            return bool(node[2][0] == 0)
        node = node[1]
    return False


def source_of_field(path: Path, messages: list[Message]) -> Source:
    """What a field is to the model."""
    match path:
        case ("messages", int(i), key, *_):
            if key in REASONING_KEYS:
                return Source.REASONING
            if key in ("tool_calls", "function_call"):
                return Source.TOOL_CALL
            return _BY_ROLE.get(str(messages[i].get("role")), Source.OTHER)
        case ("tools", *_):
            return Source.TOOLS
        case _:
            return Source.OTHER


_BY_ROLE = {
    "system": Source.SYSTEM,
    "developer": Source.SYSTEM,
    "user": Source.USER,
    "assistant": Source.ASSISTANT,
    "tool": Source.TOOL_RESULT,
    "function": Source.TOOL_RESULT,
    "ipython": Source.TOOL_RESULT,
}


def fill_plan(plan: Plan, texts: list[str], learn: Learn) -> Rendering:
    """The rendering of a plan whose pieces hold `texts`.

    This runs once for each row that a recipe fills, and is most of its time: no object is made here that the rendering
    does not keep.

    Args:
        plan: from `make_plan`.
        texts: one for each piece.
        learn: what of a turn is learned.
    """
    starts = [0, *accumulate(map(len, texts))]
    text = "".join(texts)
    source_starts = [0, plan.bos, *starts[1:]] if plan.bos else starts
    rendering = Rendering(
        text, source_starts, plan.sources, plan.places, [], [], plan.turn, plan.template
    )
    # From the last to the first, for each split shifts the numbers of the sources behind it.
    for i in reversed(plan.assistant_sources):
        has_end = text.find(THINK_END, source_starts[i], source_starts[i + 1]) >= 0
        if has_end and _begins_with_thinking(text, source_starts[i]):
            _split_off_thinking(rendering, i)
    turns = rendering.turns
    for message, start, stop, end, skew, _ in plan.turns:
        turns.append(
            Turn(
                message,
                _character_behind_mark(start, starts),
                _character_behind_mark(stop, starts),
                _character_behind_mark(end, starts),
                skew,
            )
        )
    if learn.what == "all":
        rendering.spans = [Span(0, len(text), -1, 1.0)] if text else []
        return rendering
    for turn, planned in zip(turns, plan.turns, strict=True):
        if planned.weight and turn.end > turn.start >= 0:
            rendering.spans += _take_reasoning_and_calls_out_of_span(
                Span(turn.start, turn.end, turn.message, planned.weight), turn, rendering, learn
            )
    return rendering


def _character_behind_mark(mark: Mark | None, starts: list[int]) -> int:
    """The character that a mark stands before, where piece i begins at `starts[i]`; -1 for no mark."""
    return -1 if mark is None else starts[mark[0]] + mark[1]


def split_rendering_sources_by_segments(plan: Plan, rendering: Rendering) -> Rendering:
    """The rendering of the very row that a plan was made of, each segment of its fields a source of its own.

    A recipe knows of each piece where its first character stands; the segments know it of every character, but only for
    the row that was rendered.
    """
    # (first character in the text, path, offset in the field) of each segment, in order.
    segments: list[tuple[int, str, int]] = []
    position = 0
    for piece in plan.pieces:
        for length, path, offset in piece.segments or (Segment(len(piece.literal), None, -1),):
            name = piece.path if path in (None, UNKNOWN) else path_as_text(path)
            segments.append((position, name, offset))
            position += length
    segment_starts = [start for start, _, _ in segments]
    # Cut wherever either the rendering or the segments do: the rendering also cuts at BOS and behind `</think>`.
    starts = sorted({*rendering.starts, *segment_starts})
    sources, places = [], []
    for start in starts[:-1]:
        sources.append(rendering.sources[bisect_right(rendering.starts, start) - 1])
        segment_start, name, offset = segments[bisect_right(segment_starts, start) - 1]
        places.append((name, offset + start - segment_start if offset >= 0 else -1))
    return replace(rendering, starts=starts, sources=tuple(sources), places=tuple(places))


def _begins_with_thinking(text: str, start: int) -> bool:
    """Does an answer begin with thinking, or behind a template that has begun it?"""
    return text[start:].lstrip().startswith(THINK) or text[:start].rstrip().endswith(THINK)


def _split_off_thinking(rendering: Rendering, i: int) -> None:
    """Cut source `i`, an answer, behind `</think>` and the white space that follows it; the first half is reasoning."""
    start, end = rendering.starts[i], rendering.starts[i + 1]
    text = rendering.text[start:end]
    # The last one: reasoning may speak of the tag.
    behind_tag = text.rindex(THINK_END) + len(THINK_END)
    answer_length = len(text[behind_tag:].lstrip())
    cut = start + len(text) - answer_length
    path, offset = rendering.places[i]
    rendering.starts = [*rendering.starts[: i + 1], cut, *rendering.starts[i + 1 :]]
    rendering.sources = (*rendering.sources[:i], Source.REASONING, *rendering.sources[i:])
    after = (path, offset + cut - start if offset >= 0 else -1)
    rendering.places = (*rendering.places[: i + 1], after, *rendering.places[i + 1 :])


def _take_reasoning_and_calls_out_of_span(
    span: Span, turn: Turn, rendering: Rendering, learn: Learn
) -> list[Span]:
    """Take reasoning and tool calls out of a span where they are not to be learned.

    Returns:
        What is left, in order: one span, two where the stop token stands apart from the answer, or none.
    """
    if learn.reasoning and learn.tool_calls:
        return [span]
    fields = [
        run
        for run in rendering.runs_of_text_by_origin
        if run.source is not Source.TEMPLATE and span.start <= run.start < span.end
    ]
    start = span.start if learn.reasoning else _start_of_span_behind_reasoning(span, turn, fields)
    end = span.end if learn.tool_calls else _end_of_span_before_calls(span, start, fields)
    narrowed = [span._replace(start=start, end=end)] if start < end else []
    if end != span.end and turn.stop_start >= 0:
        # The model must still learn to stop, behind the calls that it does not learn.
        narrowed.append(span._replace(start=turn.stop_start))
    return narrowed


def _end_of_span_before_calls(span: Span, start: int, fields: list[Run]) -> int:
    """Where a span ends whose tool calls are not learned: behind its last other field; at `start` without any."""
    if not any(run.source is Source.TOOL_CALL for run in fields):
        return span.end
    return max((run.end for run in fields if run.source is not Source.TOOL_CALL), default=start)


def _start_of_span_behind_reasoning(span: Span, turn: Turn, fields: list[Run]) -> int:
    """Where a span begins whose reasoning is not learned: at the answer, else at the stop token, else at its end.

    `fields` are the runs of fields inside the span.
    """
    if not any(run.source is Source.REASONING for run in fields):
        return span.start
    for run in fields:
        if run.source is not Source.REASONING:
            return run.start
    return turn.stop_start if turn.stop_start >= 0 else span.end
