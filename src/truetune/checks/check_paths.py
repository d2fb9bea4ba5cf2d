"""Checks the named paths as one run: what each is, its own check, and one report on all rows at the
end.

Settings, scripts and rows among the paths belong to one run: settings and scripts say who trains
and how, and that decides how grave the findings on the rows are. So each path is checked first
(`paths.check_path`), which also notes what it says of the run; then the rows of the run are judged
(`paths.judge_run_rows`). At last, findings of several files that have one cause become one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from truetune.checks.check_data import Progress
from truetune.checks.correct_findings_by_other_files import reconcile_findings
from truetune.checks.drop_pad_finding_settled_by_script import drop_pad_finding_set_by_scripts
from truetune.checks.find_uses_of_weight_folders import find_weight_uses
from truetune.checks.judge_settings import judge_settings
from truetune.checks.judgement import Judgement
from truetune.checks.paths.check_path import check_path
from truetune.checks.paths.judge_run_rows import judge_run_or_note_unreadable
from truetune.checks.paths.path_kinds import holds_only_rows
from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.checks.reports import DataReport, Report, Subject, add_judgement
from truetune.checks.rule_catalogue import DATA, all_rules
from truetune.checks.rule_runner import join_equal_findings, merge_explained_findings_into_causes
from truetune.checks.split_training_and_held_out_files_by_name import (
    split_training_and_held_out_files,
)
from truetune.errors import UsageError
from truetune.settings.recognise_input_kind import title_of_kind
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_config_of_any_stack import read_config


def check_paths(
    paths: Sequence[str | PathLike[str]],
    spec: RunSpec,
    *,
    settings: Path | None = None,
    base: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Say what each path is, and what is wrong with it; without a path, with what `spec` names.

    `settings` is the truetune.yaml that `spec` comes from, `base` the model that a checkpoint is
    compared with. Raises a TruetuneError where a path is nothing that can be looked at, or can't be
    read.
    """
    started = time.perf_counter()
    # More than one path: a file that cannot be read must not hide what is wrong in the others.
    named = [os.fspath(path) for path in paths]
    seen = PathsCheck(
        spec,
        base,
        settings,
        several=len(named) > 1,
        uses=find_weight_uses(named, spec.trained_by),
        named=tuple(named),
    )
    # Known before any path is looked at: a script that is named first may train on rows that are named last.
    seen.rows_beside = tuple(path for path in named if holds_only_rows(path, spec))
    for path in named:
        check_path(path, seen, is_alone=len(named) == 1)
    if settings is not None:
        own = replace(read_config(settings), spec=spec)
        seen.trainers.add_config(own)
        seen.judged.append(judge_settings(own, spec))
    run = _run_of_paths(seen, named=bool(paths) and settings is None)
    report: Report | None = judge_run_or_note_unreadable(run, seen, named, progress)
    if report is None:
        report = Report(spec=spec, findings=(), seconds=0)
    if isinstance(report, DataReport) and not report.rows:
        seen.subjects.append(
            Subject(title_of_kind("tokenizer"), report.tokenizer, tuple(report.facts.items()))
        )
    subjects = (*seen.subjects, *report.subjects)
    whole = add_judgement(
        replace(report, subjects=subjects, seconds=time.perf_counter() - started),
        # A single cause, such as a pad token, shows in the settings and in the rows.
        Judgement.of(seen.judged),
    )
    # Settings and data were judged apart, and may tell one cause.
    said_once = Judgement(join_equal_findings(whole.findings))
    one_cause = merge_explained_findings_into_causes(said_once, all_rules(*DATA, "config"))
    logs = [subject.log for subject in whole.subjects if subject.log is not None]
    kept = drop_pad_finding_set_by_scripts(one_cause.findings, seen.training_scripts())
    return replace(whole, findings=reconcile_findings(kept, logs, seen.beside))


def _run_of_paths(seen: PathsCheck, *, named: bool) -> RunSpec | None:
    """The run whose data and tokenizer are judged: that of settings, else the one that the paths or
    truetune.yaml name. None if there is neither data nor a tokenizer that was named.
    """
    # Paths that are named stand for themselves: the data of truetune.yaml is then not meant.
    run = seen.run or (seen.spec.model_copy(update={"data": ()}) if named else seen.spec)
    data = tuple(seen.data) or run.data
    tokenizer = run.tokenizer or seen.tokenizer
    if not data and not _is_tokenizer_judged_alone(seen, tokenizer, named=named):
        if not named and tokenizer is None and not seen.subjects:
            raise UsageError(
                "nothing is named; give a path after `truetune check`, or `data:` in truetune.yaml"
            )
        return None
    run = run.model_copy(update={"data": data, "tokenizer": tokenizer})
    return _with_held_out_files(run, seen) if seen.data and not run.eval_data else run


def _with_held_out_files(run: RunSpec, seen: PathsCheck) -> RunSpec:
    """The run with the files among its data that are held out by their names as its evaluation
    rows.
    """
    pair = split_training_and_held_out_files(run.data)
    if pair is None:
        return run
    seen.is_paired = True
    return run.model_copy(update={"data": pair.training, "eval_data": pair.held_out})


def _is_tokenizer_judged_alone(seen: PathsCheck, tokenizer: str | None, *, named: bool) -> bool:
    """Is a tokenizer worth a check without rows? It is if it was named; that of settings was judged
    there.
    """
    is_named = seen.run is None and seen.tokenizer is not None
    return is_named or (not named and tokenizer is not None)
