"""Runs rules: chooses those of a subject, lets each judge it, and tells one cause once.

Each rule runs by itself. One that raises is not judged, and the others stand: a fault in one of hundreds of rules must
not cost the user the verdict of all. What several rules found of one
cause becomes one finding (`merge_explained_findings_into_causes`).
The rules on data see their rows in batches, so `run_data_rules` drives them, and ends with the same functions.

Trade-off: a failure shows as one line of a report instead of a traceback (TRUETUNE_DEBUG=1 prints it).
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from truetune.checks.findings import RANK, Finding, sort_findings
from truetune.checks.judgement import Examined, Judgement, NotJudged, Unmet
from truetune.checks.measurement_without_findings import Measurement
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import select_rules, stations_of_rule_class
from truetune.checks.severity_by_trainer import adjust_severities_to_trainer
from truetune.data.conversation import Origin
from truetune.errors import FastPathError
from truetune.package import PACKAGE_FOLDER
from truetune.settings.run_spec import RunSpec
from truetune.trainers.trainer_fact_types import TrainerFacts

REPORT_IT = (
    "this is a fault of truetune: please report it with this line (TRUETUNE_DEBUG=1 prints the"
    " traceback)"
)
SomeRule = TypeVar("SomeRule", bound=Rule[Any])


def all_rules_of_classes(*kinds: type[SomeRule]) -> list[type[SomeRule]]:
    """All rules of these classes that there are, by code; `choose_rules` gives those that a run selects."""
    return choose_rules(RunSpec(), *kinds)


def choose_rules(spec: RunSpec, *kinds: type[SomeRule]) -> list[type[SomeRule]]:
    """The rules on one subject that `spec` selects, by code.

    Args:
        spec: `select` and `ignore` name rules, codes or their beginnings.
        kinds: the classes of rules that take the subject, `LogRule` for a run's log; or one rule.

    Raises:
        UsageError: `spec` names a rule that there is not.
    """
    # A plug-in may give a rule the family of a station whose subject it does not take. It can judge nothing there.
    stations = [station for kind in kinds for station in stations_of_rule_class(kind)]
    chosen = select_rules(spec.select, spec.ignore, *stations)
    return [rule for rule in chosen if issubclass(rule, kinds)]


def run_rules(
    subject: Any, rules: Iterable[type[Rule[Any]]], trainer: TrainerFacts | None = None
) -> Judgement:
    """What these rules say of a subject, each by itself; one cause is told once.

    Args:
        subject: what they look at: the run's log, the checkpoint, ...
        rules: as `choose_rules` gives them.
        trainer: findings are as grave as they are under it; None: as the rules say.

    Returns:
        Findings, what was examined and is fine, and what could not be judged.
    """
    rules = list(rules)
    judgement = Judgement.of(run_rule(subject, rule, trainer) for rule in rules)
    return merge_explained_findings_into_causes(judgement, rules)


def join_equal_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, in which those of one rule that say the same of several files are one, with the
    places of all.

    Two configurations of a project share most of their lines, and so their faults. Findings with a
    fix stay apart, for a fix is of one file.
    """
    joined: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        key: tuple[object, ...] = (finding.rule, finding.severity, finding.message, finding.remedy)
        if finding.fix is not None or finding.figure is not None:
            key = (*key, len(joined))
        earlier = joined.get(key)
        joined[key] = finding if earlier is None else _merge_equal_finding(earlier, finding)
    return tuple(joined.values())


def _merge_equal_finding(finding: Finding, other: Finding) -> Finding:
    """A finding with the places and the evidence of an equal one besides, and the counts of both."""
    has_counts = finding.count is not None and other.count is not None
    return replace(
        finding,
        cases=tuple(dict.fromkeys((*finding.cases, *other.cases))),
        evidence=tuple(dict.fromkeys((*finding.evidence, *other.evidence))),
        count=(finding.count or 0) + (other.count or 0) if has_counts else finding.count,
    )


