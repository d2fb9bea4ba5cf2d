"""Lines for the terminal on what was examined and is fine, and on what was not judged.

Silence is no verdict: whoever reads "no findings" must see how many checks stand behind it, and what could not be
checked. The counts are always printed; the lists only with -v, for they are longer than everything else.
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.judgement import Examined
from truetune.checks.reports import Report
from truetune.report.visible_text import count_noun

# Chosen, not measured: reasons for judging nothing are nearly always the same one (no
# tokenizer, no rows).
MAX_REASONS = 3


def describe_counts_of_checks_by_outcome(report: Report) -> str:
    """How many checks are fine, were not judged, or are about other things, in one line: `83 checks
    examined and fine, 12 not judged, 40 about other things (-v lists them)`
    """
    parts = [f"{count_noun(len(report.examined), 'check')} examined and fine"]
    # A user can do something about the first kind. Counted together they read as if most of the work were left undone:
    # a script without DPO has dozens of rules that are about nothing in it.
    unjudged = sum(part.asked or bool(part.unlock) for part in report.not_judged)
    others = len(report.not_judged) - unjudged
    if unjudged:
        parts.append(f"{unjudged:,} not judged")
    if others:
        parts.append(f"{others:,} about other things")
    listed = " (-v lists them)" if report.examined or report.not_judged else ""
    return ", ".join(parts) + listed


def describe_unjudged_and_passed_checks(report: Report, *, verbose: bool) -> Iterator[str]:
    """Lines on what was asked for and could not be judged, each with its reason; with `verbose`
    also all other checks, those that are fine first.

    Where nothing was judged at all, the first reasons for that.
    """
    # What was asked for by name and could not be judged is said without -v: it decides the exit
    # code.
    missing = report.requested_not_judged() or (
        report.not_judged[:MAX_REASONS] if report.is_incomplete() else ()
    )
    told = [part for part in report.not_judged if part.always_told and part not in missing]
    if verbose:
        yield from (f"fine: {describe_examined(part)}" for part in report.examined)
    yield from (
        f"not judged: {part}" for part in (report.not_judged if verbose else (*missing, *told))
    )


def describe_examined(part: Examined) -> str:
    """A check that found nothing: its figure where it has one, else what it looked for."""
    return f"{part.rule} ({part.code}): {part.figure or f'not so: {part.looked_for}'}"
