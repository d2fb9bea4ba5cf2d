"""Charts of preference pairs and labelled rows: how long the sides are, what they share, and by how
much the better one is better.

Preference training learns any difference between the sides. So the page shows the differences that are none of
quality: a chosen side that is always longer, or both sides that begin alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from truetune.report.page.bar_chart import Bar, BarChart, thin_labels
from truetune.report.visible_text import count_noun, format_per_cent_share

SIDE_COLOURS = {"chosen": "b-good", "rejected": "b-bad", "true": "b-good", "false": "b-bad"}


def pair_blocks(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A block of the page for preference pairs and for labelled rows: title, sentences, a table,
    charts.
    """
    pairs = data.get("pairs")
    if pairs:
        yield {
            "title": "Pairs",
            "says": list(_describe_longer_side(pairs)),
            "table": _sides_table(pairs, "chosen", "rejected"),
            "charts": [
                *_side_length_charts(pairs, "chosen", "rejected"),
                _common_prefix_chart(pairs),
                *_score_margin_charts(pairs),
            ],
        }
    labels = data.get("labels")
    if labels:
        good, bad = (labels[name]["count"] for name in ("true", "false"))
        sentence = f"{format_per_cent_share(good, good + bad)} of {count_noun(good + bad, 'label')} are true."
        yield {
            "title": "Labels",
            "says": [sentence],
            "table": _sides_table(labels, "true", "false"),
            "charts": list(_side_length_charts(labels, "true", "false")),
        }


def _describe_longer_side(pairs: dict[str, Any]) -> Iterator[str]:
    """Sentences on which side is longer, and how many pairs have equal sides."""
    count = pairs["count"]
    yield (
        f"The chosen answer is the longer one in {pairs['longer']:,} of {count_noun(count, 'pair')} "
        f"({format_per_cent_share(pairs['longer'], count)}), the shorter one in {pairs['shorter']:,}."
    )
    yield f"Both answers are identical in {count_noun(pairs['identical'], 'pair')}."


def _sides_table(sides: dict[str, Any], *names: str) -> tuple[list[str], list[list[str]]]:
    """The table (titles, lines) of the number and lengths of each side."""
    head = ["answers", "number", "median tokens", "95 % up to"]
    return head, [[n, *(f"{sides[n][key]:,}" for key in ("count", "median", "p95"))] for n in names]


def _side_length_charts(sides: dict[str, Any], one: str, other: str) -> Iterator[BarChart]:
    """Bar charts of lengths with two bars a bin: of the one side and of the other."""
    bars, table = [], []
    for i, (low, high) in enumerate(pairwise(sides["edges"])):
        for name in (one, other):
            count = sides[name]["counts"][i]
            bars.append(
                Bar(
                    [(count, SIDE_COLOURS[name])],
                    f"{low:,} to {high - 1:,} tokens: {count:,} {name}",
                )
            )
        table.append(
            (
                f"{low:,} to {high - 1:,}",
                *(f"{sides[name]['counts'][i]:,}" for name in (one, other)),
            )
        )
    top = max((max(sides[name]["counts"], default=0) for name in (one, other)), default=0)
    labels = thin_labels([f"{edge:,}" for edge in sides["edges"]], 6)
    # Two bars share one bin: only every second place of the axis has a label.
    spread = [label for edge in labels for label in (edge, "")][:-1]
    yield BarChart(
        "Length of answers, in supervised tokens",
        bars,
        top,
        f"{top:,}",
        spread,
        legend=((SIDE_COLOURS[one], one), (SIDE_COLOURS[other], other)),
        table=(("tokens", one, other), table),
    )


def _common_prefix_chart(pairs: dict[str, Any]) -> BarChart:
    """A bar chart of how much of the shorter answer both sides begin with."""
    counts, top = pairs["shared"], max(pairs["shared"], default=0)
    # The last bin is for pairs of which one answer is the beginning of the other.
    names = [f"{10 * i} to {10 * (i + 1)} %" for i in range(len(counts) - 1)] + ["all of it"]
    return BarChart(
        "What both answers begin with, as a share of the shorter one",
        [
            Bar([(count, "b-main")], f"{name}: {count_noun(count, 'pair')}")
            for name, count in zip(names, counts, strict=True)
        ],
        top,
        f"{top:,}",
        ("nothing", "50 %", "all"),
        table=(("shared", "pairs"), [(n, f"{c:,}") for n, c in zip(names, counts, strict=True)]),
    )


def _score_margin_charts(pairs: dict[str, Any]) -> Iterator[BarChart]:
    """Bar charts of by how much the row's own scores prefer the chosen side."""
    margins = pairs.get("margins")
    if not margins:
        return
    edges, top = margins["edges"], max(margins["counts"], default=0)
    bars, table = [], []
    for (low, high), count in zip(pairwise(edges), margins["counts"], strict=True):
        bars.append(
            Bar(
                # Left of 0 the row's own score prefers the rejected answer.
                [(count, "b-over" if high <= 0 else "b-main")],
                f"{low:.3g} to {high:.3g}: {count:,} pairs",
            )
        )
        table.append((f"{low:.3g} to {high:.3g}", f"{count:,}"))
    line = None
    if edges[0] < 0 < edges[-1]:
        # In bars from the left: margins are binned in equal widths.
        line = len(bars) * -edges[0] / (edges[-1] - edges[0])
    yield BarChart(
        "Score of the chosen answer less that of the rejected one",
        bars,
        top,
        f"{top:,}",
        thin_labels([f"{edge:.3g}" for edge in edges], 6),
        f"median {margins['median']:.3g}; {margins['negative']:,} of {margins['count']:,} prefer"
        f" the rejected answer, {margins['zero']:,} neither"
        + ("; the dashed line is 0" if line is not None else ""),
        line,
        table=(("margin", "pairs"), table),
    )
