"""What is left of a run: its log, its record, the answers that were watched, and what was found meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truetune.checkpoint.run_folder import read_run as read_record
from truetune.checkpoint.weight_files import FileFault, read_object
from truetune.checks.findings import RANK, Case, Finding
from truetune.checks.judge_answers import judge_answers
from truetune.checks.judgement import Judgement
from truetune.checks.rule import AnswersRule, LogRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.data.predictions import score_hint
from truetune.errors import DataError, UsageError
from truetune.generation.answer_samples import SampledRun, SamplingPass
from truetune.logs.log import RunLog
from truetune.logs.read import is_run, read_run
from truetune.parsing.bounded_files import read_bounded
from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import LOG, LOG_RECORD
from truetune.spec.kind import Kind, recognise, title_of_kind
from truetune.spec.run import RunSpec
from truetune.training.watch.sample_files import FINDING_FIELDS, FINDINGS, read_passes

WATCH = "watch.json"
OTHERWISE: Mapping[Kind, str] = {
    "data": "truetune check {} -t TOKENIZER --html report.html, or truetune view",
    "encoded": "truetune check --html report.html of the rows it was made of",
    "tokenizer": "truetune check {} --html report.html",
    "model": "truetune check {} --html report.html, or truetune sample {} --html report.html",
    "adapter": "truetune check {} --html report.html, or truetune sample {} --html report.html",
    "source": "truetune lint {} --html report.html",
    "notebook": "truetune lint {} --html report.html",
}
"""The command for what is no run"""
RUNNING = ("looking", "training")
"""States of a run that goes on"""
SIGNS = {"loss", "eval_loss", "learning_rate", "grad_norm", "reward"}
"""One of these is logged in each run."""


@dataclass(frozen=True, slots=True)
class Found:
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
    found: tuple[Found, ...]
    notes: tuple[str, ...] = ()
    judged: Judgement = field(default_factory=Judgement)
    """What was examined besides, and what was not judged"""


def open_run(path: str, spec: RunSpec) -> RunFolder:
    """The run in a folder or a log file, with what the rules that `spec` selects say.

    Raises UsageError for what is no run, or several, DataError for one that can't be read."""
    where, notes = Path(path), list[str]()
    if not where.is_dir():
        alone = _log(path)
        judged = _of_log(alone, spec)
        return RunFolder(
            path, alone, {}, {}, (), tuple(map(_marked, judged.findings)), judged=judged
        )
    looks, watch, record = read_passes(where), _watch(where / WATCH, notes), read_record(where)
    log = _log(path) if is_run(path) or not (looks or watch) else None
    judged = _of_log(log, spec)
    answers, of_answers = _of_answers(where, looks, record, spec, notes)
    found = (*map(_marked, judged.findings), *answers)
    return RunFolder(
        path,
        log,
        record,
        watch,
        tuple(looks),
        found,
        tuple(notes),
        Judgement.of([judged, of_answers]),
    )


def logged_run(path: str, log: RunLog, findings: Iterable[Finding]) -> RunFolder:
    """The run of a log that is read already, with what was found in the log; a damaged part of it is a note."""
    where, found, notes = Path(path), tuple(map(_marked, findings)), list[str]()
    if not where.is_dir():
        return RunFolder(path, log, {}, {}, (), found)
    try:
        looks = tuple(read_passes(where))
    except DataError as error:
        looks = ()
        notes.append(str(error))
    return RunFolder(
        path, log, read_record(where), _watch(where / WATCH, notes), looks, found, tuple(notes)
    )


def _log(path: str) -> RunLog:
    """Raises DataError where it can't be read, UsageError for what is something else, with the command for it."""
    try:
        log = read_run(path)
        broken = (
            None
            if SIGNS & log.curves.keys()
            else DataError(f"{path}: no curve of a run is in it{score_hint(path)}")
        )
    except DataError as error:
        broken = error
    if broken is None:
        return log
    try:
        kinds = recognise(path)
    except UsageError:
        raise broken from None
    if {"run", "log"} & set(kinds) or kinds[0] not in OTHERWISE:
        raise broken
    raise UsageError(
        f"{path}: this is {title_of_kind(kinds[0])}, not a run; expected the folder or log of a run, or a"
        " JSON file that "
        f"truetune wrote. For this: {OTHERWISE[kinds[0]].replace('{}', path)}"
        f"{score_hint(path) if kinds[0] == 'data' else ''}"
    )


def _watch(file: Path, notes: list[str]) -> dict[str, Any]:
    if not file.is_file():
        return {}
    faults = list[FileFault]()
    content = read_object(file, faults)
    notes += [fault.text for fault in faults]
    return content or {}


def _of_log(log: RunLog | None, spec: RunSpec) -> Judgement:
    """What the rules on logs say."""
    if log is None:
        return Judgement()
    return run_rules(log, choose_rules(spec, LogRule))


def _marked(finding: Finding) -> Found:
    marks = finding.figure.marks if finding.figure else ()
    return Found(finding, marks[0].x if marks else None)


def _of_answers(
    folder: Path,
    looks: list[tuple[SamplingPass, int]],
    record: Mapping[str, Any],
    spec: RunSpec,
    notes: list[str],
) -> tuple[list[Found], Judgement]:
    """What was noted while it ran, and what the rules say of the looks as they stand; found is the former, if any."""
    if not looks:
        return [], Judgement()
    finished = record.get("status") not in RUNNING
    watched = SampledRun(tuple(look for look, _ in looks), limit=looks[-1][1], finished=finished)
    judged = judge_answers(watched, spec)
    if (folder / FINDINGS).is_file():
        chosen = {rule.name() for rule in choose_rules(spec, AnswersRule)}
        return [
            found for found in _noted(folder / FINDINGS, notes) if found.finding.rule in chosen
        ], judged
    if (folder / WATCH).is_file():
        return [], judged
    return [Found(finding, watched.looks[-1].step) for finding in judged.findings], judged


def _noted(file: Path, notes: list[str]) -> list[Found]:
    """Of each rule the last that was noted, at the step of its first."""
    found: dict[str, Found] = {}
    broken = 0
    for line in read_bounded(file, LOG).decode("utf-8", "replace").splitlines():
        try:
            one = _finding(parse_json(line, LOG_RECORD))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            broken += 1
            continue
        before = found.get(one.finding.rule)
        found[one.finding.rule] = Found(one.finding, before.step) if before else one
    if broken:
        notes.append(f"{FINDINGS}: {broken:,} lines that are no findings")
    return list(found.values())


def _finding(record: dict[str, Any]) -> Found:
    kept = {name: record[name] for name in FINDING_FIELDS}
    if kept["severity"] not in RANK:
        raise ValueError(kept["severity"])
    cases = tuple(
        Case(str(case["text"]), turn=case.get("turn"), file=case.get("file"), line=case.get("line"))
        for case in record.get("cases") or ()
    )
    evidence = tuple(map(str, record["evidence"]))
    return Found(Finding(**kept | {"evidence": evidence, "cases": cases}), float(record["step"]))
