"""The token view on a terminal: every token of an example, where it came from, and whether it is learned.

Colours say the source and brackets what is supervised, so that both can be read at once, and brackets survive a
pipe that has no colours. A line separates what max_length drops, which has no brackets: it is not learned. The
trade-off: text that has brackets itself can be misread; ids (--ids) settle it.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from truetune.checks.reports import TokenView
from truetune.render.rendering import Source
from truetune.report.visible_text import (
    count_noun,
    escape_invisible_characters,
    token_text_with_visible_symbols,
)

SOURCE_COLOURS = {
    Source.TEMPLATE: "bright_black", Source.BOS: "bright_black", Source.SYSTEM: "magenta", Source.USER: "blue",
    Source.ASSISTANT: "green", Source.REASONING: "cyan", Source.TOOL_CALL: "yellow", Source.TOOL_RESULT: "bright_blue",
    Source.STOP: "red", Source.TOOLS: "bright_magenta", Source.TEXT: "default", Source.OTHER: "default",
    Source.IMAGE: "bright_yellow",
}  # fmt: skip


def render_token_view(
    view: TokenView,
    console: Console,
    *,
    ids: bool = False,
    number: int = 0,
    kept: tuple[int, int] | None = None,
) -> None:
    """Draw the tokens of one example. Supervised tokens are in [brackets]; an underline would
    hide underscores.

    Args:
        view: the tokens of the example.
        console: where it is drawn.
        ids: draw each token's id after it.
        number: which example of its row it is, from 0, for rows that are split.
        kept: the range of tokens that max_length leaves; None where nothing is cut.
    """
    console.print(Text(_example_title(view, number), style="bold"), soft_wrap=True)
    first, last = kept or (0, len(view.ids))
    dropped = _tokens_text(view, range(first), ids=ids, is_kept=False)
    if first:
        dropped.append(
            f"\n{_line_between_kept_and_dropped_tokens(view, range(first), 'before this line')}\n"
        )
    body = dropped + _tokens_text(view, range(first, last), ids=ids)
    if last < len(view.ids):
        rest = range(last, len(view.ids))
        body.append(f"\n{_line_between_kept_and_dropped_tokens(view, rest, 'after this line')}\n")
        body += _tokens_text(view, rest, ids=ids, is_kept=False)
    # Templates end in line ends, which would leave a hole before the legend.
    while body.plain.endswith("\n"):
        body.right_crop()
    console.print(body, soft_wrap=True)
    console.print()
    # rich pads wrapped lines with spaces, which show in a copy.
    for line in source_count_legend(view, kept).wrap(console, console.width):
        line.rstrip()
        console.print(line)


def _tokens_text(view: TokenView, places: range, *, ids: bool, is_kept: bool = True) -> Text:
    """Some tokens of an example: those that are kept with brackets and colours, dropped ones struck through."""
    text = Text()
    for at in places:
        piece = view.pieces[at]
        label = token_text_with_visible_symbols(piece) + (f"/{view.ids[at]}" if ids else "")
        style = SOURCE_COLOURS[Source(int(view.source[at]))]
        # Bold as well: on a terminal without colours both signs are there.
        if view.supervised[at] and is_kept:
            text.append(f"[{label}]", style=f"{style} bold")
        else:
            text.append(label + (" " if ids else ""), style=style if is_kept else "strike")
        # A line end is drawn as a sign and made as well: a conversation keeps its shape.
        text.append("\n" * piece.count("\n"))
    return text


def _line_between_kept_and_dropped_tokens(view: TokenView, dropped: range, where: str) -> str:
    """The line between kept and dropped tokens: how many are dropped, and how many of them are supervised."""
    supervised = int(view.supervised[dropped.start : dropped.stop].sum())
    return (
        f"--- max_length drops {count_noun(len(dropped), 'token')} {where}, {supervised:,}"
        " of them supervised ---"
    )


def token_view_json(view: TokenView, kept: tuple[int, int] | None = None) -> dict[str, Any]:
    """The tokens of one example as plain values; bytes that are no character as in `token_text_with_visible_symbols`.

    Args:
        view: the tokens of the example.
        kept: the range of tokens that max_length leaves; None where nothing is cut.
    """
    row = view.example.row
    columns = zip(
        view.ids.tolist(), view.pieces, view.source.tolist(), view.supervised.tolist(), strict=True
    )
    return {
        "file": row.origin.file,
        "line": row.origin.line,
        "row": row.origin.row,
        "format": row.format,
        "template": view.template,
        "turn": view.example.rendering.turn,
        "kept": None if kept is None else list(kept),
        "tokens": [
            {
                "id": id,
                "text": token_text_with_visible_symbols(piece),
                "source": Source(source).name.lower(),
                "supervised": supervised,
            }
            for id, piece, source, supervised in columns
        ],
    }


def _example_title(view: TokenView, number: int) -> str:
    """The title of an example: the row's place, format and template; of a row that is split, which
    turn is trained.
    """
    row = view.example.row
    title = f"{escape_invisible_characters(str(row.origin))} (row {row.origin.row}, {row.format}"
    title += (
        f", template {escape_invisible_characters(view.template)})"
        if view.template is not None
        else ")"
    )
    if view.example.rendering.turn is not None:
        title += f", example {number + 1}: trains turn {view.example.rendering.turn} alone"
    return title


def source_count_legend(view: TokenView, kept: tuple[int, int] | None = None) -> Text:
    """How many tokens come from each source, in the colours of the view; of a cut example, of those that are kept."""
    part = slice(*kept) if kept is not None else slice(None)
    sources, supervised = view.source[part], view.supervised[part]
    total, learned_of_all = "", ""
    if kept is not None:
        total, learned_of_all = f" of {len(view.ids):,}", f" of {int(view.supervised.sum()):,}"
    text = Text(
        f"{len(sources):,}{total} tokens, {int(supervised.sum()):,}{learned_of_all} [supervised];"
        " supervised/all by source: "
    )
    counts = [(source, int((sources == source).sum())) for source in Source]
    for i, (source, count) in enumerate((source, count) for source, count in counts if count):
        learned = int(supervised[sources == source].sum())
        text.append(", " if i else "").append(
            f"{source.label} {learned:,}/{count:,}", style=SOURCE_COLOURS[source]
        )
    return text
