"""The page's section on the data: lengths, shares, order, copies and leaks, pairs; of an audit, the
lines of its batches.

All figures are in the report's JSON; here they become charts and sentences. Nothing is computed from rows, so that a
page of an older file can be drawn again. Each part is left out where the JSON lacks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from truetune.report.page.bar_chart import Bar, BarChart, thin_labels
from truetune.report.page.page_section import Result, Section, render_template
from truetune.report.page.pair_charts import pair_blocks
from truetune.report.page.row_order_charts import links_to_shown_rows, row_order_charts
from truetune.report.visible_text import count_noun, format_per_cent_share

COPY_KINDS = {
    "exact": "equal to an earlier row",
    "normal": "equal but for case, space and punctuation",
    "near": "nearly the same as an earlier row",
}
LEAK_KINDS = {
    "exact": "are in the training data",
    "normal": "are in it, but for case, space and punctuation",
    "prompt": "have a prompt of the training data, with another answer",
    "near": "are nearly the same as a training row",
}
# Chosen, not measured: as many bars as can be told apart on a phone; how many lines there are
# is said below the chart.
MAX_LINES = 96
"""Lines of batches that are drawn"""


def data_section(result: Result) -> Section | None:
    """The section of reports on data, and of audits; None of others."""
    lengths: dict[str, Any] | None = result.get("lengths") if result.get("examples") else None
    data: dict[str, Any] = result.get("data") or {}
    lines = (result.get("audit") or {}).get("lines") or []
    if not lengths and not lines:
        return None
    # A result of an older release, or one written by hand, may lack any part: the template leaves out what is None
    # (test_older_results_have_a_section_too).
    parts: dict[str, Any] = {"lengths": None, "loss": ""}
    if lengths:
        parts["lengths"] = _length_chart(lengths, data.get("shares"))
        parts["loss"] = _describe_length_limit(lengths, result["examples"])
    makers: dict[str, Callable[[dict[str, Any]], Any]] = {
        "shares": _supervised_share_chart,
        "order": lambda order: row_order_charts(order, result),
        "copies": lambda copies: _duplicates_block(copies, result),
        "leaks": _eval_leaks_block,
    }
    for name, make in makers.items():
        parts[name] = make(data[name]) if data.get(name) else None
    html = render_template(
        "data.html.jinja",
        **parts,
        pairs=list(pair_blocks(data)),
        lines=list(_batch_charts(lines)),
    )
    return Section("dataset", "Data", html)


def _length_chart(lengths: dict[str, Any], shares: dict[str, Any] | None) -> BarChart:
    """A bar chart of the examples' lengths in tokens; bins that begin over the limit have another
    colour.
    """
    counts, edges, limit = lengths["counts"], lengths["edges"], lengths["limit"]
    total, top = sum(counts), max(counts, default=0)
    bars, table = [], []
    for i, (count, (low, high)) in enumerate(zip(counts, pairwise(edges), strict=True)):
        learned = "-"
        if shares and shares["tokens"][i]:
            learned = format_per_cent_share(shares["supervised"][i], shares["tokens"][i])
        # Edges are half open, so that a bin ends at the length before the next edge.
        span = f"{low:,} to {high - 1:,}"
        colour = "b-over" if limit is not None and low > limit else "b-main"
        examples = count_noun(count, "example")
        title = f"{span} tokens: {examples}, {learned} of their tokens supervised"
        bars.append(Bar([(count, colour)], title))
        table.append((span, f"{count:,}", format_per_cent_share(count, total), learned))
    line = _limit_place_in_bars(limit, edges)
    about = (
        f"median {lengths['median']:,}, 95 % up to {lengths['p95']:,}, longest"
        f" {lengths['longest']:,}"
    )
    if line is not None:
        about += f"; the dashed line is max_length {limit:,}"
    return BarChart(
        "Length of examples, in tokens",
        bars,
        top,
        f"{top:,}",
        thin_labels([f"{edge:,}" for edge in edges]),
        about,
        line,
        table=(("tokens", "examples", "share", "supervised"), table),
    )


def _limit_place_in_bars(limit: int | None, edges: list[int]) -> float | None:
    """Where the length limit is in the chart, in bars from the left; None where no bar reaches it."""
    if limit is None or not edges or limit >= edges[-1]:
        return None
    # The last bin takes all lengths beyond the 99th percentile and is wider than the others: so the
    # place within a bin is a share of its own width.
    i = next(i for i, high in enumerate(edges[1:]) if limit < high)
    place: float = i + (limit - edges[i]) / (edges[i + 1] - edges[i])
    return place


def _describe_length_limit(lengths: dict[str, Any], examples: int) -> str:
    """What a cut at the limit would lose, and what the lengths leave out."""
    limit, media = lengths["limit"], lengths.get("media")
    more = f" These are the tokens of the text: {media['says']}." if media else ""
    # Which tokens a trainer cuts without a limit of the user's depends on the trainer: nothing
    # is claimed.
    if limit is None:
        return f"No max_length is set: it is not known where a trainer would cut.{more}"
    # Images and audio take tokens that were not counted, so that even "nothing would be cut" is
    # not known then.
    if not lengths["over"]:
        return f"max_length is {limit:,}: " + (
            f"it is not known what is cut.{more}" if media else "nothing would be cut."
        )
    return (
        f"A cut at max_length {limit:,} would shorten {lengths['over']:,} of"
        f" {count_noun(examples, 'example')} and lose {count_noun(lengths['lost_tokens'], 'token')},"
        f" {lengths['lost_supervised']:,} of them supervised.{more}"
    )


def _supervised_share_chart(shares: dict[str, Any]) -> BarChart:
    """A bar chart of the share of each example that is supervised: nothing on the left, everything
    on the right.
    """
    counts, none, whole = shares["counts"], shares["none"], shares["all"]
    # The counts are those between none and all; both ends have a bar of their own, because they
    # are what is wrong most often.
    wide, total = 100 // max(1, len(counts)), sum(counts) + none + whole
    named = [
        (f"{wide * i} to {wide * (i + 1)} %", count, "b-main") for i, count in enumerate(counts)
    ]
    named = [("none", none, "b-over"), *named, ("all", whole, "b-soft")]
    top = max(count for _, count, _ in named)
    return BarChart(
        "Supervised share of each example",
        [
            Bar([(count, colour)], f"{name} supervised: {count_noun(count, 'example')}")
            for name, count, colour in named
        ],
        top,
        f"{top:,}",
        ("none", "25 %", "50 %", "75 %", "all"),
        f"{none:,} of {count_noun(total, 'example')} without a supervised token, {whole:,} supervised"
        f" from end to end; {format_per_cent_share(sum(shares['supervised']), sum(shares['tokens']))} of all tokens"
        " are supervised",
        table=(
            ("supervised", "examples", "share"),
            [(n, f"{c:,}", format_per_cent_share(c, total)) for n, c, _ in named if c],
        ),
    )


def _duplicates_block(copies: dict[str, Any], result: Result) -> dict[str, Any]:
    """Duplicate rows by kind, and the largest groups with links to their rows."""
    rows, row_links = copies["rows"], links_to_shown_rows(result)
    total = result.get("rows") or 0
    return {
        "lines": [
            (COPY_KINDS.get(kind, kind), f"{count:,}", format_per_cent_share(count, total))
            for kind, count in rows.items()
        ],
        "says": (
            f"{count_noun(sum(rows.values()), 'duplicate')} of"
            f" {count_noun(copies['groups'], 'row')}"
            if copies["groups"]
            else "No row is a duplicate of another."
        ),
        "largest": [
            {
                "rows": group["rows"],
                "what": COPY_KINDS.get(group["kind"], group["kind"]),
                # Rows that the page does not show have no address: the cell is text then.
                "places": [
                    (
                        f"{place['file']}:{place['line']}",
                        row_links.get((place["file"], place["row"])),
                    )
                    for place in group["places"]
                ],
            }
            for group in copies["largest"]
        ],
    }


def _eval_leaks_block(leaks: dict[str, Any]) -> dict[str, Any]:
    """Evaluation rows that the training data holds too, by kind."""
    of, rows = leaks["of"], leaks["rows"]
    return {
        "says": (
            f"{sum(rows.values()):,} of {count_noun(of, 'evaluation row')} are known from the training"
            " data"
        ),
        "lines": [
            (LEAK_KINDS.get(kind, kind), f"{count:,}", format_per_cent_share(count, of))
            for kind, count in rows.items()
        ],
    }


def _batch_charts(lines: list[dict[str, Any]]) -> Iterator[BarChart]:
    """How the lines of the batches are filled; how many documents are packed in each, where they are packed."""
    drawn_lines = lines[:MAX_LINES]
    if not drawn_lines:
        return
    parts, names = (
        [_batch_line_token_counts(line) for line in drawn_lines],
        [_batch_line_name(line) for line in drawn_lines],
    )
    wide = [sum(part) for part in parts]
    bars, table = [], []
    for line, (supervised, context, padding), name in zip(drawn_lines, parts, names, strict=True):
        title = f"{name}: {supervised:,} supervised, {context:,} context, {padding:,} padding"
        # Padding is drawn last, on top: all bars are of one height where lines are padded to
        # one length.
        bars.append(Bar([(supervised, "b-main"), (context, "b-soft"), (padding, "b-pad")], title))
        table.append(
            (name, f"{supervised:,}", f"{context:,}", f"{padding:,}", f"{line['documents']:,}")
        )
    yield BarChart(
        "Lines of the batches, in tokens",
        bars,
        max(wide),
        f"{max(wide):,}",
        ("first line", names[-1]),
        f"{format_per_cent_share(sum(wide) - sum(line['tokens'] for line in drawn_lines), sum(wide))} of the places are"
        " padding"
        + (
            f"; the first {len(drawn_lines):,} of {len(lines):,} lines"
            if len(drawn_lines) < len(lines)
            else ""
        ),
        legend=(("b-main", "supervised"), ("b-soft", "context"), ("b-pad", "padding")),
        table=(("line", "supervised", "context", "padding", "documents"), table),
    )
    documents = [line["documents"] for line in drawn_lines]
    # One document a line is no packing, and needs no chart.
    most = max(documents)
    if most > 1:
        yield BarChart(
            "Documents in each line",
            [
                Bar([(count, "b-main")], f"{name}: {count_noun(count, 'document')}")
                for count, name in zip(documents, names, strict=True)
            ],
            most,
            f"{most:,}",
            ("first line", names[-1]),
            f"{sum(documents) / len(documents):.1f} on average",
        )


def _batch_line_token_counts(line: dict[str, Any]) -> tuple[int, int, int]:
    """How many tokens of a batch line are supervised, context and padding; padding may be
    supervised too.
    """
    # Padding may be supervised by mistake: then it is counted where it does harm, and the rest
    # is not made negative.
    context = max(0, line["tokens"] - line["supervised"])
    return line["supervised"], context, max(0, line.get("places", 0) - line["supervised"] - context)


def _batch_line_name(line: dict[str, Any]) -> str:
    """The name of a batch line: `rank 1, batch 0, line 2 (rejected)`"""
    rank = f"rank {line['rank']}, " if line["rank"] else ""
    return f"{rank}batch {line['batch']}, line {line['line']}" + (
        f" ({line['side']})" if line["side"] else ""
    )
