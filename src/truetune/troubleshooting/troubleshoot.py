"""Goes from a symptom and the user's files to its causes: what proves one comes first, then what is
left to check.

A user knows what they see ("the loss does not fall") and has some files. Every check is run on these files; findings
that prove a cause of this symptom stand before the others. The causes that no rule could prove are listed by how well
they fit the user's words and files (`rank_causes`). The trade-off: a list of likely causes is no verdict, and is said
to be none; it saves reading a guide of thirty.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from truetune.checks.check_data import Progress
from truetune.checks.explain_answers_by_generating_scripts import SYMPTOMS, proven_script_faults
from truetune.checks.explaining.guides import Cause, Guide
from truetune.checks.explaining.recognise_project_traits_behind_causes import READING_OF_TRAIT
from truetune.checks.findings import Finding
from truetune.checks.reports import DataReport, Report, Subject
from truetune.checks.rule_catalogue import find_rule
from truetune.errors import UsageError
from truetune.logs.run_log import RunLog
from truetune.settings.run_spec import RunSpec
from truetune.troubleshooting.check_project import check_project
from truetune.troubleshooting.find_traits_shown_by_project_lines import read_facts_of_project
from truetune.troubleshooting.project_evidence_for_ruling_out_causes import Evidence, read_evidence
from truetune.troubleshooting.project_words import (
    ProjectText,
    read_project_texts,
    word_stems_of_texts,
)
from truetune.troubleshooting.rank_causes import (
    MIN_NAMED_SHARE,
    LikelyCause,
    choose_guides,
    finding_names_cause,
    keep_possible_guides,
    rank_causes,
    rules_that_many_causes_trigger,
    share_of_cause_in_finding,
)
from truetune.troubleshooting.rule_out_causes import find_reason_against
from truetune.troubleshooting.symptom_report import CauseState, JudgedCause, SymptomReport

OF_LOGS = "LOG"
"""How the codes of rules on logs begin"""
# Chosen, not measured: half of what names a cause (MIN_NAMED_WORDS). At half of it, one common word would do.
MIN_NEAR_SHARE = 0.25
"""Share of a cause's words that the nearest finding says"""


def troubleshoot(
    question: str,
    paths: Sequence[str | os.PathLike[str]],
    spec: RunSpec,
    *,
    base: str | None = None,
    progress: Progress | None = None,
) -> SymptomReport:
    """Find what explains a symptom in the files of a project.

    Args:
        question: the symptom in the user's words, or a pasted message.
        paths: scripts, settings, rows, logs, predictions, checkpoints, or folders of them.
        spec: settings that go before those of the files: a tokenizer, a model, chosen rules.
        base: the model that a checkpoint is compared with.
        progress: is told how far it is.

    Raises:
        UsageError: no symptom or no path is given.
        TruetuneError: a path is nothing that can be judged, or can't be read.
    """
    if not question.strip():
        raise UsageError("what do you see? Say it in a few words: 'the loss does not fall'")
    if not paths:
        raise UsageError("name the files or the folder of the run that has this symptom")
    started = time.perf_counter()
    report = check_project(paths, spec, base=base, progress=progress)
    texts = read_project_texts(paths)
    logs = [subject.log for subject in report.subjects if subject.log is not None]
    guides, causes = choose_guides_and_judge_causes(question, texts, logs, report)
    explaining, others = _split_findings_that_explain_symptom(report, guides)
    return SymptomReport(
        spec=report.spec,
        subjects=(*report.subjects, *_subject_of_rows(report)),
        findings=(*explaining, *others),
        examined=report.examined,
        not_judged=report.not_judged,
        known=report.known,
        seconds=time.perf_counter() - started,
        question=question,
        guides=tuple(guide.name for guide, _ in guides),
        near_guides=tuple(guide.name for guide, share in guides if share >= MIN_NAMED_SHARE),
        explaining=len(explaining),
        causes=causes,
    )


