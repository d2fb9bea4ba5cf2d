"""SVG by hand: an opaque panel with its own colours for light and dark pages, and a text for those who can't see it."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

CELL = 7.2
"""Width of a monospaced character, in pixels"""
LINE = 24
SOURCES = {
    "template": "#8c959f", "bos": "#6e7781", "system": "#a371f7", "user": "#4493f8", "assistant": "#2f9e62",
    "reasoning": "#12a5a5", "tool_call": "#d9a100", "tool_result": "#7aa7e0", "stop": "#d1495b", "tools": "#c061cb",
    "text": "#5b8a72", "other": "#9a8c7c",
}  # fmt: skip
"""The colours of the report's token view"""
STYLE = """
.panel { fill: #ffffff; stroke: #d0d7de }
text { font: 13px system-ui, sans-serif; fill: #1f2328; white-space: pre }
.mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 12px }
.soft { fill: #57606a; font-size: 12px }
.middle { text-anchor: middle }
.bold { font-weight: 600 }
.rule { stroke: #d0d7de }
.line { stroke: #1f2328; stroke-width: 2 }
.good { fill: #2f9e62 }
.bad { fill: #d1495b }
.empty { fill: none; stroke: #8c959f }
.context { opacity: .3 }
.tint { opacity: .3 }
@media (prefers-color-scheme: dark) {
  .panel { fill: #15181c; stroke: #30363d }
  text { fill: #e6edf3 }
  .soft { fill: #9aa6b2 }
  .rule { stroke: #30363d }
  .line { stroke: #e6edf3 }
}
"""


class Drawing(NamedTuple):
    """What is drawn, and how large."""

    title: str
    about: str
    """Says in words what the picture shows"""
    width: float
    height: float
    parts: list[str]

    def svg(self) -> str:
        """The file."""
        size = (
            f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}"'
            f' height="{self.height:g}"'
        )
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="t d">'
        words = (
            f'<title id="t">{escape(self.title)}</title><desc id="d">{escape(self.about)}</desc>'
        )
        panel = (
            f'<rect class="panel" x=".5" y=".5" width="{self.width - 1:g}"'
            f' height="{self.height - 1:g}" rx="6"/>'
        )
        return "\n".join([head, words, f"<style>{STYLE}</style>", panel, *self.parts, "</svg>\n"])


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    """A line of text that begins at x, or ends there with the anchor `end`."""
    given = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:g}" y="{y:g}"{given}>{escape(words)}</text>'


def mono(x: float, y: float, words: str) -> str:
    """Text of exactly `len(words)` cells."""
    return (
        # Viewers that do not know `white-space: pre` in SVG would drop leading spaces and stretch the rest.
        f'<text class="mono" xml:space="preserve" x="{x:g}" y="{y:g}"'
        f' textLength="{CELL * len(words):g}">{escape(words)}</text>'
    )


def box(x: float, y: float, width: float, height: float, source: str, kind: str = "") -> str:
    """A rectangle in the colour of a source."""
    given = f' class="{kind}"' if kind else ""
    return (
        f'<rect{given} x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2"'
        f' fill="{SOURCES[source]}"/>'
    )


def line(x: float, y: float, to_x: float, to_y: float, kind: str = "rule") -> str:
    """A straight line."""
    return f'<line class="{kind}" x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}"/>'


def legend(x: float, y: float, sources: list[tuple[str, str]]) -> str:
    """Swatches with their labels, side by side."""
    parts = []
    for key, label in sources:
        parts += [box(x, y - 10, 11, 11, key), text(x + 16, y, label, "soft")]
        x += 30 + 6.4 * len(label)
    return "".join(parts)
