"""Makes findings on pairs notes if another finding proves that the sides are exchanged, for then
they follow from it.

Lengths, few answers and refusals are such findings. Advice to balance the lengths of exchanged
sides would be wrong: whoever follows it trains the worse answers all the same. Such findings become
notes that name the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from truetune.checks.findings import Finding
from truetune.checks.pairs.preference_length_bias import PreferenceLengthBias
from truetune.checks.pairs.preference_pairs_swapped import PreferencePairsSwapped
from truetune.checks.rows.few_distinct_answers import FewDistinctAnswers
from truetune.checks.source.pairs_built_the_wrong_way_round import PairsBuiltTheWrongWayRound

PROOFS = (PairsBuiltTheWrongWayRound.name(), PreferencePairsSwapped.name())
CONSEQUENCES = (PreferenceLengthBias.name(), FewDistinctAnswers.name())


def demote_findings_of_exchanged_sides(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, those that come of exchanged sides as notes, where an error proves that the sides are exchanged."""
    proofs = [one for one in findings if one.rule in PROOFS and one.severity == "error"]
    if not proofs:
        return list(findings)
    remedy = f"swap the sides first: see {proofs[0].rule}"
    return [
        replace(one, severity="info", remedy=remedy) if _follows_from_exchanged_sides(one) else one
        for one in findings
    ]


def _follows_from_exchanged_sides(finding: Finding) -> bool:
    """Does a finding come of exchanged sides? Few answers do so only where the rejected ones differ."""
    if finding.rule == FewDistinctAnswers.name():
        return "rejected" in finding.message
    return finding.rule in CONSEQUENCES
