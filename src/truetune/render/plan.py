"""Plan: a training example as pieces with marks, before its fields are filled in.

A rendering is a list of pieces: literal text, and expressions over fields (`traced.Node`). A mark points into
a piece, so it stays right whatever the fields hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from truetune.data.conversation import Conversation, Message
from truetune.render.rendering import Rendering, Run, Source, Span, Turn
from truetune.render.template import REASONING_KEYS, path_text
from truetune.render.traced import UNKNOWN, Node, Path, Traced
from truetune.spec.run import Learn

THINK_END = "</think>"


class Piece(NamedTuple):
    """Literal text (node is None), or one expression over one field."""

    literal: str
    node: Node | None
    source: Source
    path: str
    offset: int


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


@dataclass(frozen=True, slots=True)
class Plan:
    pieces: tuple[Piece, ...]
    turns: tuple[TurnPlan, ...]
    turn: int | None
    """The only turn that is trained, where each turn has its own example."""


def pieces(parts: tuple[str | Traced, ...], row: Conversation, bos: str | None) -> tuple[Piece, ...]:
    """The pieces of a rendering, each with its source."""
    made = []
    for part in parts:
        if isinstance(part, Traced):
            path = leaf_path(part.node)
            if path == UNKNOWN:
                path = next((segment.path for segment in part.segments if segment.path), UNKNOWN)
            offset = part.segments[0].offset if part.segments else 0
            made.append(Piece(part.plain, part.node, source_of(path, row.messages), path_text(path), offset))
        else:
            made.append(Piece(part, None, Source.TEMPLATE, "", -1))
    if made and bos and made[0].node is None and made[0].literal.startswith(bos):
        made[0] = made[0]._replace(source=Source.BOS)
    return tuple(made)


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


def fill(plan: Plan, texts: list[str], learn: Learn, bos: str | None) -> Rendering:
    """The rendering of a plan whose pieces hold `texts`."""
    at, starts = 0, []
    for text in texts:
        starts.append(at)
        at += len(text)
    starts.append(at)
    runs: list[Run] = []
    for piece, text, start in zip(plan.pieces, texts, starts, strict=False):
        if text:
            runs += _runs(piece, text, start, bos)

    def position(mark: Mark | None) -> int:
        return -1 if mark is None else starts[mark.piece] + mark.offset

    turns = [Turn(t.message, position(t.start), position(t.stop), position(t.end), t.skew) for t in plan.turns]
    spans: list[Span] = []
    if learn.what == "all":
        spans = [Span(0, at, -1, 1.0)] if at else []
    else:
        for turn, planned in zip(turns, plan.turns, strict=True):
            if planned.weight and turn.end > turn.start >= 0:
                spans += _narrow(Span(turn.start, turn.end, turn.message, planned.weight), turn, runs, learn)
    return Rendering("".join(texts), runs, spans, turns, plan.turn)


def _runs(piece: Piece, text: str, start: int, bos: str | None) -> list[Run]:
    end = start + len(text)
    if piece.source is Source.BOS and bos:
        head = start + len(bos)
        rest = [Run(head, end, Source.TEMPLATE, "", -1)] if head < end else []
        return [Run(start, head, Source.BOS, "", -1), *rest]
    if piece.source is Source.ASSISTANT and THINK_END in text:
        cut = start + text.rindex(THINK_END) + len(THINK_END)
        cut += len(text[cut - start :]) - len(text[cut - start :].lstrip())
        reasoning = Run(start, cut, Source.REASONING, piece.path, piece.offset)
        offset = piece.offset + cut - start if piece.offset >= 0 else -1
        return [reasoning, Run(cut, end, Source.ASSISTANT, piece.path, offset)] if cut < end else [reasoning]
    return [Run(start, end, piece.source, piece.path, piece.offset)]


def _narrow(span: Span, turn: Turn, runs: list[Run], learn: Learn) -> list[Span]:
    """Take reasoning and tool calls out of a span where they are not to be learned."""
    if learn.reasoning and learn.tool_calls:
        return [span]
    mine = [run for run in runs if run.source is not Source.TEMPLATE and span.start <= run.start < span.end]
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
