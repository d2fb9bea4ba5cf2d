"""Plan: a training example as pieces with marks, before its fields are filled in.

A rendering is a list of pieces: literal text, and expressions over fields (`traced.Node`). A mark points into
a piece, so it stays right whatever the fields hold.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from truetune.data.conversation import Conversation, Message
from truetune.render.rendering import Rendering, Source, Span, Turn
from truetune.render.template import REASONING_KEYS, path_text
from truetune.render.traced_string import UNKNOWN, Node, Path, Segment, Traced
from truetune.spec.run import Learn

THINK, THINK_END = "<think>", "</think>"


class Piece(NamedTuple):
    """Literal text (node is None), or one expression over one field."""

    literal: str
    node: Node | None
    source: Source
    path: str
    offset: int
    segments: tuple[Segment, ...]
    """Of the row that the plan was made of"""


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
    pieces: tuple[Piece, ...]
    turns: tuple[TurnPlan, ...]
    turn: int | None
    """The only turn that is trained, where each turn has its own example."""
    bos: int
    """How many characters of BOS the first piece begins with; 0 where it does not, or is nothing else."""

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """Of each piece; of BOS and of what follows it, where they share one."""
        return (
            *((Source.BOS, Source.TEMPLATE) if self.bos else ()),
            *(p.source for p in self.pieces[bool(self.bos) :]),
        )

    @cached_property
    def places(self) -> tuple[tuple[str, int], ...]:
        """(path, offset) of each of the sources."""
        return (
            *((("", -1),) * bool(self.bos)),
            *((piece.path, piece.offset) for piece in self.pieces),
        )

    @cached_property
    def answers(self) -> tuple[int, ...]:
        """The sources that may be thinking and answer in one."""
        return tuple(i for i, source in enumerate(self.sources) if source is Source.ASSISTANT)


def make_plan(
    parts: tuple[str | Traced, ...],
    turns: tuple[TurnPlan, ...],
    turn: int | None,
    row: Conversation,
    bos: str | None,
) -> Plan:
    """The plan of a rendering, each of its pieces with its source."""
    made = []
    for part in parts:
        if isinstance(part, Traced):
            path = leaf_path(part.node)
            if path == UNKNOWN:
                path = next((segment.path for segment in part.segments if segment.path), UNKNOWN)
            offset = part.segments[0].offset if part.segments else 0
            source = source_of(path, row.messages)
            if source is Source.ASSISTANT and _before_thinking_ends(part.node):
                source = Source.REASONING
            made.append(
                Piece(part.plain, part.node, source, path_text(path), offset, part.segments)
            )
        else:
            made.append(Piece(part, None, Source.TEMPLATE, "", -1, ()))
    head = 0
    if made and bos and made[0].node is None and made[0].literal.startswith(bos):
        made[0] = made[0]._replace(source=Source.BOS)
        head = len(bos) if made[0].literal != bos else 0
    return Plan(tuple(made), turns, turn, head)


def _before_thinking_ends(node: Node) -> bool:
    """Is it what a template takes from before `</think>`?"""
    while node[0] != "leaf":
        if node[0] == "item" and node[1][0] in ("split", "partition") and THINK_END in node[1][2]:
            return bool(node[2][0] == 0)
        node = node[1]
    return False


def leaf_path(node: Node) -> Path:
    """The field that an expression is made from."""
    while node[0] != "leaf":
        node = node[1]
    path: Path = node[1]
    return path


def source_of(path: Path, messages: list[Message]) -> Source:
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
    """The rendering of a plan whose pieces hold `texts`."""
    starts = [0, *accumulate(map(len, texts))]
    text = "".join(texts)
    edges = [0, plan.bos, *starts[1:]] if plan.bos else starts
    rendering = Rendering(text, edges, plan.sources, plan.places, [], [], plan.turn)
    for i in reversed(plan.answers):
        if text.find(THINK_END, edges[i], edges[i + 1]) >= 0 and _begins_with_thinking(
            text, edges[i]
        ):
            _split_off_thinking(rendering, i)
    turns = rendering.turns
    for message, start, stop, end, skew, _ in plan.turns:
        turns.append(
            Turn(
                message,
                -1 if start is None else starts[start[0]] + start[1],
                -1 if stop is None else starts[stop[0]] + stop[1],
                -1 if end is None else starts[end[0]] + end[1],
                skew,
            )
        )
    if learn.what == "all":
        rendering.spans = [Span(0, len(text), -1, 1.0)] if text else []
        return rendering
    for turn, planned in zip(turns, plan.turns, strict=True):
        if planned.weight and turn.end > turn.start >= 0:
            rendering.spans += _narrow_span(
                Span(turn.start, turn.end, turn.message, planned.weight), turn, rendering, learn
            )
    return rendering


def split_by_segments(plan: Plan, rendering: Rendering) -> Rendering:
    """The rendering of the very row that a plan was made of, each segment of its fields a source of its own."""
    cells, at = [], 0
    for piece in plan.pieces:
        for length, path, offset in piece.segments or (Segment(len(piece.literal), None, -1),):
            cells.append((at, piece.path if path in (None, UNKNOWN) else path_text(path), offset))
            at += length
    begins, sources, places = [start for start, _, _ in cells], [], []
    starts = sorted({*rendering.starts, *begins})
    for start in starts[:-1]:
        sources.append(rendering.sources[bisect_right(rendering.starts, start) - 1])
        begin, name, offset = cells[bisect_right(begins, start) - 1]
        places.append((name, offset + start - begin if offset >= 0 else -1))
    return replace(rendering, starts=starts, sources=tuple(sources), places=tuple(places))


def _begins_with_thinking(text: str, start: int) -> bool:
    """Does an answer begin with thinking, or behind a template that has begun it?"""
    return text[start:].lstrip().startswith(THINK) or text[:start].rstrip().endswith(THINK)


def _split_off_thinking(rendering: Rendering, i: int) -> None:
    """Part a piece behind `</think>` and the white space that follows it."""
    start, end = rendering.starts[i], rendering.starts[i + 1]
    text = rendering.text[start:end]
    cut = text.rindex(THINK_END) + len(THINK_END)
    cut = start + len(text) - len(text[cut:].lstrip())
    path, offset = rendering.places[i]
    rendering.starts = [*rendering.starts[: i + 1], cut, *rendering.starts[i + 1 :]]
    rendering.sources = (*rendering.sources[:i], Source.REASONING, *rendering.sources[i:])
    after = (path, offset + cut - start if offset >= 0 else -1)
    rendering.places = (*rendering.places[: i + 1], after, *rendering.places[i + 1 :])


def _narrow_span(span: Span, turn: Turn, rendering: Rendering, learn: Learn) -> list[Span]:
    """Take reasoning and tool calls out of a span where they are not to be learned."""
    if learn.reasoning and learn.tool_calls:
        return [span]
    mine = [
        run
        for run in rendering.runs
        if run.source is not Source.TEMPLATE and span.start <= run.start < span.end
    ]
    start, tail = span.start, span.end
    if not learn.reasoning and any(run.source is Source.REASONING for run in mine):
        answer = [run.start for run in mine if run.source is not Source.REASONING]
        start = answer[0] if answer else turn.stop_start if turn.stop_start >= 0 else span.end
    if not learn.tool_calls and any(run.source is Source.TOOL_CALL for run in mine):
        tail = max((run.end for run in mine if run.source is not Source.TOOL_CALL), default=start)
    if tail == span.end:
        return [span._replace(start=start)] if start < tail else []
    stop = [span._replace(start=turn.stop_start)] if turn.stop_start >= 0 else []
    return [*([span._replace(start=start, end=tail)] if start < tail else []), *stop]
