"""Opens what is left of a training run: its log, its record, the answers that were watched, and what was found
meanwhile.

A run is the folder of `truetune train`, the folder of any trainer that left a log, a folder that only a watcher wrote
into, or a log file. What the rules on logs and answers say comes with it. The trade-off: a part that is damaged is a
note where the rest can be read, so that a crashed run can still be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truetune.checkpoint.read_run_and_check_checkpoints import UNFINISHED_STATUSES
from truetune.checkpoint.read_run_and_check_checkpoints import read_run as read_record
from truetune.checkpoint.read_weight_files_and_faults import FileFault, read_json_object
from truetune.checks.findings import RANK, Case, Finding
from truetune.checks.findings_file import FINDING_FIELDS, FINDINGS, fault_in_record
from truetune.checks.judge_answers import judge_answers
from truetune.checks.judgement import Judgement
from truetune.checks.rule import AnswersRule, LogRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.data.read_predictions import suggest_score_command
from truetune.errors import DataError, UsageError
from truetune.generation.answer_samples import SampledRun, SamplingPass
from truetune.generation.sampling_pass_files import (
    ROLLOUTS,
    read_passes_with_new_token_limits,
)
from truetune.logs.read_run_log import is_folder_of_run_log, read_run
from truetune.logs.run_log import RunLog
from truetune.parsing.input_limits import LOG, LOG_RECORD
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.settings.recognise_input_kind import InputKind, recognise_kinds, title_of_kind
from truetune.settings.run_spec import RunSpec

WATCH_FILE = "watch.json"
# People name a data file or a model to `truetune report`: the command that they want is said.
COMMAND_OF_KIND: Mapping[InputKind, str] = {
    "data": "truetune check {} -t TOKENIZER --html report.html, or truetune view",
    "encoded": "truetune check --html report.html of the rows it was made of",
    "tokenizer": "truetune check {} --html report.html",
    "model": "truetune check {} --html report.html, or truetune sample {} --html report.html",
    "adapter": "truetune check {} --html report.html, or truetune sample {} --html report.html",
    "source": "truetune lint {} --html report.html",
    "notebook": "truetune lint {} --html report.html",
}
"""The command for what is no run"""
# A table of numbers without any of these is no log of a training.
RUN_CURVES = {"loss", "eval_loss", "learning_rate", "grad_norm", "reward"}
"""One of these is logged in each run."""


@dataclass(frozen=True, slots=True)
class DatedFinding:
    """A finding, and the step at which it showed first; None where it is about the whole run."""

    finding: Finding
    step: float | None


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run."""

    path: str
    log: RunLog | None
    """None where only a watcher wrote here"""
    record: Mapping[str, Any]
    """run.json; empty where `truetune train` did not write it"""
    watch: Mapping[str, Any]
    """watch.json"""
    looks: tuple[tuple[SamplingPass, int], ...]
    """With the tokens after which its answers were cut"""
    findings: tuple[DatedFinding, ...]
    notes: tuple[str, ...] = ()
    judgement: Judgement = field(default_factory=Judgement)
    """What was examined besides, and what was not judged"""
    rollouts: tuple[tuple[SamplingPass, int], ...] = ()
    """The answers that a training by rewards has sampled and learned from, step by step, as `looks` has others"""


def open_run(path: str, spec: RunSpec) -> RunFolder:
    """The run in a folder or a log file.

    Args:
        path: of the folder or file.
        spec: selects the rules that judge it.

    Raises:
        UsageError: it is no run, or several.
        DataError: it can't be read.
    """
    folder, notes = Path(path), list[str]()
    if not folder.is_dir():
        log = _read_log(path)
        judgement = _judge_log(log, spec)
        dated = tuple(map(_date_finding_by_figure, judgement.findings))
        return RunFolder(path, log, {}, {}, (), dated, judgement=judgement)
    looks = read_passes_with_new_token_limits(folder)
    watch = _read_watch_file(folder / WATCH_FILE, notes)
    record = read_record(folder)
    # A folder of a watcher alone has no log: that is no error there.
    has_log = is_folder_of_run_log(path) or not (looks or watch)
    folder_log = _read_log(path) if has_log else None
    of_log = _judge_log(folder_log, spec)
    answer_findings, of_answers = _judge_passes(folder, looks, record, spec, notes)
    return RunFolder(
        path=path,
        log=folder_log,
        record=record,
        watch=watch,
        looks=tuple(looks),
        findings=(*map(_date_finding_by_figure, of_log.findings), *answer_findings),
        notes=tuple(notes),
        judgement=Judgement.of([of_log, of_answers]),
        rollouts=tuple(read_passes_with_new_token_limits(folder, within=ROLLOUTS)),
    )


def run_folder_of_log(path: str, log: RunLog, findings: Iterable[Finding]) -> RunFolder:
    """The run of a log that is read already; a damaged part of its folder is a note.

    Args:
        path: of the folder or file.
        log: what was read of it.
        findings: what was found in the log.
    """
    folder, dated, notes = Path(path), tuple(map(_date_finding_by_figure, findings)), list[str]()
    if not folder.is_dir():
        return RunFolder(path, log, {}, {}, (), dated)
    try:
        looks = tuple(read_passes_with_new_token_limits(folder))
    except DataError as error:
        looks = ()
        notes.append(str(error))
    watch = _read_watch_file(folder / WATCH_FILE, notes)
    return RunFolder(path, log, read_record(folder), watch, looks, dated, tuple(notes))


