"""A horizontal bar chart as SVG, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

WIDTH, LEFT, RIGHT, BAR = 760, 190, 80, 22
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.bar { fill: #8c959f }
.ours { fill: #1a7f64 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .bar { fill: #6e7681 }
  .ours { fill: #3fb98f }
}
"""


def bars(path: Path, title: str, groups: Mapping[str, Mapping[str, float]], ours: str) -> None:
    """Write the chart: one group of bars per name, all on one scale; `ours` is the label that stands out."""
    longest = max(value for group in groups.values() for value in group.values())
    lines, y = [f'<text class="title" x="0" y="16">{escape(title)}</text>'], 28
    for name, group in groups.items():
        y += BAR + 6
        lines.append(f'<text class="title" x="0" y="{y - 8}">{escape(name)}</text>')
        for label, value in group.items():
            length = (WIDTH - LEFT - RIGHT) * value / longest
            kind = "bar ours" if label == ours else "bar"
            lines += [
                f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>',
                (
                    f'<rect class="{kind}" x="{LEFT}" y="{y + 1}" width="{length:.1f}"'
                    f' height="{BAR - 4}" rx="2"/>'
                ),
                f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}">{value:,.0f}</text>',
            ]
            y += BAR
    size = f'viewBox="0 0 {WIDTH} {y + 8}" width="{WIDTH}" height="{y + 8}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">'
    )
    path.write_text(
        "\n".join([head, f"<style>{STYLE}</style>", *lines, "</svg>\n"]), encoding="utf-8"
    )
