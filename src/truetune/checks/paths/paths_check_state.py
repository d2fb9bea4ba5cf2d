"""The state of a check of several paths: what each path is, and what was judged so far.

All functions of this package take it as `seen` and add to it. Settings, scripts and rows among the
paths belong to one run, so that what one path says decides how another is judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from truetune.checks.detect_trainer_and_apply_facts import DetectedTrainers
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.read_files_beside_log import (
    find_settings_files_and_logs,
    read_settings_files_and_log_runs,
)
from truetune.checks.reports import Report, Subject
from truetune.data.script_rows.find_row_shaping_script import training_scripts
from truetune.logs.facts_in_files_beside_log import FilesBeside
from truetune.settings.config import WeightUse
from truetune.settings.run_spec import RunSpec
from truetune.source.find_source_files import find_source_files


@dataclass(slots=True)
class PathsCheck:
    """What the paths are, and what was judged so far."""

    spec: RunSpec
    base: str | None
    settings: Path | None
    """The truetune.yaml that `spec` comes from"""
    subjects: list[Subject] = field(default_factory=list)
    judged: list[Judgement] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    tokenizer: str | None = None
    run: RunSpec | None = None
    """The run that a configuration describes, with what the caller set over it"""
    own_prompt: bool = False
    """The run does not use the tokenizer's template"""
    joined: bool = False
    """The stack joins texts, or cuts long ones in pieces: nothing is lost at max_length"""
    demo_config: str = ""
    """The configuration that trains the demo data of its framework alone, and so none of the rows beside it"""
    rows_of_scripts: bool = False
    """The rows are those that a script in a folder reads, and nobody asked for them by name"""
    no_tokenizer: str = ""
    """Why the tokenizer that settings name can't be had; empty where it can, or where none is named"""
    rows_beside: tuple[str, ...] = ()
    """Files of rows among the paths, which a script among them may train on"""
    trainers: DetectedTrainers = field(default_factory=DetectedTrainers)
    """The trainers that the paths show"""
    several: bool = False
    """More than one path was named: one that cannot be read leaves the others to be judged"""
    uses: tuple[WeightUse, ...] = ()
    """What the paths merge, serve or load"""
    named: tuple[str, ...] = ()
    """The paths themselves"""
    is_paired: bool = False
    """The evaluation rows are files that are named so beside the training rows"""
    tokens_added: frozenset[str] | None = None
    """What scripts and settings among the paths add to the tokenizer; None until rows are looked at"""
    beside: FilesBeside | None = None
    """What the files among the paths say of the logs among them; None until a log is looked at"""

    def facts_of_files_beside_logs(self) -> FilesBeside:
        """What the files among the paths say of the logs among them; they are read once, and only
        where a log is.
        """
        if self.beside is None:
            self.beside = read_settings_files_and_log_runs(
                *find_settings_files_and_logs(map(Path, self.named))
            )
        return self.beside

    def training_scripts(self) -> list[str]:
        """The scripts among the paths that give rows to a trainer or a loop of their own."""
        return training_scripts(str(file) for _, file in find_source_files(self.trainers.sources))

    def add_not_judged(self, *parts: NotJudged) -> None:
        """Note what can't be judged, each with its reason."""
        self.judged.append(Judgement(not_judged=parts))

    def add(self, report: Report) -> None:
        """Add what a report says to what was judged so far."""
        self.subjects += report.subjects
        self.judged.append(Judgement(report.findings, report.examined, report.not_judged))
