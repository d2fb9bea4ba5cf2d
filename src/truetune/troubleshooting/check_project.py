"""Checks all that a project holds: rows, scripts, settings and logs, and the answers of a model
among the files.

Answers are judged by another package than rows, scripts and logs, and take other packages to load. So files of
predictions are told by their columns first, and only where there is one is that package loaded. The trade-off: a file
whose columns do not say that a model wrote them is taken for rows, as before; `truetune score` names the column.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from truetune.checks.check_data import Progress
from truetune.checks.check_paths import check_paths
from truetune.checks.explain_answers_by_generating_scripts import explain_answers_by_scripts
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.paths.choose_judged_rows_of_folder import ANSWERS
from truetune.checks.put_row_cuts_before_endless_answers import put_cuts_before_answers
from truetune.checks.put_training_faults_before_answers import put_training_before_answers
from truetune.checks.reports import Report, Subject, add_judgement
from truetune.checks.rule_runner import join_equal_findings
from truetune.data.tell_training_files_from_predictions import list_prediction_files
from truetune.errors import DataError, TruetuneError
from truetune.fixing.put_tried_edits_into_findings import with_suggested_edits
from truetune.settings.run_spec import RunSpec

RULE_SETTINGS = ("select", "ignore", "fail_on", "allow_unjudged")
"""Settings of a run that say which rules are asked, and what fails"""
# Chosen: a folder of more is an archive of evaluations, and each file takes about a second.
MAX_PREDICTION_FILES = 4


def check_project(
    paths: Sequence[str | os.PathLike[str]],
    spec: RunSpec,
    *,
    settings: Path | None = None,
    base: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check each path: say what it is and what is wrong with it, predictions of a model included.

    Args:
        paths: files and folders; without one, what `spec` names.
        spec: settings of the run, and which rules are asked.
        settings: the truetune.yaml that `spec` comes from.
        base: the model that a checkpoint is compared with.
        progress: is told how far it is.

    Raises:
        TruetuneError: a path is nothing that can be judged, or can't be read.
    """
    named = [os.fspath(path) for path in paths]
    predictions = list_prediction_files(named)
    others = [path for path in named if path not in predictions]
    if predictions and not others and len(predictions) == 1:
        return _report_on_answers_in_file(predictions[0], spec)
    of_files = _judge_answer_files_together(named, spec)
    try:
        report = with_suggested_edits(
            check_paths(others, spec, settings=settings, base=base, progress=progress)
        )
    except DataError as error:
        # Verdicts and answers of two models are no rows: that they can't be read as such hides nothing.
        if not of_files.judgement.examined and not of_files.judgement.findings:
            raise
        unread = NotJudged("the rows", str(error), asked=False)
        report = Report(spec=spec, findings=(), seconds=0, not_judged=(unread,))
    for file in predictions[:MAX_PREDICTION_FILES]:
        report = _add_report_on_answers_file(report, file, spec)
    whole = _add_answer_files_judgement(report, of_files)
    findings = explain_answers_by_scripts(whole.findings, others)
    ordered = put_cuts_before_answers(put_training_before_answers(findings))
    return replace(whole, findings=tuple(ordered))


class _AnswerFilesJudgement(NamedTuple):
    """What rules say of verdicts of a judge and of two models' answers."""

    judgement: Judgement
    subjects: tuple[Subject, ...]


def _judge_answer_files_together(named: Sequence[str], spec: RunSpec) -> _AnswerFilesJudgement:
    """What the rules say of the answer files among the paths: verdicts of a judge, and answers of two models."""
    from truetune.evaluation.judge_files_on_two_models import judge_answer_files

    return _AnswerFilesJudgement(*judge_answer_files(named, spec))


def _add_answer_files_judgement(report: Report, of_files: _AnswerFilesJudgement) -> Report:
    """The report, with what the rules say of the answer files together; what a single file says already is not said
    again.
    """
    known = {(finding.code, finding.message) for finding in report.findings}
    fresh = tuple(
        one for one in of_files.judgement.findings if (one.code, one.message) not in known
    )
    joined = replace(report, subjects=(*report.subjects, *of_files.subjects))
    return add_judgement(joined, replace(of_files.judgement, findings=fresh))


def _report_on_answers_in_file(file: str, spec: RunSpec) -> Report:
    """The report on the answers in one file. Raises TruetuneError where they can't be read."""
    from truetune.evaluation.score_predictions import score

    chosen = {name: getattr(spec, name) for name in RULE_SETTINGS if name in spec.model_fields_set}
    return score(file, **chosen)


def _add_report_on_answers_file(report: Report, file: str, spec: RunSpec) -> Report:
    """The report, with the report on the answers in one file added."""
    try:
        scored = _report_on_answers_in_file(file, spec)
    except TruetuneError as error:
        # The file was found in a folder: that it can't be read must not hide what is wrong beside it.
        unread = NotJudged("the answers", str(error), place=file, unlock=f"truetune score {file}")
        return add_judgement(report, Judgement(not_judged=(unread,)))
    still_unjudged = tuple(
        part for part in report.not_judged if (part.what, part.place) != (ANSWERS, file)
    )
    joined = replace(
        report,
        not_judged=still_unjudged,
        subjects=(*report.subjects, *scored.subjects),
        seconds=report.seconds + scored.seconds,
    )
    whole = add_judgement(joined, Judgement(scored.findings, scored.examined, scored.not_judged))
    # What is about two files, or is the same of both, is said once, with the places of both.
    return replace(whole, findings=join_equal_findings(whole.findings))