def _subject_of_rows(report: Report) -> tuple[Subject, ...]:
    """The rows of a report that is on rows itself, as one of its subjects."""
    if not isinstance(report, DataReport) or not report.rows:
        return ()
    files = ", ".join(map(str, report.spec.data))
    facts = (("rows", f"{report.rows:,}"), ("read with", report.tokenizer))
    return (Subject("data", files, facts),)


def choose_guides_and_judge_causes(
    question: str, texts: Sequence[ProjectText], logs: Sequence[RunLog | None], report: Report
) -> tuple[tuple[tuple[Guide, float], ...], tuple[JudgedCause, ...]]:
    """The guides on a symptom that a project can have, and what its texts, logs and findings say of their causes."""
    facts = read_facts_of_project(question, texts)
    guides = keep_possible_guides(choose_guides(question), facts)
    likely = rank_causes(guides, question, word_stems_of_texts(texts), facts)
    return guides, judge_causes(likely, report, read_evidence(question, texts, logs))


def judge_causes(
    likely: Sequence[LikelyCause], report: Report, evidence: Evidence
) -> tuple[JudgedCause, ...]:
    """What a report says of each cause: those that were found first, then open ones, each in the
    order given.

    A listed cause that was looked for and not found keeps its place among the open ones: rules see some of the ways in
    which a fault is written, and a symptom without a finding is their very gap. One that is the fault of a single rule,
    which examined these files and did not find it, comes last.
    """
    findings_by_rule = _findings_by_rule(report.findings)
    examined = {examined.rule for examined in report.examined}
    nearest = _causes_nearest_to_finding_words(likely, findings_by_rule)
    judged = [
        (one, _judge_cause(one, findings_by_rule, examined, evidence, nearest)) for one in likely
    ]
    judged.sort(key=lambda pair: _rank_found_open_or_lacking(*pair))
    return tuple(one for _, one in judged)


def _rank_found_open_or_lacking(likely: LikelyCause, judged_cause: JudgedCause) -> int:
    """0 for what was found, 1 for what is open, 2 for what lacks a thing or what a rule of its own did not find."""
    if judged_cause.state == "found":
        return 0
    is_searched = judged_cause.state == "looked for" and not likely.is_listed
    return 2 if judged_cause.lacking or is_searched else 1