def _read_log(path: str) -> RunLog:
    """Raises DataError where it can't be read, UsageError for what is something else, with the command for it."""
    try:
        log = read_run(path)
    except DataError as error:
        unreadable = error
    else:
        if RUN_CURVES & log.curves.keys():
            return log
        unreadable = DataError(f"{path}: no curve of a run is in it{suggest_score_command(path)}")
    # What the user has named may be whole, and only no run.
    try:
        kinds = recognise_kinds(path)
    except UsageError:
        raise unreadable from None
    if {"run", "log"} & set(kinds) or kinds[0] not in COMMAND_OF_KIND:
        raise unreadable
    raise UsageError(
        f"{path}: this is {title_of_kind(kinds[0])}, not a run; expected the folder or log of a run, or a"
        " JSON file that "
        f"truetune wrote. For this: {COMMAND_OF_KIND[kinds[0]].replace('{}', path)}"
        f"{suggest_score_command(path) if kinds[0] == 'data' else ''}"
    )


def _read_watch_file(file: Path, notes: list[str]) -> dict[str, Any]:
    """watch.json; empty where there is none. What is wrong with it goes to `notes`."""
    if not file.is_file():
        return {}
    faults = list[FileFault]()
    content = read_json_object(file, faults)
    notes += [fault.text for fault in faults]
    return content or {}


def _judge_log(log: RunLog | None, spec: RunSpec) -> Judgement:
    """What the rules on logs say of a log; nothing without one."""
    if log is None:
        return Judgement()
    return run_rules(log, choose_rules(spec, LogRule))


def _date_finding_by_figure(finding: Finding) -> DatedFinding:
    """A finding of a log at the first place that is marked in its figure."""
    marks = finding.figure.marks if finding.figure else ()
    return DatedFinding(finding, marks[0].x if marks else None)


def _judge_passes(
    folder: Path,
    looks: list[tuple[SamplingPass, int]],
    record: Mapping[str, Any],
    spec: RunSpec,
    notes: list[str],
) -> tuple[list[DatedFinding], Judgement]:
    """What the answers that were watched show.

    Args:
        folder: of the run.
        looks: its sampling passes, with their limits.
        record: run.json.
        spec: selects the rules.
        notes: takes what can't be read.

    Returns:
        (what was noted while it ran, else what the rules say now; what the rules say of the passes as they stand)
    """
    if not looks:
        return [], Judgement()
    finished = record.get("status") not in UNFINISHED_STATUSES
    sampled = SampledRun(
        tuple(sampling_pass for sampling_pass, _ in looks), limit=looks[-1][1], finished=finished
    )
    judgement = judge_answers(sampled, spec)
    if (folder / FINDINGS).is_file():
        chosen = {rule.name() for rule in choose_rules(spec, AnswersRule)}
        noted = _read_last_finding_of_each_rule(folder / FINDINGS, notes)
        return [dated for dated in noted if dated.finding.rule in chosen], judgement
    # The file of findings is made with the first one: a watched run without it was judged, and clean.
    if (folder / WATCH_FILE).is_file():
        return [], judgement
    last_step = sampled.looks[-1].step
    return [DatedFinding(finding, last_step) for finding in judgement.findings], judgement


def _read_last_finding_of_each_rule(file: Path, notes: list[str]) -> list[DatedFinding]:
    """Of each rule the last finding that was noted, at the step of its first."""
    by_rule: dict[str, DatedFinding] = {}
    broken = 0
    for line in read_bytes_within_limit(file, LOG).decode("utf-8", "replace").splitlines():
        try:
            dated = _parse_dated_finding(parse_json(line, LOG_RECORD))
        # Anything may stand in a file that others can write; a crash cuts its last line.
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            broken += 1
            continue
        rule = dated.finding.rule
        earlier = by_rule.get(rule)
        # The last has the counts of the whole run; the first says when it began.
        by_rule[rule] = DatedFinding(dated.finding, earlier.step) if earlier else dated
    if broken:
        notes.append(f"{FINDINGS}: {broken:,} lines that are no findings")
    return list(by_rule.values())


def _parse_dated_finding(record: dict[str, Any]) -> DatedFinding:
    """A line of the file. Raises ValueError, KeyError, TypeError, AttributeError or OverflowError for what is none."""
    fields = {name: record[name] for name in FINDING_FIELDS}
    if fields["severity"] not in RANK:
        raise ValueError(fields["severity"])
    cases = tuple(
        Case(str(case["text"]), turn=case.get("turn"), file=case.get("file"), line=case.get("line"))
        for case in record.get("cases") or ()
    )
    evidence = tuple(map(str, record["evidence"]))
    finding = Finding(
        **fields | {"evidence": evidence, "cases": cases}, fault=fault_in_record(record)
    )
    return DatedFinding(finding, float(record["step"]))