def merge_explained_findings_into_causes(
    judgement: Judgement, kinds: Iterable[type[Rule[Any]]]
) -> Judgement:
    """Findings that others explain (`Rule.moot_where`) become evidence of those, which are as grave as both.

    A finding that counts rows is explained where each of them is one of some other's; one on the whole where another is
    there at all. Where only some of its rows are explained it stays, and says which. A finding that is explained itself
    explains no third one: that one names the cause as well.
    """
    causes = {kind.name(): kind.moot_where for kind in kinds if kind.moot_where}
    kept = [finding for finding in judgement.findings if finding.rule not in causes]
    dependent = [finding for finding in judgement.findings if finding.rule in causes]
    # Causes first: a finding in the middle of a chain has to be settled before what it would explain.
    for finding in sorted(dependent, key=lambda finding: _depth_of_causes(finding.rule, causes)):
        explained = _causes_of_finding_with_shared_rows(finding, kept, causes[finding.rule])
        rows = set[Origin]().union(*(shared for _, shared in explained))
        if explained and _are_all_rows_explained(finding, rows):
            # One finding gets the evidence: that which explains most rows. Told of each, it would count twice.
            cause, _ = max(explained, key=lambda pair: len(pair[1]))
            kept[kept.index(cause)] = _cause_with_finding_as_evidence(cause, finding)
        else:
            partly = (_explained_rows_in_words(cause, shared) for cause, shared in explained)
            kept.append(_with_evidence(finding, *partly))
    return replace(judgement, findings=sort_findings(kept))


def _causes_of_finding_with_shared_rows(
    finding: Finding, others: Iterable[Finding], names: Container[str]
) -> list[tuple[Finding, set[Origin]]]:
    """The findings of rules of these names that bear on a finding, each with the rows that both count."""
    return [
        (other, _shared_rows(other, finding))
        for other in others
        if other.rule in names and _shares_rows_or_is_general(other, finding)
    ]


def _cause_with_finding_as_evidence(cause: Finding, finding: Finding) -> Finding:
    """A cause with what follows from it as evidence, as grave as the graver of both."""
    severity = max(cause.severity, finding.severity, key=RANK.__getitem__)
    as_evidence = _with_evidence(cause, f"so {finding.message} ({finding.rule})")
    return replace(as_evidence, severity=severity)


def _explained_rows_in_words(cause: Finding, rows: set[Origin]) -> str:
    """How many rows of a finding a cause explains, in words."""
    return f"{cause.rule} explains {len(rows):,} of these rows"


def _with_evidence(finding: Finding, *lines: str) -> Finding:
    """The finding with these lines, each once."""
    return replace(finding, evidence=tuple(dict.fromkeys((*finding.evidence, *lines))))


def _depth_of_causes(
    rule: str, causes: Mapping[str, tuple[str, ...]], seen: tuple[str, ...] = ()
) -> int:
    """How many causes lie above a rule on the longest way, counting the rule itself: 1 if nothing
    explains it.
    """
    below = (cause for cause in causes.get(rule, ()) if cause in causes and cause not in seen)
    return 1 + max((_depth_of_causes(cause, causes, (*seen, rule)) for cause in below), default=0)


def _rows_counted_by_finding(finding: Finding) -> set[Origin]:
    """The rows that it counts; none where it is about the whole, and its places are examples."""
    if finding.count is None:
        return set()
    return {case.origin for case in finding.cases if case.origin is not None}


def _shared_rows(cause: Finding, finding: Finding) -> set[Origin]:
    """The rows that a cause and a finding have in common."""
    return {
        case.origin for case in cause.cases if case.origin is not None
    } & _rows_counted_by_finding(finding)


def _shares_rows_or_is_general(cause: Finding, finding: Finding) -> bool:
    """Does a cause share rows with a finding, or is that finding about no rows in particular?"""
    return not _rows_counted_by_finding(finding) or bool(_shared_rows(cause, finding))


