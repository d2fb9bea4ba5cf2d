"""Charts along the file: which kinds of rows come when, how long they are, and how much of them is
supervised.

A file that is not shuffled teaches its kinds one after the other, and the last one best. The charts have one bar for
each stretch of the file, over one axis, so that a change is seen in all three at one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from truetune.report.page.bar_chart import Bar, BarChart
from truetune.report.page.page_section import Result
from truetune.report.visible_text import count_noun, format_per_cent_share

# As many colours as can be told apart beside each other; page.css has a class for each.
MAX_KINDS = 8
KIND_PLURALS = {"source": "sources", "label": "labels", "file": "files", "format": "formats"}
# Chosen, not measured: at 0.6 files of one frequent kind are told that their stretches are
# pure, at 0.15 nothing is said of small files.
MAX_CHANCE_PURE = 0.3
"""Nothing is said where as large a share of the stretches would hold one kind alone if rows were shuffled"""
# Chosen, not measured: a grouped file has one mixed stretch at each border of two kinds, so
# that all but a few are pure; at a third, half-sorted files are called grouped.
GROUPED_SHARE = 2 / 3
"""Share of the stretches that hold rows of one kind from which rows are called grouped"""


@dataclass(frozen=True, slots=True)
class _Stretches:
    """The file in stretches of equally many rows, which are the bars of all charts."""

    order: dict[str, Any]
    """Counts by stretch, as the JSON has them: rows, examples, tokens, supervised, kinds"""
    names: list[str]
    """`rows 0 to 99`"""
    links: list[str | None]
    """The address of a row of each that the page shows"""
    kinds: dict[str, list[int]]
    """Rows of each kind by stretch; the rarest as one"""
    legend: list[tuple[str, str]]
    """(class, text) of each kind"""

    @property
    def ticks(self) -> tuple[str, str, str]:
        """Labels for the axis: first, middle and last row."""
        last = sum(self.order["rows"]) - 1
        return "row 0", f"{last // 2:,}", f"{last:,}"


def row_order_charts(order: dict[str, Any], result: Result) -> dict[str, Any] | None:
    """The charts over one axis, and one sentence on what they show; None where there are too few rows for an order."""
    rows, each = order["rows"], order["each"]
    if len(rows) < 2:
        return None
    names = [_stretch_name(i, each, count) for i, count in enumerate(rows)]
    stretches = _Stretches(
        order, names, _stretch_links(order, result), *_row_counts_by_kind_and_legend(order)
    )
    charts = [_mean_length_chart(stretches), _supervised_share_chart(stretches)]
    if stretches.kinds:
        # What comes when explains how lengths and shares change below it.
        charts.insert(0, _kinds_chart(stretches))
    return {"charts": charts, "says": _describe_order(order), "table": _order_table(stretches)}


def links_to_shown_rows(result: Result) -> dict[tuple[str | None, int | None], str]:
    """Links to the rows that the page shows, by file and row."""
    views = result.get("views") or ()
    return {
        (view.get("file"), view["row"]): f"#row={view['row']}"
        for view in views
        if view.get("row") is not None
    }


def _stretch_name(i: int, each: int, count: int) -> str:
    """The name of a stretch: `rows 0 to 99`, or `row 7`."""
    if each == 1:
        return f"row {i * each:,}"
    # The last stretch may be shorter than the others, so it ends where its rows do.
    return f"rows {i * each:,} to {i * each + max(count, 1) - 1:,}"


def _stretch_links(order: dict[str, Any], result: Result) -> list[str | None]:
    """For each stretch the link to its first row that the page shows; None where it shows none."""
    first: dict[int, int] = {}
    for _, row in links_to_shown_rows(result):
        if row is not None:
            first[row // order["each"]] = min(row, first.get(row // order["each"], row))
    return [f"#row={first[i]}" if i in first else None for i in range(len(order["rows"]))]


def _row_counts_by_kind_and_legend(
    order: dict[str, Any],
) -> tuple[dict[str, list[int]], list[tuple[str, str]]]:
    """(rows of each kind by stretch, legend): the most frequent kinds, and the rest as one."""
    bare_names = _bare_file_names(list(order["kinds"]), order["by"])
    ranked = sorted(
        ((bare_names[name], counts) for name, counts in order["kinds"].items()),
        key=lambda kind: -sum(kind[1]),
    )
    kinds, others = dict(ranked[:MAX_KINDS]), [counts for _, counts in ranked[MAX_KINDS:]]
    legend = [
        (f"k-{i}", f"{_shorten_name(name)} ({sum(counts):,})")
        for i, (name, counts) in enumerate(kinds.items())
    ]
    if others:
        rest = [sum(at) for at in zip(*others, strict=True)]
        kinds[f"{len(others):,} others"] = rest
        legend.append(("k-rest", f"{len(others):,} others ({sum(rest):,})"))
    return kinds, legend


def _bare_file_names(names: list[str], by: str | None) -> dict[str, str]:
    """Files without their folders, where that tells them apart."""
    bare = [PurePath(name).name for name in names] if by == "file" else names
    # Two folders may both hold a train.jsonl: then the whole paths stay.
    return dict(zip(names, bare if len(set(bare)) == len(names) else names, strict=True))


def _shorten_name(name: str) -> str:
    """A name of at most 48 characters: of a longer one the end, which says more than the beginning."""
    # The end of a long path or source says more than its beginning.
    return name if len(name) <= 48 else f"...{name[-45:]}"


def _kinds_chart(stretches: _Stretches) -> BarChart:
    """A bar chart of which kinds the rows of each stretch are of, as shares."""
    order, legend = stretches.order, stretches.legend
    bars = []
    columns = zip(order["rows"], stretches.names, stretches.links, strict=True)
    for i, (count, name, link) in enumerate(columns):
        held = [
            (kind, counts[i], colour)
            for (kind, counts), (colour, _) in zip(stretches.kinds.items(), legend, strict=True)
        ]
        counts_in_words = ", ".join(f"{_shorten_name(kind)} {n:,}" for kind, n, _ in held if n)
        parts = [(n / max(count, 1), colour) for _, n, colour in held]
        bars.append(Bar(parts, f"{name}: {counts_in_words or 'none'}", link))
    title = f"{KIND_PLURALS.get(order['by'], str(order['by']))} along the file".capitalize()
    return BarChart(title, bars, 1, "100 %", stretches.ticks, legend=legend)


def _mean_length_chart(stretches: _Stretches) -> BarChart:
    """A bar chart of the mean tokens of the examples of each stretch."""
    order = stretches.order
    means = [_mean_or_zero(*at) for at in zip(order["tokens"], order["examples"], strict=True)]
    bars = [
        Bar([(mean, "b-main")], f"{name}: {mean:,.0f} tokens on average", link)
        for mean, name, link in zip(means, stretches.names, stretches.links, strict=True)
    ]
    title = "Mean length along the file, in tokens"
    return BarChart(title, bars, max(means), f"{max(means):,.0f}", stretches.ticks)


def _supervised_share_chart(stretches: _Stretches) -> BarChart:
    """A bar chart of the share of the tokens of each stretch that is supervised."""
    order = stretches.order
    columns = zip(
        order["supervised"], order["tokens"], stretches.names, stretches.links, strict=True
    )
    bars = [
        Bar(
            [(_mean_or_zero(part, whole), "b-good")],
            f"{name}: {format_per_cent_share(part, whole)} supervised",
            link,
        )
        for part, whole, name, link in columns
    ]
    return BarChart("Supervised share along the file", bars, 1, "100 %", stretches.ticks)


def _mean_or_zero(total: int, count: int) -> float:
    """The mean; 0 of nothing."""
    return total / count if count else 0.0


def _describe_order(order: dict[str, Any]) -> str:
    """A sentence on whether kinds come one after the other, and how the length changes from one end
    to the other.
    """
    count = len(order["rows"])
    # The first and the last tenth: one stretch alone would be noise, and half the file hides a curriculum.
    tenth = max(1, count // 10)
    ends = [
        _mean_or_zero(sum(order["tokens"][part]), sum(order["examples"][part]))
        for part in (slice(tenth), slice(-tenth, None))
    ]
    sentence = (
        f"{count_noun(count, 'stretch').replace('stretchs', 'stretches')} of"
        f" {count_noun(order['each'], 'row')}; examples have {ends[0]:,.0f} tokens on average at the"
        f" beginning and {ends[1]:,.0f} at the end."
    )
    counts = [sum(at) for at in order["kinds"].values()]
    if counts and _chance_that_stretch_is_one_kind(counts, order["each"]) < MAX_CHANCE_PURE:
        by_stretch = zip(*order["kinds"].values(), strict=True)
        pure = sum(sum(n > 0 for n in at) == 1 for at in by_stretch)
        sentence += f" {pure:,} of {count:,} stretches hold rows of one {order['by']} alone"
        sentence += ": the rows are grouped." if pure >= GROUPED_SHARE * count else "."
    return sentence


def _chance_that_stretch_is_one_kind(counts: list[int], stretch_rows: int) -> float:
    """How likely a stretch of `stretch_rows` rows, drawn at random, holds one kind alone: the sum
    of (share of it) ** stretch_rows.
    """
    # Where one kind has nearly all rows, or stretches are a row or two, most stretches are pure by chance alone.
    total = sum(counts)
    return float(sum((n / total) ** stretch_rows for n in counts))


def _order_table(stretches: _Stretches) -> tuple[list[str], list[list[Any]]]:
    """The numbers of all charts as a table, for who can't see them: names of columns, and lines."""
    order = stretches.order
    lines = [
        [
            (name, link),
            *(f"{counts[i]:,}" for counts in stretches.kinds.values()),
            f"{_mean_or_zero(order['tokens'][i], order['examples'][i]):,.0f}",
            format_per_cent_share(order["supervised"][i], order["tokens"][i]),
        ]
        for i, (name, link) in enumerate(zip(stretches.names, stretches.links, strict=True))
    ]
    return ["rows", *map(_shorten_name, stretches.kinds), "mean length", "supervised"], lines