def _findings_by_rule(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    """The findings of each rule that fired."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    return by_rule


def _causes_nearest_to_finding_words(
    likely: Sequence[LikelyCause], found: Mapping[str, Sequence[Finding]]
) -> frozenset[tuple[str, str]]:
    """(rule, text) of the causes that are nearest to the words of a finding which many causes name
    as their proof.

    A finding on code or rows is a fault, and so the cause of the symptom in one of these ways: of the nearest ones the
    list does not say that nothing proves them. A log's finding is a symptom, which any of its causes may have.
    """
    nearest: set[tuple[str, str]] = set()
    for rule in found.keys() & rules_that_many_causes_trigger():
        faults = [one for one in found[rule] if not one.code.startswith(OF_LOGS)]
        if not faults:
            continue
        shares = {
            one.cause.text: max(share_of_cause_in_finding(finding, one.cause) for finding in faults)
            for one in likely
            if rule in one.cause.rules
        }
        best = max(shares.values(), default=0.0)
        if best >= MIN_NEAR_SHARE:
            nearest |= {(rule, text) for text, share in shares.items() if share >= best / 2}
    return frozenset(nearest)


def _judge_cause(
    likely: LikelyCause,
    found: Mapping[str, Sequence[Finding]],
    examined: set[str],
    evidence: Evidence,
    nearest: frozenset[tuple[str, str]],
) -> JudgedCause:
    """Judge one cause by the rules that fired and those that found nothing, and by what speaks
    against it.

    What a rule found stays, whatever lines say.
    """
    rules = likely.cause.rules
    firing = _rules_that_prove(likely.cause, found, nearest)
    if firing:
        return JudgedCause(likely.cause, likely.guide, "found", firing, likely.lines)
    against = find_reason_against(f"{likely.cause.text}\n{likely.cause.seen}", evidence)
    if against:
        return JudgedCause(
            likely.cause, likely.guide, "ruled out", rules, likely.lines, against=against
        )
    # What fired, and is about another of its causes, is no proof that is still to come.
    rules = tuple(rule for rule in rules if rule not in found) or rules
    was_looked_for = bool(rules) and examined.issuperset(rules)
    state: CauseState = "looked for" if was_looked_for else "open"
    # A rule has read the lines that only show what the cause takes. Those that show the cause itself stay: a fault that
    # is left without a finding is mostly written in a form that its rule does not read.
    lines = likely.sign_lines if was_looked_for else likely.lines
    lacking = sorted(READING_OF_TRAIT[trait].label for trait in likely.lacking)
    return JudgedCause(likely.cause, likely.guide, state, rules, lines, lacking=tuple(lacking))


def _rules_that_prove(
    cause: Cause, found: Mapping[str, Sequence[Finding]], nearest: frozenset[tuple[str, str]]
) -> tuple[str, ...]:
    """The rules of a cause whose findings say that it is this cause, or are nearest to its words."""
    return tuple(
        rule
        for rule in cause.rules
        if _do_findings_prove_cause(rule, found.get(rule, ()), cause)
        or (rule, cause.text) in nearest
    )


def _do_findings_prove_cause(rule: str, findings: Sequence[Finding], cause: Cause) -> bool:
    """Do the findings of a rule say that it is this cause?

    A rule that sees what many causes lead to (`run-ended-in-an-exception`) tells by its words alone which one it is.
    """
    if rule not in rules_that_many_causes_trigger():
        return bool(findings)
    return any(finding_names_cause(finding, cause) for finding in findings)


def _split_findings_that_explain_symptom(
    report: Report, guides: Sequence[tuple[Guide, float]]
) -> tuple[list[Finding], list[Finding]]:
    """(findings that explain the symptom, the others), both by severity.

    Of those that explain, errors come first, then the ones of the guides that fit best; of the others, faults that
    show as another symptom come last: a loop that asks row by row is slow, and no answer to a question on accuracy.
    """
    near = [(guide, share) for guide, share in guides if share >= MIN_NAMED_SHARE]
    explaining = [
        finding for finding in report.findings if _proves_cause_of_guides(finding, guides)
    ]
    # A proven error is no less of a cause for a guide that fits the words a little less.
    explaining.sort(
        key=lambda finding: (
            finding.severity != "error",
            not _proves_cause_of_guides(finding, near),
            # A note is a fact beside the fault, not one that explains what users see.
            finding.severity == "info",
        )
    )
    explaining = _faults_of_asking_script_first(explaining, report)
    others = [finding for finding in report.findings if finding not in explaining]
    others.sort(key=_shows_as_another_symptom)
    return explaining, others


def _faults_of_asking_script_first(explaining: list[Finding], report: Report) -> list[Finding]:
    """The findings that explain, those on the script that asked the model first, where answers show
    the symptom.

    Such a fault is the cause of what the answers show, in whatever words a user tells of them.
    """
    if not any(finding.rule in SYMPTOMS for finding in explaining):
        return explaining
    causes = proven_script_faults(report.findings)
    return [*causes, *(finding for finding in explaining if finding not in causes)]


def _shows_as_another_symptom(finding: Finding) -> bool:
    """Does a finding that explains nothing here, and is no error, show as a symptom that some guide lists?"""
    return finding.severity != "error" and bool(find_rule(finding.rule).symptoms)


def _proves_cause_of_guides(finding: Finding, guides: Sequence[tuple[Guide, float]]) -> bool:
    """Does a finding prove a cause of one of these guides, or does its rule name one of them as what users see?"""
    names = {guide.name for guide, _ in guides}
    rules = {rule for guide, _ in guides for cause in guide.causes for rule in cause.rules}
    return finding.rule in rules or not names.isdisjoint(find_rule(finding.rule).symptoms)