def _are_all_rows_explained(finding: Finding, explained: set[Origin]) -> bool:
    """Are all rows of a finding explained? Those beyond the places that it keeps are not known to be."""
    rows = _rows_counted_by_finding(finding)
    return not rows or (rows <= explained and (finding.count or 0) <= len(finding.cases))


def run_rule(subject: Any, kind: type[Rule[Any]], trainer: TrainerFacts | None = None) -> Judgement:
    """What one rule says of a subject. Raises FastPathError alone."""
    try:
        rule = kind(subject)
    except FastPathError:
        # A fast path that gave another result than the exact one voids the whole pass: the caller runs it again.
        raise
    except Exception as error:
        return Judgement(not_judged=(not_judged_since_failed(kind, error),))
    return conclude_rule(rule, trainer)


def conclude_rule(
    rule: Rule[Any], trainer: TrainerFacts | None = None, lacking: Unmet | None = None
) -> Judgement:
    """What a rule that has seen all of its subject says. What it found before it failed stands.

    `lacking` is what the caller knows that the subject lacks for this rule; it is told where the rule found nothing.
    """
    kind, findings = type(rule), list[Finding]()
    try:
        for finding in rule.findings():
            # Not a comprehension: what was found before the rule raised has to stand.
            findings.append(finding)
        if findings and trainer is not None:
            return _judgement_under_trainer(trainer, kind, findings)
        if findings:
            return Judgement(sort_findings(findings))
        unmet = lacking or rule.unmet()
        if unmet is not None:
            return Judgement(not_judged=(not_judged_since_unmet(kind, unmet),))
        return _judgement_of_rule_without_findings(kind, rule.measurement_if_clean())
    except FastPathError:
        raise
    except Exception as error:
        return Judgement(
            sort_findings(findings), not_judged=(not_judged_since_failed(kind, error),)
        )


def _judgement_of_rule_without_findings(
    kind: type[Rule[Any]], figure: Measurement | str
) -> Judgement:
    """A rule that found nothing, with what it measured; not judged where there was nothing to measure."""
    if isinstance(figure, str):
        return Judgement(examined=(Examined(kind.name(), kind.code, kind.title(), figure),))
    if figure.of == 0:
        return Judgement(
            not_judged=(
                not_judged_since_unmet(kind, Unmet(f"there is nothing to count ({figure.text})")),
            )
        )
    return Judgement(
        examined=(
            Examined(kind.name(), kind.code, kind.title(), figure.text, figure.count, figure.of),
        )
    )


def _judgement_under_trainer(
    trainer: TrainerFacts, kind: type[Rule[Any]], findings: list[Finding]
) -> Judgement:
    """The findings as they hold under a trainer; where they are moot, what was found is told as not judged."""
    held = sort_findings(adjust_severities_to_trainer(findings, kind.by_trainer, trainer))
    if held:
        return Judgement(held)
    return Judgement(
        not_judged=(
            not_judged_since_unmet(
                kind,
                Unmet(f"it does no harm under {trainer.name_in_reports}: {findings[0].message}"),
            ),
        )
    )


def not_judged_since_unmet(kind: type[Rule[Any]], unmet: Unmet) -> NotJudged:
    """A rule as not judged, with what its subject lacks."""
    return NotJudged(kind.name(), unmet.reason, kind.code, unlock=unmet.unlock, asked=unmet.asked)


def not_judged_since_failed(kind: type[Rule[Any]], error: Exception) -> NotJudged:
    """A rule as not judged, because it raised this error."""
    if os.environ.get("TRUETUNE_DEBUG"):
        traceback.print_exception(error)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return NotJudged(
        kind.name(),
        text,
        kind.code,
        place=innermost_truetune_line_of_error(error),
        unlock=REPORT_IT,
    )


def innermost_truetune_line_of_error(error: BaseException) -> str:
    """The innermost line of truetune that an exception passed: `checks/law/cache.py:41`; empty where it passed none."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(PACKAGE_FOLDER)
    ]
    if not own:
        return ""
    return f"{Path(own[-1].filename).relative_to(PACKAGE_FOLDER).as_posix()}:{own[-1].lineno}"
