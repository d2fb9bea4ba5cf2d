"""The first section of a page: the headline, its tiles, the verdict in one sentence, the next
step, and the ledger in one picture.

It stands first on every page: whoever reads only this must have the right idea. So the next step
is here as well, with a link to the finding that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.render.rendering import Source
from truetune.report.audit_terminal import describe_loss_function
from truetune.report.page.findings_section import SEVERITIES, findings_with_anchors
from truetune.report.page.page_section import Result, Section, render_template
from truetune.report.page.summary_tiles import make_headline, make_tiles


def summary_section(result: Result) -> Section:
    """The summary, which every result has: headline, tiles, verdict, next step and ledger."""
    ledger = token_ledger_rows_from_json(result)
    # Padding is no token of the data: with it the shares would depend on the batch size.
    text = [row for row in ledger if row["key"] != "padding"]
    lengths: dict[str, Any] = result.get("lengths") or {}
    return Section(
        "verdict",
        "Verdict",
        render_template(
            "verdict.html.jinja",
            result=result,
            headline=make_headline(result),
            tiles=make_tiles(result),
            verdict=result.get("summary") or result.get("verdict"),
            amiss=result.get("failed") and not result.get("findings"),
            next=_next_step_link(result),
            subjects=list(_subjects_without_run_facts(result)),
            loss=_describe_loss_of_audit(result),
            ledger=ledger,
            bar=list(ledger_bar_parts(ledger)),
            supervised=sum(row["supervised"] for row in text),
            total=sum(row["supervised"] + row["context"] for row in text),
            lost=lengths.get("lost_supervised") and not result.get("audit"),
            limit=lengths.get("limit"),
        ),
    )


def _subjects_without_run_facts(result: Result) -> Iterator[dict[str, Any]]:
    """The subjects without facts that the section of the run lists already."""
    known = {name for run in result.get("runs") or () for name in run["facts"]}
    for subject in result.get("subjects") or ():
        # The section of the run has a table of these facts.
        again = known if subject["kind"] == "run log" else ()
        yield subject | {
            "facts": {name: value for name, value in subject["facts"].items() if name not in again}
        }


def _describe_loss_of_audit(result: Result) -> str:
    """Which function computes the loss; empty of reports without an audit, and of those of earlier
    releases.
    """
    loss = (result.get("audit") or {}).get("loss")
    return "" if loss is None else describe_loss_function(loss)


def _next_step_link(result: Result) -> dict[str, str | None]:
    """The text of the next step and its anchor: the remedy of the gravest finding; else what the
    result says, without an anchor.
    """
    # A note asks for nothing to be done next.
    graver_than_notes = [
        one for one in findings_with_anchors(result) if one[0]["severity"] != "info"
    ]
    if not graver_than_notes:
        return {"text": result.get("next"), "anchor": None}
    finding, anchor = min(graver_than_notes, key=lambda one: SEVERITIES.index(one[0]["severity"]))
    return {"text": finding["remedy"], "anchor": anchor}


def token_ledger_rows_from_json(result: Result) -> list[dict[str, Any]]:
    """Rows of the ledger by source, padding last: key, label, supervised, context, not_attended."""
    ledger: dict[str, dict[str, int]] = (result.get("audit") or result).get("ledger") or {}
    labels = {source.name.lower(): source.label for source in Source}
    return [
        {"key": key, "label": labels.get(key, key), "not_attended": 0, **counts}
        for key, counts in ledger.items()
        # A source that no token is of would be an empty stripe with a legend.
        if counts.get("supervised") or counts.get("context")
    ]


def ledger_bar_parts(ledger: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The parts of the ledger's bar in per cent: what is supervised, then the context; without
    padding.
    """
    rows = [row for row in ledger if row["key"] != "padding"]
    total, done = max(1, sum(row["supervised"] + row["context"] for row in rows)), 0
    # Supervised first, so that its share is read off the left edge.
    for kind in ("supervised", "context"):
        for row in rows:
            count = row[kind]
            if count:
                title = f"{row['label']}: {count:,} {kind}"
                yield {
                    "key": row["key"],
                    "kind": kind,
                    "x": round(100 * done / total, 3),
                    "width": round(100 * count / total, 3),
                    "title": title,
                    # The style hides a label that is wider than its part.
                    "label": f"{row['label']} {100 * count / total:.0f} %",
                }
                done += count
