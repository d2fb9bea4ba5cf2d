"""Judgement: what rules say of one subject, in the three parts of a verdict.

A rule finds something; or examines its subject and finds it fine; or could not judge it, with the reason. Each rule is
judged by itself: one that raises is *not judged*, and the others stand. A rule that has nothing to look at says so
(`Rule.unmet`), so that "no findings" counts only what was examined.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import truetune
from truetune.checks.by_trainer import judged
from truetune.checks.findings import Finding, in_order
from truetune.errors import FastPathError

if TYPE_CHECKING:
    from truetune.checks.rule import Rule
    from truetune.trainers.facts import TrainerFacts

PACKAGE = Path(truetune.__file__).parent
REPORT_IT = "this is a fault of truetune: please report it with this line (TRUETUNE_DEBUG=1 prints the traceback)"


@dataclass(frozen=True, slots=True)
class Examined:
    """One thing that can go wrong, was looked for, and is not there."""

    rule: str
    """kebab-case name"""
    code: str
    looked_for: str
    """The fault, in one line: the title of the rule's page"""
    figure: str = ""
    """What was measured instead: `240 of 240 stop tokens are in the loss`; empty where the rule measures nothing"""


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
        """All parts as one; what two of them could not judge for the same reason is said once."""
        parts = list(parts)
        return cls(
            in_order(finding for part in parts for finding in part.findings),
            tuple(dict.fromkeys(examined for part in parts for examined in part.examined)),
            tuple(dict.fromkeys(missing for part in parts for missing in part.not_judged)),
        )


def judge(kinds: Iterable[type[Rule[Any]]], subject: Any, trainer: TrainerFacts | None = None) -> Judgement:
    """What rules of these classes say of a subject, each by itself; one cause is told once.

    Under a `trainer` whose facts are given, findings are as grave as they are for it.
    """
    kinds = list(kinds)
    return without_moot(Judgement.of(judge_by(kind, subject, trainer) for kind in kinds), kinds)


def without_moot(made: Judgement, kinds: Iterable[type[Rule[Any]]]) -> Judgement:
    """Findings that others explain (`Rule.moot_where`) become evidence of those.

    A finding on rows is explained where each of its rows is one of the other's; one on the whole where the other is
    there at all.
    """
    causes = {kind.name(): kind.moot_where for kind in kinds if kind.moot_where}
    kept = [finding for finding in made.findings if finding.rule not in causes]
    for finding in (finding for finding in made.findings if finding.rule in causes):
        named = (other for other in kept if other.rule in causes[finding.rule])
        cause = next((other for other in named if _covers(other, finding)), None)
        if cause is None:
            kept.append(finding)
        else:
            told = f"so {finding.message} ({finding.rule})"
            kept[kept.index(cause)] = replace(cause, evidence=(*cause.evidence, told))
    return replace(made, findings=in_order(kept))


def _covers(cause: Finding, finding: Finding) -> bool:
    """Are all places of a finding, so far as they are rows, among those of its cause?"""
    rows = {case.origin for case in finding.cases}
    complete = (finding.count or 0) <= len(finding.cases)
    return complete and rows <= {case.origin for case in cause.cases}


def judge_by(kind: type[Rule[Any]], subject: Any, trainer: TrainerFacts | None = None) -> Judgement:
    """What one rule says of a subject. Raises FastPathError alone."""
    try:
        rule = kind(subject)
    except FastPathError:
        raise
    except Exception as error:
        return Judgement(not_judged=(failure(kind, error),))
    return conclude(rule, trainer)


def conclude(rule: Rule[Any], trainer: TrainerFacts | None = None) -> Judgement:
    """What a rule that has seen all of its subject says. What it found before it failed stands."""
    kind, found = type(rule), list[Finding]()
    try:
        for finding in rule.findings():
            found.append(finding)
        if found and trainer is not None:
            return _under(trainer, kind, found)
        if found:
            return Judgement(in_order(found))
        if (unmet := rule.unmet()) is not None:
            return Judgement(not_judged=(not_met(kind, unmet),))
        return Judgement(examined=(Examined(kind.name(), kind.code, kind.title(), rule.figure()),))
    except FastPathError:
        raise
    except Exception as error:
        return Judgement(in_order(found), not_judged=(failure(kind, error),))


def _under(trainer: TrainerFacts, kind: type[Rule[Any]], found: list[Finding]) -> Judgement:
    """The findings as they hold under a trainer; where they are moot, what was found is told as not judged."""
    held = in_order(judged(found, kind.by_trainer, trainer))
    if held:
        return Judgement(held)
    return Judgement(not_judged=(not_met(kind, Unmet(f"it does no harm under {trainer.called}: {found[0].message}")),))


def not_met(kind: type[Rule[Any]], unmet: Unmet) -> NotJudged:
    """A rule whose needs are not met."""
    return NotJudged(kind.name(), unmet.reason, kind.code, unlock=unmet.unlock, asked=unmet.asked)


def failure(kind: type[Rule[Any]], error: Exception) -> NotJudged:
    """A rule that raised."""
    if os.environ.get("TRUETUNE_DEBUG"):
        traceback.print_exception(error)
    told = " ".join(f"{type(error).__name__}: {error}".split())
    return NotJudged(kind.name(), told, kind.code, place=place_of(error), unlock=REPORT_IT)


def place_of(error: BaseException) -> str:
    """The innermost line of truetune that an exception passed: `checks/law/cache.py:41`; empty where it passed none."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(PACKAGE)]
    if not own:
        return ""
    return f"{Path(own[-1].filename).relative_to(PACKAGE).as_posix()}:{own[-1].lineno}"


def missing(parts: Iterable[NotJudged]) -> Iterator[NotJudged]:
    """Those that were asked for."""
    return (part for part in parts if part.asked)
