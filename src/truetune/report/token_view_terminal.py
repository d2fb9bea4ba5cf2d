"""The token view on a terminal: every token of an example, where it came from, and whether it is learned.

Colours say the source and brackets what is supervised, so that both can be read at once, and brackets survive a
pipe that has no colours. The trade-off: text that has brackets itself can be misread; ids (--ids) settle it.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from truetune.checks.reports import TokenView
from truetune.render.rendering import Source
from truetune.report.visible_text import spell_token, visible

SOURCE_COLOURS = {
    Source.TEMPLATE: "bright_black", Source.BOS: "bright_black", Source.SYSTEM: "magenta", Source.USER: "blue",
    Source.ASSISTANT: "green", Source.REASONING: "cyan", Source.TOOL_CALL: "yellow", Source.TOOL_RESULT: "bright_blue",
    Source.STOP: "red", Source.TOOLS: "bright_magenta", Source.TEXT: "default", Source.OTHER: "default",
}  # fmt: skip


def render_token_view(
    view: TokenView, console: Console, *, ids: bool = False, number: int = 0
) -> None:
    """Draw the tokens of one example. Supervised tokens are in [brackets]; an underline would
    hide underscores.

    Args:
        view: the tokens of the example.
        console: where it is drawn.
        ids: draw each token's id behind it.
        number: which example of its row it is, from 0, for rows that are split.
    """
    console.print(Text(_example_title(view, number), style="bold"), soft_wrap=True)
    body = Text()
    for piece, id, source, supervised in zip(
        view.pieces, view.ids, view.source, view.supervised, strict=True
    ):
        label = spell_token(piece) + (f"/{id}" if ids else "")
        style = SOURCE_COLOURS[Source(int(source))]
        # Bold as well: on a terminal without colours both signs are there.
        if supervised:
            body.append(f"[{label}]", style=f"{style} bold")
        else:
            body.append(label + (" " if ids else ""), style=style)
        # A line end is drawn as a sign and made as well: a conversation keeps its shape.
        body.append("\n" * piece.count("\n"))
    # Templates end in line ends, which would leave a hole before the legend.
    while body.plain.endswith("\n"):
        body.right_crop()
    console.print(body, soft_wrap=True)
    console.print()
    # rich pads wrapped lines with spaces, which show in a copy.
    for line in source_count_legend(view).wrap(console, console.width):
        line.rstrip()
        console.print(line)


def token_view_json(view: TokenView) -> dict[str, Any]:
    """The tokens of one example as plain values; bytes that are no character as in `spell_token`."""
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
        "tokens": [
            {
                "id": id,
                "text": spell_token(piece),
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
    title = f"{visible(str(row.origin))} (row {row.origin.row}, {row.format}"
    title += f", template {visible(view.template)})" if view.template is not None else ")"
    if view.example.rendering.turn is not None:
        title += f", example {number + 1}: trains turn {view.example.rendering.turn} alone"
    return title


def source_count_legend(view: TokenView) -> Text:
    """How many tokens come from each source, in the colours of the view."""
    text = Text(
        f"{len(view.ids):,} tokens, {int(view.supervised.sum()):,} [supervised]; supervised/all by"
        " source: "
    )
    counts = [(source, int((view.source == source).sum())) for source in Source]
    for i, (source, count) in enumerate((source, count) for source, count in counts if count):
        learned = int(view.supervised[view.source == source].sum())
        text.append(", " if i else "").append(
            f"{source.label} {learned:,}/{count:,}", style=SOURCE_COLOURS[source]
        )
    return text
