"""Judgement: what rules say of one subject, in the three parts of a verdict.

A rule finds something; or examines its subject and finds it fine; or could not judge it, with the reason. A rule that
has nothing to look at says so (`Rule.unmet`), so that "no findings" counts only what was examined. `rule_runner` makes
judgements of rules; a part of truetune that could not do its work adds a `NotJudged` by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from truetune.checks.findings import Finding, sort_findings


@dataclass(frozen=True, slots=True)
class Examined:
    """One thing that can go wrong, was looked for, and is not there."""

    rule: str
    """kebab-case name"""
    code: str
    looked_for: str
    """The fault, in one line: the title of the rule's page"""
    figure: str = ""
    """What was measured instead: `stop tokens in the loss: 240 of 240`; empty where the rule measures nothing"""
    count: int | None = None
    """The figure's count, where it counts something"""
    of: int | None = None
    """Of how many"""


@dataclass(frozen=True, slots=True)
class NotJudged:
    """Something that could not be judged, and why."""

    what: str
    """A rule's name, or a part of what was looked at: `law cache`, `cell 3`"""
    reason: str
    """One line"""
    code: str = ""
    """The rule's code, where it is a rule"""
    place: str = ""
    """The user's file and line, or where in truetune a rule failed"""
    unlock: str = ""
    """The one flag, file or step that would let it be judged"""
    asked: bool = True
    """Was it asked for? If so, the exit code is 3 unless there are findings. Else it is told, and no more."""
    always_told: bool = False
    """Is it told without -v although nobody named it: a log in a folder, which its user thinks was read?"""

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        unlock = f"; {self.unlock}" if self.unlock else ""
        return f"{self.what}: {self.reason}{where}{unlock}"


@dataclass(frozen=True, slots=True)
class Unmet:
    """Why a rule can say nothing about its subject."""

    reason: str
    unlock: str = ""
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """The three parts."""

    findings: tuple[Finding, ...] = ()
    """By severity, then by code"""
    examined: tuple[Examined, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[Judgement]) -> Judgement:
        """All parts joined to one judgement; what two of them could not judge for the same reason
        is said once.
        """
        parts = list(parts)
        return cls(
            sort_findings(finding for part in parts for finding in part.findings),
            # Equal ones once, in their order: a set would lose the order.
            tuple(dict.fromkeys(examined for part in parts for examined in part.examined)),
            tuple(dict.fromkeys(missing for part in parts for missing in part.not_judged)),
        )


def requested_parts_not_judged(parts: Iterable[NotJudged]) -> Iterator[NotJudged]:
    """The parts that could not be judged although they were asked for."""
    return (part for part in parts if part.asked)
