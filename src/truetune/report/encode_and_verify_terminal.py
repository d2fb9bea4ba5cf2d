"""What `truetune encode` has written or would write, and what `--verify` found in a cache, for a
terminal and for a page.

The terminal prints counts first and the ledger after them, since a wrong number of tokens is seen
at once. `render_cache_comparison` names examples and not ids: two caches differ by what a row
became, not by a position in a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console

from truetune.encoding.encode_data_set import Encoded, Estimate
from truetune.encoding.encoded_folder_layout import DATA
from truetune.report.as_json import ledger_json
from truetune.report.record_terminal_drawing_as_tables import page_values_of_plan_ladder_or_merge
from truetune.report.report_terminal import ledger_table, line_on_fields_without_tokens
from truetune.report.terminal_output import print_visible
from truetune.report.visible_text import (
    count_noun,
    escape_invisible_characters,
    format_per_cent_share,
)

if TYPE_CHECKING:
    from truetune.tokenized.verify_token_cache import CacheComparison

MAX_DIFFERENCES = 3
"""Places of each kind"""


def render_encoded(encoded: Encoded, console: Console) -> None:
    """Draw what `truetune encode` has written: counts, the ledger and notices."""
    _print_counts(encoded, console)
    console.print()
    console.print(ledger_table(encoded.ledger))
    _print_lost_fields(encoded.lost_fields, console)
    _print_notices(encoded, console)


def _print_counts(encoded: Encoded, console: Console) -> None:
    """Print the counts of an encoding: rows, tokens, how full packs are, and what was written."""
    counts = encoded.counts
    files = {shard["file"] for shard in encoded.manifest["shards"]}
    # Only the files of this run: the folder may hold a cache of other settings as well.
    size = sum(
        path.stat().st_size for path in (encoded.folder / DATA).iterdir() if path.name in files
    )
    # A cache that is used again says what was proved of it, since nothing was encoded that
    # could be looked at.
    verb = (
        "found again, every byte as written and rows encoded alike" if encoded.reused else "encoded"
    )
    _print_coloured_line(
        console, f"{count_noun(counts['rows'], 'row')} {verb} in {encoded.seconds:.1f} s"
    )
    learned = f"{counts['supervised']:,} are learned ({format_per_cent_share(counts['supervised'], counts['tokens'])})"
    _print_coloured_line(
        console,
        f"{count_noun(counts['documents'], 'example')}, {count_noun(counts['tokens'], 'token')}: {learned}",
    )
    # Without packing there is no room to be full: the key is missing then.
    if "room" in counts:
        _print_coloured_line(
            console,
            f"{count_noun(counts['packs'], 'pack')}, {format_per_cent_share(counts['tokens'], counts['room'])} full",
        )
    _print_coloured_line(
        console,
        f"{encoded.folder / DATA}: {count_noun(len(files), 'file')}, {size / 1e6:,.1f} MB; "
        f"by {', '.join(encoded.manifest['engines'])}",
    )


def _print_notices(encoded: Encoded, console: Console) -> None:
    """Print the notices of an encoding, such as a slower engine or rows that were left out."""
    for notice in encoded.manifest["notices"]:
        _print_coloured_line(console, f"note: {notice}")


def encoded_json(encoded: Encoded) -> dict[str, Any]:
    """What `truetune encode` has written, as plain values."""
    return {
        "folder": str(encoded.folder),
        "reused": encoded.reused,
        "counts": encoded.counts,
        "ledger": ledger_json(encoded.ledger),
        "lost_fields": encoded.lost_fields,
        "files": [shard["file"] for shard in encoded.manifest["shards"]],
        "notices": encoded.manifest["notices"],
        "seconds": encoded.seconds,
    }


def encoded_page_values(encoded: Encoded, tokenizer: str | None) -> dict[str, Any]:
    """What `truetune encode` has written, as plain values with the parts that a page of it needs."""

    def draw(console: Console) -> None:
        # Without the ledger: the page draws it itself, from the same JSON.
        _print_counts(encoded, console)
        _print_notices(encoded, console)

    counts = encoded.counts
    part = format_per_cent_share(counts["supervised"], counts["tokens"])
    learned = f"{counts['supervised']:,} of {count_noun(counts['tokens'], 'token')} ({part})"
    return (
        encoded_json(encoded)
        | page_values_of_plan_ladder_or_merge(
            ("encoded data", str(encoded.folder)),
            f"{learned} in {count_noun(counts['rows'], 'row')} are learned",
            f"look at the rows: truetune view {encoded.folder} -t {tokenizer}",
            draw,
        )
        | {"failed": False}
    )


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """What `truetune encode` would write, as plain values."""
    return {
        "folder": str(estimate.folder),
        "reused": estimate.reused,
        "rows": estimate.rows,
        "documents": estimate.documents,
        "tokens": estimate.token_count_of_first_rows,
        "ledger": ledger_json(estimate.ledger),
        "lost_fields": estimate.lost_fields,
        "tokens_of_all": estimate.whole,
        "problems": estimate.problems,
    }


def render_estimate(estimate: Estimate, console: Console) -> None:
    """Draw what `truetune encode` would write."""
    if estimate.reused:
        _print_coloured_line(
            console, f"{estimate.folder} holds this already: nothing would be encoded"
        )
    sample = estimate.rows
    _print_coloured_line(
        console,
        f"of the first {count_noun(sample, 'row')}: {count_noun(estimate.documents, 'example')}, "
        f"{count_noun(estimate.token_count_of_first_rows, 'token')}, {estimate.ledger.supervised:,} learned",
    )
    whole = (
        f"{estimate.whole:,} tokens"
        if estimate.whole is not None
        else "not known before the data is read"
    )
    _print_coloured_line(
        console, f"all of it, about: {whole}; would be written to {estimate.folder}"
    )
    console.print()
    console.print(ledger_table(estimate.ledger))
    _print_lost_fields(estimate.lost_fields, console)
    for reason, count in estimate.problems.items():
        _print_coloured_line(console, f"note: {count:,} x {reason}")


def render_cache_comparison(comparison: CacheComparison, path: str, console: Console) -> None:
    """Draw what `--verify` found in a cache: counts, and the first places of each kind of
    difference.
    """
    print_visible(
        console,
        f"{path}: {count_noun(comparison.documents, 'document')}; the data encode to"
        f" {count_noun(comparison.examples, 'example')}",
    )
    print_visible(console, f"the same ids and labels: {comparison.same:,}")
    # No labels means that the trainer makes them from ids: every token, prompts included,
    # unless it is told otherwise.
    if not comparison.labels:
        print_visible(
            console,
            "the cache has neither labels nor a mask: a trainer learns everything",
            "bold red",
        )
    lines = (
        (
            "other labels",
            f"the same ids with other labels: {comparison.other_labels:,}",
            comparison.other_labels,
        ),
        (
            "missing",
            f"not in the cache: {comparison.missing:,} examples of the data",
            comparison.missing,
        ),
        (
            "extra",
            f"not in the data: {comparison.extra:,} documents of the cache",
            comparison.extra,
        ),
    )
    for what, line, count in lines:
        if count:
            print_visible(console, line, "bold red")
            places = [origin for kind, origin in comparison.places if kind == what][
                :MAX_DIFFERENCES
            ]
            for origin in places:
                print_visible(console, f"  --> {origin}")
    if comparison.rejected:
        print_visible(
            console, f"not judged: {count_noun(comparison.rejected, 'row')} that can't be rendered"
        )
    print_visible(
        console,
        (
            "the cache is what the data encode to"
            if comparison.is_same
            else "the cache differs: encode the rows again"
        ),
    )


def _print_lost_fields(fields: Mapping[str, int], console: Console) -> None:
    """Print which fields of rows no token comes from, where there are any."""
    if fields:
        console.print(line_on_fields_without_tokens(fields), soft_wrap=True)


def _print_coloured_line(console: Console, text: str) -> None:
    """One line, with numbers and paths in colour on a terminal."""
    # Printed as a str, so that rich colours numbers and paths as it does for its own log lines.
    console.print(escape_invisible_characters(text), soft_wrap=True)
