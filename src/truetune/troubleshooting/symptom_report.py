"""The report on a symptom: what in a project explains it, and which of its causes are left to
check.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from truetune.checks.explaining.guides import Cause
from truetune.checks.findings import RANK, Finding
from truetune.checks.reports import Report
from truetune.troubleshooting.project_words import TextLine
from truetune.troubleshooting.rank_causes import rules_that_many_causes_trigger

MAX_LINES_APART = 3
"""Of a call over several lines a finding has the first, and a sign the line of its argument"""
CauseState = Literal["found", "looked for", "open", "ruled out"]
"""`found`: a rule that proves it fires. `looked for`: each of its rules examined something here and found nothing. That
makes it unlikely and does not exclude it: a fault may stand that no rule reads. `open`: nothing here could tell.
`ruled out`: a setting, a line or a log here says that it can't be"""


@dataclass(frozen=True, slots=True)
class JudgedCause:
    """One cause of the symptom, with what the project says of it."""

    cause: Cause
    guide: str
    """The guide that lists it"""
    state: CauseState
    rules: tuple[str, ...]
    """Of a cause that was found, the rules that fire; else those that would prove it"""
    lines: tuple[TextLine, ...] = ()
    """Lines of the project that show what the cause takes"""
    against: str = ""
    """What of the project rules it out"""
    lacking: tuple[str, ...] = ()
    """What the cause takes and the project does not have: it is unlikely then, and stands at the end"""


def _is_line_at_or_beside_finding(line: TextLine, shown: Set[tuple[str, int]]) -> bool:
    """Does a line stand in the statement, or right beside it, at which a finding is?"""
    number = line.place.rpartition(":")[2]
    if not number.isdecimal():
        return False
    name = Path(line.file).name
    return any(file == name and abs(int(number) - at) <= MAX_LINES_APART for file, at in shown)


@dataclass(frozen=True, kw_only=True, repr=False)
class SymptomReport(Report):
    """What was found in a project that has a symptom. Its findings stand in another order than those of other
    reports: what proves a cause of the symptom comes first, then the others, both by severity."""

    question: str
    """The symptom, in the user's words"""
    guides: tuple[str, ...]
    """Names of the guides on that symptom, the best first"""
    near_guides: tuple[str, ...]
    """Of these, the ones that fit the question about as well as the best: they are named to the reader"""
    explaining: int
    """So many of the findings, from the first on, prove a cause of the symptom"""
    causes: tuple[JudgedCause, ...]
    """All causes of these guides: those that were found first, the others with the likeliest first"""

    def remaining(self) -> tuple[JudgedCause, ...]:
        """The causes that remain: those that may be and were not found, the likeliest first.

        Those that take what the project lacks are among them only where no other is left. Those that point at nothing
        but what a finding shows already come last: they mostly say the same in other words.
        """
        open_ones = [one for one in self.causes if one.state in ("looked for", "open")]
        possible = [one for one in open_ones if not one.lacking]
        return tuple(sorted(possible or open_ones, key=self._are_all_cause_lines_at_findings))

    def _are_all_cause_lines_at_findings(self, judged_cause: JudgedCause) -> bool:
        """Do all lines of a cause stand where a finding is that explains the symptom?"""
        shown = {
            (Path(case.file).name, case.line)
            for finding in self.proving_findings()
            for case in finding.cases
            if case.file is not None and case.line is not None
        }
        return bool(judged_cause.lines) and all(
            _is_line_at_or_beside_finding(line, shown) for line in judged_cause.lines
        )

    def ruled_out(self) -> tuple[JudgedCause, ...]:
        """The causes that something in the project rules out."""
        return tuple(judged for judged in self.causes if judged.state == "ruled out")

    def proving_findings(self) -> tuple[Finding, ...]:
        """The findings that explain the symptom and each stand for one cause.

        One of an exception or of a flat loss may say which of many it is, and more often says what is seen.
        """
        explaining = self.findings[: self.explaining]
        return tuple(one for one in explaining if one.rule not in rules_that_many_causes_trigger())

    def folded_findings(self) -> tuple[Finding, ...]:
        """Where problems explain the symptom, the findings that don't: they are named in a line.

        One that is graver than all that explain it is not among them: a fault may show as a symptom that no guide
        lists, and a warning that fits the words is no answer where an error stands beside it.
        """
        ranks = [RANK[finding.severity] for finding in self.findings[: self.explaining]]
        gravest = max(ranks, default=RANK["info"])
        if gravest == RANK["info"]:
            return ()
        others = self.findings[self.explaining :]
        return tuple(finding for finding in others if RANK[finding.severity] <= gravest)

    def more(self) -> dict[str, Any]:
        """The symptom and its causes, for the JSON."""
        return {
            "symptom": {
                "question": self.question,
                "guides": list(self.guides),
                "explaining": self.explaining,
                "causes": [
                    {
                        "text": judged.cause.text,
                        "seen": judged.cause.seen,
                        "guide": judged.guide,
                        "state": judged.state,
                        "rules": list(judged.rules),
                        "look_at": [
                            {"place": line.place, "line": line.text} for line in judged.lines
                        ],
                        "lacking": list(judged.lacking),
                        "against": judged.against,
                    }
                    for judged in self.causes
                ],
            }
        }
