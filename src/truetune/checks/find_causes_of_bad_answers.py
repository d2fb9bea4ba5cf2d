"""Finds the causes of a finished model's answers, by rules on what was measured of the model and
rules on its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from truetune.checks.cause.rival_causes import list_tried_and_untried_rivals
from truetune.checks.findings import RANK, Finding, sort_findings
from truetune.checks.inspect_checkpoint import checkpoint_report
from truetune.checks.judgement import Judgement
from truetune.checks.rule import AnswersRule, CauseRule, CheckpointRule, Spoiled
from truetune.checks.rule_runner import all_rules_of_classes, choose_rules, run_rules
from truetune.errors import TruetuneError
from truetune.generation.evidence_on_causes_of_answers import ModelEvidence
from truetune.settings.run_spec import RunSpec


def is_symptom_explained(symptom: Finding, causes: Iterable[Finding]) -> bool:
    """Does one of these causes explain the symptom?"""
    spoiled = _spoiled_parts(causes)
    return any(
        rule.name() == symptom.rule and not spoiled.isdisjoint(rule.explained_by)
        for rule in all_rules_of_classes(AnswersRule)
    )


def _spoiled_parts(causes: Iterable[Finding]) -> set[Spoiled]:
    """What of the model is spoiled, as the findings on causes and on files say."""
    names = {cause.rule for cause in causes}
    return {
        rule.spoils
        for rule in all_rules_of_classes(CauseRule)
        if rule.spoils is not None and not names.isdisjoint((rule.name(), *rule.file_rules))
    }


def find_causes(inquest: ModelEvidence, spec: RunSpec | None = None) -> Judgement:
    """What the rules that `spec` selects say; what two of them find is said once, by the one that looked at the files.

    The other's message becomes its evidence.
    """
    spec = spec or RunSpec()
    judgement = run_rules(inquest, choose_rules(spec, CauseRule))
    files = _findings_on_files(inquest, spec)
    explained = _measured_rules_explained_by_files(judgement.findings, files)
    rivals = list_tried_and_untried_rivals(inquest)
    # What two rules find is one cause: that on the files is the one that can be fixed.
    kept = [
        replace(finding, evidence=(*finding.evidence, *rivals))
        for finding in judgement.findings
        if finding.rule not in explained
    ]
    return replace(
        judgement,
        findings=sort_findings(
            [*kept, *(_with_measured_evidence(one, judgement.findings) for one in files)]
        ),
    )


def _measured_rules_explained_by_files(
    measured: Sequence[Finding], files: Sequence[Finding]
) -> set[str]:
    """Names of the rules on causes whose findings a file explains, or follow from what is spoiled."""
    in_files = {finding.rule for finding in files}
    spoiled = _spoiled_parts((*measured, *files))
    return {
        rule.name()
        for rule in all_rules_of_classes(CauseRule)
        if not in_files.isdisjoint(rule.file_rules) or not spoiled.isdisjoint(rule.explained_by)
    }


def _with_measured_evidence(file: Finding, measured: Iterable[Finding]) -> Finding:
    """A finding on the files, with what was measured of the same cause as evidence."""
    same = {rule.name() for rule in all_rules_of_classes(CauseRule) if file.rule in rule.file_rules}
    more = [finding.message for finding in measured if finding.rule in same]
    return replace(file, evidence=(*file.evidence, *more)) if more else file


def _findings_on_files(inquest: ModelEvidence, spec: RunSpec) -> list[Finding]:
    """What the rules on files find that may change answers; nothing without a folder."""
    if inquest.folder is None or inquest.kind not in ("model", "adapter"):
        return []
    try:
        report = checkpoint_report(inquest.folder, base=inquest.base_folder, spec=spec)
    # A checkpoint that can't be read has had its error where it was loaded; the measured causes stand without it.
    except TruetuneError:
        return []
    harmless = {
        rule.name() for rule in all_rules_of_classes(CheckpointRule) if not rule.changes_answers
    }
    return [
        finding
        for finding in report.findings
        if finding.rule not in harmless and RANK[finding.severity] >= RANK["warning"]
    ]
