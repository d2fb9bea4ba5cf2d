"""One rendered chat: where each character comes from, and which tokens are learned."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drawing import CELL, LINE, Drawing, box, legend, line, mono, text

from truetune import DataReport, check
from truetune.checks.reports import TokenView
from truetune.demo import TOKENIZER
from truetune.render.rendering import Source, Turn

CALL = {"type": "function", "function": {"name": "track", "arguments": {"order": "64358"}}}
ASKED = [
    {"role": "system", "content": "Answer as the help desk of a shop."},
    {"role": "user", "content": "Where is order 64358?"},
]
WITH_TOOL = [
    *ASKED,
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "content": '{"status": "sent"}'},
    {"role": "assistant", "content": "It left us this morning."},
]
TWO_TURNS = [
    *ASKED,
    {"role": "assistant", "content": "It left us this morning."},
    {"role": "user", "content": "And when will it be here?"},
    {"role": "assistant", "content": "On Thursday.\nShall I send you the link?"},
]
LEFT, TOP, WIDTH, NOTES = 20, 60, 720, 360


def provenance() -> Drawing:
    """The text, coloured by source, with the path of each field beneath it."""
    view = view_of_chat(WITH_TOOL)
    rendering = view.example.rendering
    paths = {run.start: run for run in rendering.runs_of_text_by_origin if run.path}
    parts, y = (
        [text(LEFT, 28, "Each character of a prompt, and the field that it comes from", "bold")],
        TOP,
    )
    for begin, end in lines_of_text(rendering.text):
        parts += _characters(view, begin, end, y)
        for start in (start for start in paths if begin <= start < end):
            run, x = paths[start], LEFT + CELL * (start - begin)
            y += 17
            parts += [line(x + 3, y - 12, x + 3, y - 7)]
            path = f"{run.path}[{run.offset}:{run.offset + run.end - run.start}]"
            parts.append(text(min(x + 12, WIDTH - LEFT - CELL * len(path)), y, path, "mono soft"))
        y += LINE
    fields = ", ".join(run.path for run in paths.values())
    about = f"A rendered chat with a tool call. Its fields: {fields}. The rest is template text."
    return Drawing(
        "Provenance of a prompt", about, WIDTH, y + 16, [*parts, legend(LEFT, y, sources_of(view))]
    )


def contract() -> Drawing:
    """The tokens as boxes; those that are learned are underlined."""
    view = view_of_chat(TWO_TURNS)
    rendering, y = view.example.rendering, TOP
    parts = [
        text(
            LEFT,
            28,
            "What the model must produce at inference is learned, and nothing else",
            "bold",
        )
    ]
    for begin, end in lines_of_text(rendering.text):
        parts += [
            *token_boxes(view, begin, end, y),
            text(NOTES, y, _note(rendering.turns, begin, end), "soft"),
        ]
        y += LINE + 4
    parts += [
        line(LEFT, y, LEFT + 24, y, "line"),
        text(LEFT + 32, y + 4, "learned", "soft"),
        legend(LEFT + 100, y + 4, sources_of(view)),
    ]
    about = (
        "A chat with two answers, token by token. Learned are the two answers, each with its stop"
        " token; headers, questions and the line end after a stop token are context."
    )
    return Drawing("The inference contract", about, WIDTH, y + 22, parts)


def view_of_chat(messages: list[dict[str, Any]]) -> TokenView:
    """A chat as `truetune check` renders it with the tokenizer of the demo."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chat.jsonl"
        path.write_text(json.dumps({"messages": messages}), encoding="utf-8")
        report = check(path, TOKENIZER)
    assert isinstance(report, DataReport)
    return report.views[0]


def lines_of_text(text: str) -> Iterator[tuple[int, int]]:
    """Begin and end of each line, line end included."""
    at = 0
    for part in text.splitlines(keepends=True):
        yield at, at + len(part)
        at += len(part)


def _pieces(view: TokenView, begin: int, end: int) -> Iterator[tuple[int, str, Source, bool]]:
    for start, piece, source, learned in zip(
        view.starts, view.pieces, view.source, view.supervised, strict=True
    ):
        if begin <= start < end:
            yield int(start) - begin, piece.replace("\n", "↵"), Source(int(source)), bool(learned)


def _characters(view: TokenView, begin: int, end: int, y: float) -> list[str]:
    parts = [
        box(LEFT + CELL * at, y - 14, CELL * len(piece), 19, source.name.lower(), "tint")
        for at, piece, source, _ in _pieces(view, begin, end)
    ]
    return [*parts, mono(LEFT, y, view.example.rendering.text[begin:end].replace("\n", "↵"))]


def token_boxes(view: TokenView, begin: int, end: int, y: float) -> list[str]:
    """The tokens of a line as boxes in the colours of their sources; those that are learned are underlined."""
    parts = []
    for at, piece, source, learned in _pieces(view, begin, end):
        x, width = LEFT + CELL * at, CELL * len(piece)
        parts += [
            box(x + 0.6, y - 14, width - 1.2, 19, source.name.lower(), "tint"),
            mono(x, y, piece),
        ]
        parts += [line(x + 0.6, y + 6.5, x + width - 0.6, y + 6.5, "line")] if learned else []
    return parts


def _note(turns: list[Turn], begin: int, end: int) -> str:
    for turn in turns:
        if end == turn.start:
            return "context: the generation prompt ends here"
        if begin <= turn.stop_start < end:
            return "learned through the stop token; not the line end"
        if turn.start <= begin < turn.end:
            return "learned"
    return "context"


def sources_of(view: TokenView) -> list[tuple[str, str]]:
    """(key of the colour, label) of each source of its tokens, for a legend."""
    return [
        (Source(key).name.lower(), Source(key).label) for key in sorted(set(view.source.tolist()))
    ]
