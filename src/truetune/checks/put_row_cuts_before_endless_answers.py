"""Puts a length limit that cuts most training rows before the endless answers that follow from it,
and makes it their help.

A row that is cut has no stop token. Where most rows are cut, advice on pads, templates and servers is beside the point:
the model has hardly seen how an answer ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from truetune.checks.answers.answers_never_stop import AnswersNeverStop
from truetune.checks.answers.stop_token_not_learned import StopTokenNotLearned
from truetune.checks.config.rows_surely_cut import RowsSurelyCut
from truetune.checks.findings import RANK, Finding
from truetune.checks.shared_by_rules_on_cut_answers import ENDS_ARE_LOST
from truetune.checks.tokens.rows_longer_than_default_max_length import (
    RowsLongerThanDefaultMaxLength,
)
from truetune.checks.tokens.truncation_cuts_the_terminator import TruncationCutsTheTerminator

CUTS = (
    TruncationCutsTheTerminator.name(),
    RowsLongerThanDefaultMaxLength.name(),
    RowsSurelyCut.name(),
)
"""Findings on rows that lose their end; those that count tokens before the one that counts characters"""
CONSEQUENCES = (AnswersNeverStop.name(), StopTokenNotLearned.name())
# Chosen, not measured. At a quarter, three rows of four still teach the stop; at 0.9 a run of which eight rows in ten
# teach none would be passed over.
MOST = 0.5


def put_cuts_before_answers(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, a limit that cuts most rows before the answers that do not stop."""
    cuts = sorted(filter(_does_limit_cut_most_ends, findings), key=lambda one: CUTS.index(one.rule))
    endless = [one for one in findings if _is_about_endless_answers(one)]
    if not cuts or not endless:
        return list(findings)
    answers = f"the answers show it: {endless[0].message}"
    cause = replace(cuts[0], severity="error", evidence=(*cuts[0].evidence, answers))
    remedy = f"most rows lose their end ({cause.rule}): {cause.remedy}, and train again"
    rest = [
        replace(one, remedy=remedy) if one in endless else one
        for one in findings
        if one is not cuts[0]
    ]
    return [cause, *rest]


def _is_about_endless_answers(finding: Finding) -> bool:
    """Is a finding about answers that do not stop, and graver than a note?"""
    return finding.rule in CONSEQUENCES and RANK[finding.severity] >= RANK["warning"]


def _does_limit_cut_most_ends(finding: Finding) -> bool:
    """Does a limit take the ends of most rows? A trainer that leaves long rows out takes no ends."""
    if finding.rule not in CUTS or finding.count is None or finding.total is None:
        return False
    return finding.count > MOST * finding.total and ENDS_ARE_LOST in finding.evidence
