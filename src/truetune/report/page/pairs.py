"""Pairs and verdicts: how long the sides are, what they share, and by how much the better one is better."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from truetune.report.page.bars import Bar, Chart, every
from truetune.report.text import many, share

SIDES = {"chosen": "b-good", "rejected": "b-bad", "true": "b-good", "false": "b-bad"}


def blocks(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of pairs and of labelled rows: title, sentences, a table, charts."""
    if pairs := data.get("pairs"):
        yield {
            "title": "Pairs",
            "says": list(_says(pairs)),
            "table": _sides(pairs, "chosen", "rejected"),
            "charts": [*_lengths(pairs, "chosen", "rejected"), _shared(pairs), *_margins(pairs)],
        }
    if labels := data.get("labels"):
        good, bad = (labels[name]["count"] for name in ("true", "false"))
        said = f"{share(good, good + bad)} of {many(good + bad, 'label')} are true."
        yield {
            "title": "Labels",
            "says": [said],
            "table": _sides(labels, "true", "false"),
            "charts": list(_lengths(labels, "true", "false")),
        }


def _says(pairs: dict[str, Any]) -> Iterator[str]:
    count = pairs["count"]
    yield (
        f"The chosen answer is the longer one in {pairs['longer']:,} of {many(count, 'pair')} "
        f"({share(pairs['longer'], count)}), the shorter one in {pairs['shorter']:,}."
    )
    yield f"As they stand, both answers are the same in {many(pairs['identical'], 'pair')}."


def _sides(sides: dict[str, Any], *names: str) -> tuple[list[str], list[list[str]]]:
    head = ["answers", "number", "median tokens", "95 % up to"]
    return head, [[n, *(f"{sides[n][key]:,}" for key in ("count", "median", "p95"))] for n in names]


def _lengths(sides: dict[str, Any], one: str, other: str) -> Iterator[Chart]:
    """Two bars a bin: of the one side and of the other."""
    bars, table = [], []
    for i, (low, high) in enumerate(pairwise(sides["edges"])):
        for name in (one, other):
            count = sides[name]["counts"][i]
            bars.append(
                Bar([(count, SIDES[name])], f"{low:,} to {high - 1:,} tokens: {count:,} {name}")
            )
        table.append(
            (
                f"{low:,} to {high - 1:,}",
                *(f"{sides[name]['counts'][i]:,}" for name in (one, other)),
            )
        )
    top = max((max(sides[name]["counts"], default=0) for name in (one, other)), default=0)
    labels = every([f"{edge:,}" for edge in sides["edges"]], 6)
    spread = [label for edge in labels for label in (edge, "")][:-1]
    yield Chart(
        "Length of answers, in supervised tokens",
        bars,
        top,
        f"{top:,}",
        spread,
        legend=((SIDES[one], one), (SIDES[other], other)),
        table=(("tokens", one, other), table),
    )


def _shared(pairs: dict[str, Any]) -> Chart:
    counts, top = pairs["shared"], max(pairs["shared"], default=0)
    names = [f"{10 * i} to {10 * (i + 1)} %" for i in range(len(counts) - 1)] + ["all of it"]
    return Chart(
        "What both answers begin with, as a share of the shorter one",
        [
            Bar([(count, "b-main")], f"{name}: {many(count, 'pair')}")
            for name, count in zip(names, counts, strict=True)
        ],
        top,
        f"{top:,}",
        ("nothing", "50 %", "all"),
        table=(("shared", "pairs"), [(n, f"{c:,}") for n, c in zip(names, counts, strict=True)]),
    )


def _margins(pairs: dict[str, Any]) -> Iterator[Chart]:
    """By how much the row's own scores prefer the chosen side."""
    margins = pairs.get("margins")
    if not margins:
        return
    edges, top = margins["edges"], max(margins["counts"], default=0)
    bars, table = [], []
    for (low, high), count in zip(pairwise(edges), margins["counts"], strict=True):
        bars.append(
            Bar(
                [(count, "b-over" if high <= 0 else "b-main")],
                f"{low:.3g} to {high:.3g}: {count:,} pairs",
            )
        )
        table.append((f"{low:.3g} to {high:.3g}", f"{count:,}"))
    line = None
    if edges[0] < 0 < edges[-1]:
        line = len(bars) * -edges[0] / (edges[-1] - edges[0])
    yield Chart(
        "Score of the chosen answer less that of the rejected one",
        bars,
        top,
        f"{top:,}",
        every([f"{edge:.3g}" for edge in edges], 6),
        f"median {margins['median']:.3g}; {margins['negative']:,} of {margins['count']:,} prefer"
        f" the rejected answer, {margins['zero']:,} neither"
        + ("; the dashed line is 0" if line is not None else ""),
        line,
        table=(("margin", "pairs"), table),
    )
