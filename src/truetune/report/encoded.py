"""What `truetune encode` has done, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from truetune.encoding.encode_run import Encoded, Estimate
from truetune.encoding.folder_layout import DATA
from truetune.report.as_json import ledger_json
from truetune.report.shown import outcome
from truetune.report.terminal import ledger_table, lost_line
from truetune.report.text import many, share, visible


def render_encoded(encoded: Encoded, console: Console) -> None:
    """Draw counts, ledger and notices."""
    _counts(encoded, console)
    console.print()
    console.print(ledger_table(encoded.ledger))
    _lost(encoded.lost_fields, console)
    _notices(encoded, console)


def _counts(encoded: Encoded, console: Console) -> None:
    counts = encoded.counts
    files = {shard["file"] for shard in encoded.manifest["shards"]}
    size = sum(
        path.stat().st_size for path in (encoded.folder / DATA).iterdir() if path.name in files
    )
    verb = (
        "found again, every byte as written and rows encoded alike" if encoded.reused else "encoded"
    )
    _say(console, f"{many(counts['rows'], 'row')} {verb} in {encoded.seconds:.1f} s")
    learned = (
        f"{counts['supervised']:,} are learned ({share(counts['supervised'], counts['tokens'])})"
    )
    _say(
        console,
        f"{many(counts['documents'], 'example')}, {many(counts['tokens'], 'token')}: {learned}",
    )
    if "room" in counts:
        _say(
            console,
            f"{many(counts['packs'], 'pack')}, {share(counts['tokens'], counts['room'])} full",
        )
    _say(
        console,
        f"{encoded.folder / DATA}: {many(len(files), 'file')}, {size / 1e6:,.1f} MB; "
        f"by {', '.join(encoded.manifest['engines'])}",
    )


def _notices(encoded: Encoded, console: Console) -> None:
    for notice in encoded.manifest["notices"]:
        _say(console, f"note: {notice}")


def encoded_json(encoded: Encoded) -> dict[str, Any]:
    """What was written, as plain values."""
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


def encoded_page(encoded: Encoded, tokenizer: str | None) -> dict[str, Any]:
    """What was written, with what a page of it needs; it draws the ledger itself."""

    def draw(console: Console) -> None:
        _counts(encoded, console)
        _notices(encoded, console)

    counts = encoded.counts
    part = share(counts["supervised"], counts["tokens"])
    learned = f"{counts['supervised']:,} of {many(counts['tokens'], 'token')} ({part})"
    return (
        encoded_json(encoded)
        | outcome(
            ("encoded data", str(encoded.folder)),
            f"{learned} in {many(counts['rows'], 'row')} are learned",
            f"look at the rows: truetune view {encoded.folder} -t {tokenizer}",
            draw,
        )
        | {"failed": False}
    )


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """What a run would write, as plain values."""
    return {
        "folder": str(estimate.folder),
        "reused": estimate.reused,
        "rows": estimate.rows,
        "documents": estimate.documents,
        "tokens": estimate.tokens,
        "ledger": ledger_json(estimate.ledger),
        "lost_fields": estimate.lost_fields,
        "tokens_of_all": estimate.whole,
        "problems": estimate.problems,
    }


def render_estimate(estimate: Estimate, console: Console) -> None:
    """Draw what a run would write."""
    if estimate.reused:
        _say(console, f"{estimate.folder} holds this already: nothing would be encoded")
    sample = estimate.rows
    _say(
        console,
        f"of the first {many(sample, 'row')}: {many(estimate.documents, 'example')}, "
        f"{many(estimate.tokens, 'token')}, {estimate.ledger.supervised:,} learned",
    )
    whole = (
        f"{estimate.whole:,} tokens"
        if estimate.whole is not None
        else "not known before the data is read"
    )
    _say(console, f"all of it, about: {whole}; would be written to {estimate.folder}")
    console.print()
    console.print(ledger_table(estimate.ledger))
    _lost(estimate.lost_fields, console)
    for reason, count in estimate.problems.items():
        _say(console, f"note: {count:,} x {reason}")


def _lost(fields: Mapping[str, int], console: Console) -> None:
    if fields:
        console.print(lost_line(fields), soft_wrap=True)


def _say(console: Console, text: str) -> None:
    console.print(visible(text), soft_wrap=True)
