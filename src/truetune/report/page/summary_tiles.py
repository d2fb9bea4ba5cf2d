"""The headline of a page in about five words, and the tiles below it with its main figures.

Both are made of a report's JSON, as the page is. A headline says how the report ended (found, not
judged, or no findings), and never more: why is in the sentence below it. A tile without a figure
is left out, so that a page has two or three. The trade-off: what a trainer learns is worked out
again from the JSON's counts, by the same rule as the sentence
(test_the_tile_has_the_number_of_the_sentence holds both together).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truetune.report.page.findings_section import describe_outcome_without_findings
from truetune.report.page.page_section import Result
from truetune.report.visible_text import count_noun, format_per_cent_share
from truetune.settings.stacks.read_axolotl_datasets import preference_strategy_with_own_template
from truetune.settings.training_settings import SAMPLES_ITS_ANSWERS

TILES = 3
"""Tiles of a page that has a figure for each"""
MAX_CLAUSE_WORDS = 6
"""Words of a clause that may stand as the headline. Chosen, not measured: one line on a phone."""
MISSING = "\N{EN DASH}"
"""In place of a figure that is not known"""


@dataclass(frozen=True, slots=True)
class Headline:
    """How a report ended, in about five words."""

    text: str
    kind: str
    """A class of the page's style: error, warning, fine or open (nothing was judged)"""


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure with what it counts."""

    name: str
    value: str
    note: str
    kind: str = ""
    """A class of the page's style: error, warning or fine; empty is neutral"""
    href: str | None = None
    """Where a press on it leads"""


@dataclass(frozen=True, slots=True)
class SeverityCounts:
    """How many findings of each severity a report has."""

    errors: int
    warnings: int
    notes: int

    @property
    def graver_than_notes(self) -> int:
        """How many findings are errors or warnings."""
        return self.errors + self.warnings

    @property
    def kind(self) -> str:
        """The class of the gravest finding: error, warning or fine."""
        if self.errors:
            return "error"
        return "warning" if self.warnings else "fine"


def count_severities(result: Result) -> SeverityCounts:
    """Count a result's findings by severity."""
    severities = [finding["severity"] for finding in result.get("findings") or ()]
    return SeverityCounts(*(severities.count(name) for name in ("error", "warning", "info")))


def make_headline(result: Result) -> Headline:
    """The headline of a result: what was found, or that nothing was, or that nothing was judged."""
    if "findings" not in result:
        return _headline_without_judgement(result)
    counts = count_severities(result)
    if counts.graver_than_notes:
        return Headline(_describe_found(result, counts), counts.kind)
    outcome, _ = describe_outcome_without_findings(result)
    if outcome == "no findings":
        return Headline(_describe_nothing_found(result, counts), "fine")
    kinds = {"failed": "error", "not judged": "open"}
    return Headline(outcome[:1].upper() + outcome[1:], kinds.get(outcome, "fine"))


def _headline_without_judgement(result: Result) -> Headline:
    """The headline of a result that no rule judged, such as a plan: the first clause of its
    sentence where it is short.
    """
    failed = bool(result.get("failed"))
    sentence = str(result.get("summary") or result.get("verdict") or "")
    clause = sentence.partition(": ")[0].rstrip(".")
    if not clause or len(clause.split()) > MAX_CLAUSE_WORDS:
        clause = "Failed" if failed else "Done"
    return Headline(clause[:1].upper() + clause[1:], "error" if failed else "fine")


def _describe_found(result: Result, counts: SeverityCounts) -> str:
    """The errors and warnings in words, and what was asked for and is not judged."""
    unjudged = sum(bool(part.get("asked")) for part in result.get("not_judged") or ())
    parts = [
        count_noun(counts.errors, "error") if counts.errors else "",
        count_noun(counts.warnings, "warning") if counts.warnings else "",
        # Findings win over what is not judged in the exit code: here both are said.
        f"{unjudged:,} not judged" if unjudged else "",
    ]
    return ", ".join(filter(None, parts))


def _describe_nothing_found(result: Result, counts: SeverityCounts) -> str:
    """That there is no finding but notes, in how many rows or by how many checks."""
    rows, checks = result.get("rows"), len(result.get("examined") or ())
    where = ""
    if rows:
        where = f" in {count_noun(rows, 'row')}"
    elif checks:
        where = f" in {count_noun(checks, 'check')}"
    if counts.notes:
        return f"Only {count_noun(counts.notes, 'note')}{where}"
    # What an earlier report knows is left out of the findings, and is still there.
    return f"No {'new ' if result.get('known') else ''}findings{where}"


def make_tiles(result: Result) -> list[Tile]:
    """The tiles of a result, each with a figure: what is learned, what was found, in which rows."""
    tiles = [_learned_tile(result), _findings_tile(result), _rows_tile(result)]
    known = [tile for tile in tiles if tile is not None]
    checks = _checks_tile(result)
    if known and checks is not None and len(known) < TILES:
        known.append(checks)
    return known


def _learned_tile(result: Result) -> Tile | None:
    """The share of tokens that are learned, and by whom; None where it is not known."""
    ledger: dict[str, dict[str, int]] = (result.get("audit") or result).get("ledger") or {}
    # Padding is no token of the data: with it the share would depend on the batch size.
    text = [counts for key, counts in ledger.items() if key != "padding"]
    total = sum(counts["supervised"] + counts["context"] for counts in text)
    if not total or _does_dataset_write_own_template(result) or _are_answers_sampled(result):
        return None
    learned = sum(counts["supervised"] for counts in text) - _tokens_lost_to_cut(result)
    of = f"{learned:,} of {count_noun(total, 'token')}"
    if by := _describe_who_learns_tokens(result):
        of = f"{of}, {by}"
    kind = "" if learned else "error"
    return Tile("learned", format_per_cent_share(learned, total), of, kind)


