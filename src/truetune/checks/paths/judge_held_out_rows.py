"""Judges the evaluation rows of a run by themselves, beside its training rows.

A run whose training is sound evaluates to nan if the prompts of its evaluation rows fill the length
limit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from truetune.checks.check_data import Progress
from truetune.checks.correct_findings_by_other_files import NAN_OF_EMPTY_BATCHES, NO_LABEL_LEFT
from truetune.checks.findings import Finding
from truetune.checks.judgement import Judgement
from truetune.checks.paths.judge_rows_with_tokenizer_and_template import judge_rows
from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.checks.reports import Report, Subject
from truetune.errors import TruetuneError, format_name_list
from truetune.settings.run_spec import RunSpec


def report_found_evaluation_rows(run: RunSpec, seen: PathsCheck) -> None:
    """Name in the report the evaluation rows that the user did not name and that were found among
    the paths.
    """
    if run.eval_data and run.eval_data != seen.spec.eval_data:
        facts = (("compared with", format_name_list([Path(path).name for path in run.data])),)
        seen.subjects.append(Subject("evaluation rows", ", ".join(run.eval_data), facts))


def judge_rows_and_held_out(
    run: RunSpec, seen: PathsCheck, progress: Progress | None
) -> Report | None:
    """Judge the training rows as `judge_rows` does, and evaluation rows that were found by a
    script, settings or the names of files.
    """
    report = judge_rows(run, seen, progress)
    is_told = seen.is_paired or not seen.spec.eval_data
    if is_told and run.eval_data and not set(run.eval_data) & set(run.data):
        _add_errors_of_held_out_rows(run, seen, report, progress)
    return report


def _add_errors_of_held_out_rows(
    run: RunSpec, seen: PathsCheck, of_training: Report | None, progress: Progress | None
) -> None:
    """Add the errors in rows that are held out; the other findings of rules are about training.

    What the training rows have as well is reported for them alone.
    """
    own = replace(seen, subjects=list(seen.subjects), judged=[])
    try:
        report = judge_rows(
            run.model_copy(update={"data": run.eval_data, "eval_data": ()}), own, progress
        )
    except TruetuneError:
        return  # the comparison with the training rows says what is wrong with the file
    of_rows = Judgement.of([*seen.judged, _judgement_of_report(of_training)])
    known = {finding.code for finding in of_rows.findings}
    findings = Judgement.of([*own.judged, _judgement_of_report(report)]).findings
    fresh = [one for one in findings if one.code not in known]
    errors = [
        _with_note_on_evaluation_rows(one) if one.rule == NO_LABEL_LEFT else one
        for one in fresh
        if one.severity == "error"
    ]
    # A trainer that drops training rows without a label may still evaluate them, which gives nan.
    empty = [one for one in fresh if one.rule == NO_LABEL_LEFT and one.severity != "error"]
    seen.judged.append(Judgement((*errors, *map(_with_note_on_evaluation_rows, empty))))


def _with_note_on_evaluation_rows(finding: Finding) -> Finding:
    """A finding on rows without a label, with the note that these are evaluation rows."""
    return replace(
        finding, evidence=(*finding.evidence, f"these are evaluation rows: {NAN_OF_EMPTY_BATCHES}")
    )


def _judgement_of_report(report: Report | None) -> Judgement:
    """The findings of a report as a judgement; empty if there is no report."""
    return Judgement() if report is None else Judgement(report.findings)
