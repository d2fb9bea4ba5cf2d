"""What `truetune encode --verify` found, for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from truetune.report.text import many, visible
from truetune.tokenized.verify import Comparison

SHOWN = 3
"""Places of each kind"""


def render_comparison(found: Comparison, path: str, console: Console) -> None:
    """Draw counts, and the first places of each kind."""
    _say(
        console,
        f"{path}: {many(found.documents, 'document')}; the data encode to"
        f" {many(found.examples, 'example')}",
    )
    _say(console, f"the same ids and labels: {found.same:,}")
    if not found.labels:
        _say(
            console,
            "the cache has neither labels nor a mask: a trainer learns everything",
            "bold red",
        )
    lines = (
        (
            "other labels",
            f"the same ids with other labels: {found.other_labels:,}",
            found.other_labels,
        ),
        ("missing", f"not in the cache: {found.missing:,} examples of the data", found.missing),
        ("extra", f"not in the data: {found.extra:,} documents of the cache", found.extra),
    )
    for what, line, count in lines:
        if count:
            _say(console, line, "bold red")
            places = [origin for kind, origin in found.places if kind == what][:SHOWN]
            for origin in places:
                _say(console, f"  --> {origin}")
    if found.rejected:
        _say(console, f"not judged: {many(found.rejected, 'row')} that can't be rendered")
    _say(
        console,
        (
            "the cache is what the data encode to"
            if found.is_same
            else "the cache differs: encode the rows again"
        ),
    )


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(Text(visible(line), style=style), soft_wrap=True)
