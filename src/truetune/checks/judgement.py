"""Judgement: what rules say of one subject, in the three parts of a verdict.

A rule finds something; or examines its subject and finds it fine; or could not judge it, with the reason. Each rule is
judged by itself: one that raises is *not judged*, and the others stand. A rule that has nothing to look at says so
(`Rule.unmet`), so that "no findings" counts only what was examined.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truetune.checks.by_trainer import findings_under_trainer
from truetune.checks.findings import RANK, Finding, in_order
from truetune.errors import FastPathError
from truetune.package import PACKAGE_FOLDER

if TYPE_CHECKING:
    from truetune.checks.measurement import Measurement
    from truetune.checks.rule import Rule
    from truetune.data.conversation import Origin
    from truetune.trainers.trainer_facts import TrainerFacts

PACKAGE = PACKAGE_FOLDER
REPORT_IT = (
    "this is a fault of truetune: please report it with this line (TRUETUNE_DEBUG=1 prints the"
    " traceback)"
)


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


def judge(
    kinds: Iterable[type[Rule[Any]]], subject: Any, trainer: TrainerFacts | None = None
) -> Judgement:
    """What rules of these classes say of a subject, each by itself; one cause is told once.

    Under a `trainer` whose facts are given, findings are as grave as they are for it.
    """
    kinds = list(kinds)
    return without_moot(Judgement.of(judge_by(kind, subject, trainer) for kind in kinds), kinds)


def without_moot(made: Judgement, kinds: Iterable[type[Rule[Any]]]) -> Judgement:
    """Findings that others explain (`Rule.moot_where`) become evidence of those, which are as grave as both.

    A finding that counts rows is explained where each of them is one of some other's; one on the whole where another is
    there at all. Where only some of its rows are explained it stays, and says which. A finding that is explained itself
    explains no third one: that one names the cause as well.
    """
    causes = {kind.name(): kind.moot_where for kind in kinds if kind.moot_where}
    kept = [finding for finding in made.findings if finding.rule not in causes]
    dependent = [finding for finding in made.findings if finding.rule in causes]
    for finding in sorted(dependent, key=lambda finding: _depth(finding.rule, causes)):
        named = [other for other in kept if other.rule in causes[finding.rule]]
        explained = [
            (other, _shared(other, finding)) for other in named if _bears_on(other, finding)
        ]
        if explained and _is_whole(finding, set().union(*(rows for _, rows in explained))):
            cause, _ = max(explained, key=lambda pair: len(pair[1]))
            severity = max(cause.severity, finding.severity, key=RANK.__getitem__)
            told = _with_evidence(cause, f"so {finding.message} ({finding.rule})")
            kept[kept.index(cause)] = replace(told, severity=severity)
        else:
            kept.append(
                _with_evidence(finding, *(_told_rows(cause, rows) for cause, rows in explained))
            )
    return replace(made, findings=in_order(kept))


def _told_rows(cause: Finding, rows: set[Origin]) -> str:
    return f"{cause.rule} explains {len(rows):,} of these rows"


def _with_evidence(finding: Finding, *lines: str) -> Finding:
    """The finding with these lines, each once."""
    return replace(finding, evidence=tuple(dict.fromkeys((*finding.evidence, *lines))))


def _depth(rule: str, causes: Mapping[str, tuple[str, ...]], seen: tuple[str, ...] = ()) -> int:
    """How many rules stand between this one and a cause that nothing explains."""
    below = (cause for cause in causes.get(rule, ()) if cause in causes and cause not in seen)
    return 1 + max((_depth(cause, causes, (*seen, rule)) for cause in below), default=0)


def _rows_of(finding: Finding) -> set[Origin]:
    """The rows that it counts; none where it is about the whole, and its places are examples."""
    if finding.count is None:
        return set()
    return {case.origin for case in finding.cases if case.origin is not None}


def _shared(cause: Finding, finding: Finding) -> set[Origin]:
    return {case.origin for case in cause.cases if case.origin is not None} & _rows_of(finding)


def _bears_on(cause: Finding, finding: Finding) -> bool:
    """Has it rows in common with a finding, or is that one about no rows?"""
    return not _rows_of(finding) or bool(_shared(cause, finding))


def _is_whole(finding: Finding, explained: set[Origin]) -> bool:
    """Are all rows of a finding explained? Those beyond the places that it keeps are not known to be."""
    rows = _rows_of(finding)
    return not rows or (rows <= explained and (finding.count or 0) <= len(finding.cases))


def judge_by(kind: type[Rule[Any]], subject: Any, trainer: TrainerFacts | None = None) -> Judgement:
    """What one rule says of a subject. Raises FastPathError alone."""
    try:
        rule = kind(subject)
    except FastPathError:
        raise
    except Exception as error:
        return Judgement(not_judged=(failure(kind, error),))
    return conclude(rule, trainer)


def conclude(
    rule: Rule[Any], trainer: TrainerFacts | None = None, lacking: Unmet | None = None
) -> Judgement:
    """What a rule that has seen all of its subject says. What it found before it failed stands.

    `lacking` is what the caller knows that the subject lacks for this rule; it is told where the rule found nothing.
    """
    kind, found = type(rule), list[Finding]()
    try:
        for finding in rule.findings():
            found.append(finding)
        if found and trainer is not None:
            return _under(trainer, kind, found)
        if found:
            return Judgement(in_order(found))
        if (unmet := lacking or rule.unmet()) is not None:
            return Judgement(not_judged=(not_met(kind, unmet),))
        return _examined(kind, rule.figure())
    except FastPathError:
        raise
    except Exception as error:
        return Judgement(in_order(found), not_judged=(failure(kind, error),))


def _examined(kind: type[Rule[Any]], figure: Measurement | str) -> Judgement:
    """A rule that found nothing, with what it measured; not judged where there was nothing to measure."""
    if isinstance(figure, str):
        return Judgement(examined=(Examined(kind.name(), kind.code, kind.title(), figure),))
    if figure.of == 0:
        return Judgement(
            not_judged=(not_met(kind, Unmet(f"there is nothing to count ({figure.text})")),)
        )
    return Judgement(
        examined=(
            Examined(kind.name(), kind.code, kind.title(), figure.text, figure.count, figure.of),
        )
    )


def _under(trainer: TrainerFacts, kind: type[Rule[Any]], found: list[Finding]) -> Judgement:
    """The findings as they hold under a trainer; where they are moot, what was found is told as not judged."""
    held = in_order(findings_under_trainer(found, kind.by_trainer, trainer))
    if held:
        return Judgement(held)
    return Judgement(
        not_judged=(
            not_met(kind, Unmet(f"it does no harm under {trainer.called}: {found[0].message}")),
        )
    )


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
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(PACKAGE)
    ]
    if not own:
        return ""
    return f"{Path(own[-1].filename).relative_to(PACKAGE).as_posix()}:{own[-1].lineno}"


def missing(parts: Iterable[NotJudged]) -> Iterator[NotJudged]:
    """Those that were asked for."""
    return (part for part in parts if part.asked)
