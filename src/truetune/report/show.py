"""The token view on a terminal: every token of an example, where it came from, and whether it is learned."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from truetune.checks.report import TokenView
from truetune.render.rendering import Source
from truetune.report.text import visible

COLOURS = {
    Source.TEMPLATE: "bright_black", Source.BOS: "bright_black", Source.SYSTEM: "magenta", Source.USER: "blue",
    Source.ASSISTANT: "green", Source.REASONING: "cyan", Source.TOOL_CALL: "yellow", Source.TOOL_RESULT: "bright_blue",
    Source.STOP: "bold red", Source.TOOLS: "bright_magenta", Source.TEXT: "white", Source.OTHER: "white",
}  # fmt: skip


def render_view(view: TokenView, console: Console, *, ids: bool = False, number: int = 0) -> None:
    """Draw one example. Supervised tokens stand in [brackets]."""
    row = view.example.row
    head = f"{row.origin} (row {row.origin.row}, {row.format})"
    if view.example.rendering.turn is not None:
        head += f", example {number + 1}: trains turn {view.example.rendering.turn} alone"
    console.print(Text(head, style="bold"))
    body = Text()
    for piece, id, source, supervised in zip(view.pieces, view.ids, view.source, view.supervised, strict=True):
        style = COLOURS[Source(int(source))] + (" underline" if supervised else "")
        label = spell(piece) + (f"/{id}" if ids else "")
        body.append(f"[{label}]" if supervised else label, style=style)
        if ids and not supervised:
            body.append(" ")
        if "\n" in piece:
            body.append("\n" * piece.count("\n"))
    console.print(body, soft_wrap=True)
    console.print()
    console.print(legend(view))


def spell(piece: str) -> str:
    """A token's characters, the invisible ones made visible."""
    if piece.startswith("\\x"):
        return "⟨" + piece.replace("\\x", "") + "⟩"
    return "".join({"\n": "↵", "\t": "→"}.get(character) or visible(character) for character in piece)


def legend(view: TokenView) -> Text:
    """Counts by source, in the colours of the view."""
    text = Text(f"{len(view.ids):,} tokens, {int(view.supervised.sum()):,} [supervised]: ")
    shown = []
    for source in Source:
        mine = view.source == source
        if mine.any():
            learned = int((mine & view.supervised).sum())
            shown.append((f"{source.label} {learned:,}/{int(mine.sum()):,}", COLOURS[source]))
    for i, (label, style) in enumerate(shown):
        text.append("  " if i else "").append(label, style=style)
    return text
