"""Along the file: whose rows come when, how long they are, and how much of them is supervised."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from truetune.report.page.bars import Bar, Chart
from truetune.report.page.section import Result
from truetune.report.text import many, share

COLOURS = 8
NOUNS = {"source": "sources", "label": "labels", "file": "files", "format": "formats"}
CHANCE = 0.3
"""Nothing is said where as large a share of the stretches would hold one kind alone if rows were shuffled"""
PURE = 2 / 3
"""Share of the stretches that hold rows of one kind from which rows are called grouped"""


def charts(order: dict[str, Any], result: Result) -> dict[str, Any] | None:
    """The charts over one axis, and one sentence on what they show; None where there are too few rows for an order."""
    rows, each = order["rows"], order["each"]
    if len(rows) < 2:
        return None
    names = [_rows(i, each, count) for i, count in enumerate(rows)]
    links = _links(order, result)
    kinds, legend = _kinds(order)
    drawn = [_long(order, names, links), _learned(order, names, links)]
    if kinds:
        drawn.insert(0, _grouped(order, names, links, kinds, legend))
    return {"charts": drawn, "says": _says(order), "table": _table(order, names, links, kinds)}


def shown_rows(result: Result) -> dict[tuple[str | None, int | None], str]:
    """Addresses of the rows that the page shows, by file and row."""
    views = result.get("views") or ()
    return {
        (view.get("file"), view["row"]): f"#row={view['row']}"
        for view in views
        if view.get("row") is not None
    }


def _rows(i: int, each: int, count: int) -> str:
    return (
        f"row {i * each:,}"
        if each == 1
        else f"rows {i * each:,} to {i * each + max(count, 1) - 1:,}"
    )


def _links(order: dict[str, Any], result: Result) -> list[str | None]:
    """The first row of each stretch that the page shows."""
    first: dict[int, int] = {}
    for _, row in shown_rows(result):
        if row is not None:
            first[row // order["each"]] = min(row, first.get(row // order["each"], row))
    return [f"#row={first[i]}" if i in first else None for i in range(len(order["rows"]))]


def _kinds(order: dict[str, Any]) -> tuple[dict[str, list[int]], list[tuple[str, str]]]:
    """Rows of the most frequent kinds by stretch, the rest as one; and their legend."""
    called = _called(list(order["kinds"]), order["by"])
    ranked = sorted(
        ((called[name], counts) for name, counts in order["kinds"].items()),
        key=lambda kind: -sum(kind[1]),
    )
    named, others = dict(ranked[:COLOURS]), [counts for _, counts in ranked[COLOURS:]]
    legend = [
        (f"k-{i}", f"{_short(name)} ({sum(counts):,})")
        for i, (name, counts) in enumerate(named.items())
    ]
    if others:
        rest = [sum(at) for at in zip(*others, strict=True)]
        named[f"{len(others):,} others"] = rest
        legend.append(("k-rest", f"{len(others):,} others ({sum(rest):,})"))
    return named, legend


def _called(names: list[str], by: str | None) -> dict[str, str]:
    """Files without their folders, where that tells them apart."""
    bare = [PurePath(name).name for name in names] if by == "file" else names
    return dict(zip(names, bare if len(set(bare)) == len(names) else names, strict=True))


def _short(name: str) -> str:
    return name if len(name) <= 48 else f"...{name[-45:]}"


def _grouped(
    order: dict[str, Any],
    names: list[str],
    links: list[str | None],
    kinds: dict[str, list[int]],
    legend: list[tuple[str, str]],
) -> Chart:
    bars = []
    for i, (count, name, link) in enumerate(zip(order["rows"], names, links, strict=True)):
        held = [
            (kind, counts[i], colour)
            for (kind, counts), (colour, _) in zip(kinds.items(), legend, strict=True)
        ]
        said = ", ".join(f"{_short(kind)} {n:,}" for kind, n, _ in held if n)
        bars.append(
            Bar(
                [(n / max(count, 1), colour) for _, n, colour in held],
                f"{name}: {said or 'none'}",
                link,
            )
        )
    title = f"{NOUNS.get(order['by'], str(order['by']))} along the file".capitalize()
    return Chart(title, bars, 1, "100 %", _ticks(order), legend=legend)


def _long(order: dict[str, Any], names: list[str], links: list[str | None]) -> Chart:
    means = [_mean(*at) for at in zip(order["tokens"], order["examples"], strict=True)]
    bars = [
        Bar([(mean, "b-main")], f"{name}: {mean:,.0f} tokens on average", link)
        for mean, name, link in zip(means, names, links, strict=True)
    ]
    return Chart(
        "Mean length along the file, in tokens",
        bars,
        max(means),
        f"{max(means):,.0f}",
        _ticks(order),
    )


def _learned(order: dict[str, Any], names: list[str], links: list[str | None]) -> Chart:
    bars = [
        Bar([(_mean(part, whole), "b-good")], f"{name}: {share(part, whole)} supervised", link)
        for part, whole, name, link in zip(
            order["supervised"], order["tokens"], names, links, strict=True
        )
    ]
    return Chart("Supervised share along the file", bars, 1, "100 %", _ticks(order))


def _ticks(order: dict[str, Any]) -> tuple[str, str, str]:
    last = sum(order["rows"]) - 1
    return "row 0", f"{last // 2:,}", f"{last:,}"


def _mean(total: int, count: int) -> float:
    return total / count if count else 0.0


def _says(order: dict[str, Any]) -> str:
    """Whether kinds come one after the other, and how the length changes from one end to the other."""
    count = len(order["rows"])
    tenth = max(1, count // 10)
    ends = [
        _mean(sum(order["tokens"][part]), sum(order["examples"][part]))
        for part in (slice(tenth), slice(-tenth, None))
    ]
    said = (
        f"{many(count, 'stretch').replace('stretchs', 'stretches')} of"
        f" {many(order['each'], 'row')}; examples have {ends[0]:,.0f} tokens on average at the"
        f" beginning and {ends[1]:,.0f} at the end."
    )
    counts = [sum(at) for at in order["kinds"].values()]
    if counts and sum((n / sum(counts)) ** order["each"] for n in counts) < CHANCE:
        pure = sum(sum(n > 0 for n in at) == 1 for at in zip(*order["kinds"].values(), strict=True))
        said += f" {pure:,} of {count:,} stretches hold rows of one {order['by']} alone"
        said += ": the rows are grouped." if pure >= PURE * count else "."
    return said


def _table(
    order: dict[str, Any], names: list[str], links: list[str | None], kinds: dict[str, list[int]]
) -> tuple[list[str], list[list[Any]]]:
    lines = [
        [
            (name, link),
            *(f"{counts[i]:,}" for counts in kinds.values()),
            f"{_mean(order['tokens'][i], order['examples'][i]):,.0f}",
            share(order["supervised"][i], order["tokens"][i]),
        ]
        for i, (name, link) in enumerate(zip(names, links, strict=True))
    ]
    return ["rows", *map(_short, kinds), "mean length", "supervised"], lines