def _are_answers_sampled(result: Result) -> bool:
    """Are these rows of a training that samples its answers, so that none of their tokens is learned?"""
    training: dict[str, Any] = (result.get("spec") or {}).get("training") or {}
    return result.get("audit") is None and training.get("method") in SAMPLES_ITS_ANSWERS


def _does_dataset_write_own_template(result: Result) -> bool:
    """Does the run's data set write a template of its own, so that its tokens are not known?"""
    training: dict[str, Any] = (result.get("spec") or {}).get("training") or {}
    kind = (training.get("other") or {}).get("datasets.type")
    return bool(preference_strategy_with_own_template(training.get("method"), kind))


def _tokens_lost_to_cut(result: Result) -> int:
    """How many supervised tokens a length limit cuts off, as the verdict's sentence counts them."""
    learned: dict[str, Any] = (result.get("data") or {}).get("learned") or {}
    # A trainer that leaves long examples out cuts none.
    if learned.get("left_out"):
        return 0
    if learned.get("lost"):
        return int(learned["supervised"] - learned["reaches"])
    return int((result.get("lengths") or {}).get("lost_supervised") or 0)


def _describe_who_learns_tokens(result: Result) -> str:
    """By whom the tokens are learned: a trainer, or an ideal mask; empty where it is not said."""
    if result.get("audit"):
        return "in the recorded batches"
    learned: dict[str, Any] = (result.get("data") or {}).get("learned") or {}
    if not learned:
        return ""
    if learned["trainer"] is not None and learned["sure"]:
        return f"by {learned['called']}"
    is_ideal = learned["ideal"] == learned["supervised"]
    return "by an ideal mask" if is_ideal else "as the settings ask"


def _findings_tile(result: Result) -> Tile | None:
    """The number of errors, with the warnings and notes; None of a result that no rule judged."""
    if "findings" not in result:
        return None
    counts = count_severities(result)
    if open_outcome := _outcome_if_zero_would_mislead(result, counts):
        kind = "error" if open_outcome == "failed" else ""
        return Tile("errors", MISSING, open_outcome, kind, "#findings")
    others = [count_noun(counts.warnings, "warning")]
    if counts.notes:
        others.append(count_noun(counts.notes, "note"))
    # What an earlier report knows is left out of the findings, and is still there.
    if result.get("known"):
        others.append(f"{count_noun(len(result['known']), 'known finding')} left out")
    name = "error" if counts.errors == 1 else "errors"
    return Tile(name, f"{counts.errors:,}", ", ".join(others), counts.kind, "#findings")


def _outcome_if_zero_would_mislead(result: Result, counts: SeverityCounts) -> str | None:
    """The outcome in words where a nought would be read as "all is fine" and is not; else None."""
    outcome, _ = describe_outcome_without_findings(result)
    is_open = outcome in ("not judged", "failed") and not counts.graver_than_notes
    return outcome if is_open else None


def _rows_tile(result: Result) -> Tile | None:
    """The number of rows that errors and warnings name; None where no rows were judged."""
    rows = result.get("rows")
    if not rows or "findings" not in result:
        return None
    counts = count_severities(result)
    grave = [finding for finding in result["findings"] if finding["severity"] != "info"]
    named = _count_named_rows(grave)
    kind_of_findings = "new findings" if result.get("known") else "findings"
    name = f"{'row' if named == 1 else 'rows'} with {kind_of_findings}"
    if open_outcome := _outcome_if_zero_would_mislead(result, counts):
        return Tile(name, MISSING, open_outcome, "", "#findings")
    # Such findings are about settings or a template: "0 rows" would be read as "no row is hurt".
    if grave and not named:
        return Tile(name, MISSING, "the findings name no single rows", "", "#findings")
    judged = _describe_judged_rows(result, rows)
    if any(map(_has_more_cases, grave)):
        return Tile(name, f"{named:,}+", f"at least, {judged}", counts.kind, "#findings")
    return Tile(name, f"{named:,}", judged, counts.kind, "#findings")


def _has_more_cases(finding: Mapping[str, Any]) -> bool:
    """Does a finding list only the first of its cases?"""
    return (finding.get("count") or 0) > len(finding["cases"])


def _count_named_rows(findings: Sequence[Mapping[str, Any]]) -> int:
    """How many different rows the cases of findings are in."""
    places = {
        (case.get("file"), case.get("row")) for finding in findings for case in finding["cases"]
    }
    return sum(row is not None for _, row in places)


def _describe_judged_rows(result: Result, rows: int) -> str:
    """The rows among which rows with findings are counted, in words."""
    # Findings name evaluation rows too, of which a report does not have the number: 212 "of 200
    # rows" would be nonsense.
    if (result.get("spec") or {}).get("eval_data"):
        return f"in {count_noun(rows, 'row')} and the evaluation data"
    return f"of {count_noun(rows, 'row')} judged"


def _checks_tile(result: Result) -> Tile | None:
    """The number of checks that found nothing wrong; None where the JSON does not say."""
    if "examined" not in result:
        return None
    examined, unjudged = len(result["examined"]), len(result.get("not_judged") or ())
    return Tile("checks fine", f"{examined:,}", f"{unjudged:,} not judged", "", "#examined")
