"""Along the file: whose rows come when, how long they are, and how much of them is supervised."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from truetune.report.page.bar_chart import Bar, BarChart
from truetune.report.page.section import Result
from truetune.report.visible_text import count_noun, format_share

MAX_KINDS = 8
KIND_PLURALS = {"source": "sources", "label": "labels", "file": "files", "format": "formats"}
MAX_CHANCE_PURE = 0.3
"""Nothing is said where as large a share of the stretches would hold one kind alone if rows were shuffled"""
GROUPED_SHARE = 2 / 3
"""Share of the stretches that hold rows of one kind from which rows are called grouped"""


def row_order_charts(order: dict[str, Any], result: Result) -> dict[str, Any] | None:
    """The charts over one axis, and one sentence on what they show; None where there are too few rows for an order."""
    rows, each = order["rows"], order["each"]
    if len(rows) < 2:
        return None
    names = [_stretch_name(i, each, count) for i, count in enumerate(rows)]
    links = _stretch_links(order, result)
    kinds, legend = _rows_by_kind(order)
    drawn = [_mean_length_chart(order, names, links), _supervised_chart(order, names, links)]
    if kinds:
        drawn.insert(0, _kinds_chart(order, names, links, kinds, legend))
    return {
        "charts": drawn,
        "says": _describe_order(order),
        "table": _order_table(order, names, links, kinds),
    }


def shown_rows(result: Result) -> dict[tuple[str | None, int | None], str]:
    """Addresses of the rows that the page shows, by file and row."""
    views = result.get("views") or ()
    return {
        (view.get("file"), view["row"]): f"#row={view['row']}"
        for view in views
        if view.get("row") is not None
    }


def _stretch_name(i: int, each: int, count: int) -> str:
    return (
        f"row {i * each:,}"
        if each == 1
        else f"rows {i * each:,} to {i * each + max(count, 1) - 1:,}"
    )


def _stretch_links(order: dict[str, Any], result: Result) -> list[str | None]:
    """The first row of each stretch that the page shows."""
    first: dict[int, int] = {}
    for _, row in shown_rows(result):
        if row is not None:
            first[row // order["each"]] = min(row, first.get(row // order["each"], row))
    return [f"#row={first[i]}" if i in first else None for i in range(len(order["rows"]))]


def _rows_by_kind(order: dict[str, Any]) -> tuple[dict[str, list[int]], list[tuple[str, str]]]:
    """Rows of the most frequent kinds by stretch, the rest as one; and their legend."""
    called = _bare_file_names(list(order["kinds"]), order["by"])
    ranked = sorted(
        ((called[name], counts) for name, counts in order["kinds"].items()),
        key=lambda kind: -sum(kind[1]),
    )
    named, others = dict(ranked[:MAX_KINDS]), [counts for _, counts in ranked[MAX_KINDS:]]
    legend = [
        (f"k-{i}", f"{_shorten_name(name)} ({sum(counts):,})")
        for i, (name, counts) in enumerate(named.items())
    ]
    if others:
        rest = [sum(at) for at in zip(*others, strict=True)]
        named[f"{len(others):,} others"] = rest
        legend.append(("k-rest", f"{len(others):,} others ({sum(rest):,})"))
    return named, legend


def _bare_file_names(names: list[str], by: str | None) -> dict[str, str]:
    """Files without their folders, where that tells them apart."""
    bare = [PurePath(name).name for name in names] if by == "file" else names
    return dict(zip(names, bare if len(set(bare)) == len(names) else names, strict=True))


def _shorten_name(name: str) -> str:
    return name if len(name) <= 48 else f"...{name[-45:]}"


def _kinds_chart(
    order: dict[str, Any],
    names: list[str],
    links: list[str | None],
    kinds: dict[str, list[int]],
    legend: list[tuple[str, str]],
) -> BarChart:
    bars = []
    for i, (count, name, link) in enumerate(zip(order["rows"], names, links, strict=True)):
        held = [
            (kind, counts[i], colour)
            for (kind, counts), (colour, _) in zip(kinds.items(), legend, strict=True)
        ]
        counts_in_words = ", ".join(f"{_shorten_name(kind)} {n:,}" for kind, n, _ in held if n)
        bars.append(
            Bar(
                [(n / max(count, 1), colour) for _, n, colour in held],
                f"{name}: {counts_in_words or 'none'}",
                link,
            )
        )
    title = f"{KIND_PLURALS.get(order['by'], str(order['by']))} along the file".capitalize()
    return BarChart(title, bars, 1, "100 %", _row_ticks(order), legend=legend)


def _mean_length_chart(
    order: dict[str, Any], names: list[str], links: list[str | None]
) -> BarChart:
    means = [_mean_of(*at) for at in zip(order["tokens"], order["examples"], strict=True)]
    bars = [
        Bar([(mean, "b-main")], f"{name}: {mean:,.0f} tokens on average", link)
        for mean, name, link in zip(means, names, links, strict=True)
    ]
    return BarChart(
        "Mean length along the file, in tokens",
        bars,
        max(means),
        f"{max(means):,.0f}",
        _row_ticks(order),
    )


def _supervised_chart(order: dict[str, Any], names: list[str], links: list[str | None]) -> BarChart:
    bars = [
        Bar(
            [(_mean_of(part, whole), "b-good")],
            f"{name}: {format_share(part, whole)} supervised",
            link,
        )
        for part, whole, name, link in zip(
            order["supervised"], order["tokens"], names, links, strict=True
        )
    ]
    return BarChart("Supervised share along the file", bars, 1, "100 %", _row_ticks(order))


def _row_ticks(order: dict[str, Any]) -> tuple[str, str, str]:
    last = sum(order["rows"]) - 1
    return "row 0", f"{last // 2:,}", f"{last:,}"


def _mean_of(total: int, count: int) -> float:
    return total / count if count else 0.0


def _describe_order(order: dict[str, Any]) -> str:
    """Whether kinds come one after the other, and how the length changes from one end to the other."""
    count = len(order["rows"])
    tenth = max(1, count // 10)
    ends = [
        _mean_of(sum(order["tokens"][part]), sum(order["examples"][part]))
        for part in (slice(tenth), slice(-tenth, None))
    ]
    sentence = (
        f"{count_noun(count, 'stretch').replace('stretchs', 'stretches')} of"
        f" {count_noun(order['each'], 'row')}; examples have {ends[0]:,.0f} tokens on average at the"
        f" beginning and {ends[1]:,.0f} at the end."
    )
    counts = [sum(at) for at in order["kinds"].values()]
    if counts and sum((n / sum(counts)) ** order["each"] for n in counts) < MAX_CHANCE_PURE:
        pure = sum(sum(n > 0 for n in at) == 1 for at in zip(*order["kinds"].values(), strict=True))
        sentence += f" {pure:,} of {count:,} stretches hold rows of one {order['by']} alone"
        sentence += ": the rows are grouped." if pure >= GROUPED_SHARE * count else "."
    return sentence


def _order_table(
    order: dict[str, Any], names: list[str], links: list[str | None], kinds: dict[str, list[int]]
) -> tuple[list[str], list[list[Any]]]:
    lines = [
        [
            (name, link),
            *(f"{counts[i]:,}" for counts in kinds.values()),
            f"{_mean_of(order['tokens'][i], order['examples'][i]):,.0f}",
            format_share(order["supervised"][i], order["tokens"][i]),
        ]
        for i, (name, link) in enumerate(zip(names, links, strict=True))
    ]
    return ["rows", *map(_shorten_name, kinds), "mean length", "supervised"], lines
