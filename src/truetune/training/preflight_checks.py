"""The checks before the first step of a run: settings and data, what reaches the loss, and the run
in miniature.

Each check gives a report; one with findings at or above `fail_on` ends the run before anything is trained. The
trade-off: seconds to a minute before each run, against hours of a run that was lost from its first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from truetune.auditing.record_trainer_run_in_this_process import record_run as audited
from truetune.checks.batch.packed_without_boundaries import PackedWithoutBoundaries
from truetune.checks.batch.template_never_applied import TemplateNeverApplied
from truetune.checks.check_data import check
from truetune.checks.findings import RANK, Finding, sort_findings
from truetune.checks.judge_audit import audit
from truetune.checks.judge_settings import LOOK_AT_BATCHES, judge_settings
from truetune.checks.judgement import NotJudged
from truetune.checks.reports import AuditReport, Report, add_judgement
from truetune.data.conversation import Conversation
from truetune.data.find_data_files import find_data_files_of_paths
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.encoding.relative_names_of_data_files import names_relative_to_common_folder
from truetune.errors import FindingsError
from truetune.package import __version__
from truetune.probe.peek_batches import peek_batches
from truetune.probe.temporary_data_loader import temporary_data_loader_and_tokenizer
from truetune.settings.config import Config
from truetune.settings.run_spec import RunSpec
from truetune.training.progress_listeners import Listener

# Other trainers choose to pack without borders or to train on raw text; truetune train never does,
# so that here the finding can only mean that something is broken.
ERROR_RULES = (PackedWithoutBoundaries.name(), TemplateNeverApplied.name())
"""Rules that warn of other trainers' choices: here they can only be faults"""
# Chosen, not measured: bounds the second reading of the file. Packed batches hold more rows than
# this only where examples have few tokens.
MAX_AUDIT_ROWS = 200
"""Rows of the data that an audit is given, at most"""
# Chosen, not measured: faults of collators show in the first batch, those of packs within a few.
# Each more costs a forward pass before every run.
AUDIT_BATCHES = 4


class PreflightChecks:
    """Collects the reports of the checks before a run; each is shown, and may stop it."""

    def __init__(self, listener: Listener, *, force: bool) -> None:
        self.listener, self.force = listener, force
        self.findings: list[Finding] = []
        self.missing: list[NotJudged] = []
        """What was asked for and could not be judged"""
        self.findings_by_check: dict[str, tuple[Finding, ...]] = {}
        """By what was looked at"""

    def keep_report_or_stop_on_findings(self, name: str, report: Report) -> None:
        """Show and keep a report. Raises FindingsError where it has findings at or above `fail_on`,
        unless told to continue.
        """
        self.listener.draw(report)
        self.findings += report.findings
        self.missing += report.requested_not_judged()
        for part in report.requested_not_judged():
            self.listener.say(f"not judged: {part}")
        self.findings_by_check[name] = report.findings
        # Before any training: an hour of GPU on data that is known to be wrong is what this tool is
        # against.
        if report.failed() and not self.force:
            worst = [f for f in report.findings if RANK[f.severity] >= RANK[report.spec.fail_on]]
            names = ", ".join(dict.fromkeys(f.rule for f in worst))
            raise FindingsError(
                f"{name} found {names}: nothing was trained (--force continues, and records it)",
                tuple(worst),
            )


def check_settings_and_data(spec: RunSpec, listener: Listener) -> Report:
    """What the rules say about settings, tokenizer and data, with the values that will take effect."""
    # The severity of many rules depends on what the trainer does, and here it is known.
    spec = spec.model_copy(update={"trained_by": "truetune"})
    judge_rehearsal = check(
        spec,
        progress=lambda rows, done, total: listener.busy("checking", done, total),
    )
    config = Config("truetune", __version__, "", spec, limit=spec.max_length)
    of_settings = judge_settings(config, spec)
    # What settings don't tell of a training by rewards, this run will see for itself: its reward functions are tried,
    # and its rollouts judged (`audit_first_rollouts`).
    missing = tuple(part for part in of_settings.not_judged if part.unlock != LOOK_AT_BATCHES)
    return add_judgement(judge_rehearsal, replace(of_settings, not_judged=missing))


def audit_first_batches_and_laws(
    trainer: Any, spec: RunSpec, rows: Any, *, laws: str = "quick"
) -> AuditReport:
    """Judge what reaches the loss of a trainer in its first batches, and the laws that hold for its model.

    Args:
        trainer: as it will train; left as it is.
        spec: the filled settings.
        rows: what it trains on, to find the rows of its batches in the data.
        laws: which laws are tried; `quick` or `none`.
    """
    rows_as_given = _data_rows_of_first_batches(trainer, spec, rows)
    record = audited(
        trainer, None, None, loss=None, given=rows_as_given, batches=AUDIT_BATCHES, laws=laws
    )
    judge_rehearsal = audit([record], spec)
    findings = [
        replace(f, severity="error") if f.rule in ERROR_RULES else f
        for f in judge_rehearsal.findings
    ]
    return replace(judge_rehearsal, findings=sort_findings(findings))


def rehearse_trainer(trainer: Any, spec: RunSpec, rows: Any) -> Any:
    """Rehearse the run in miniature: memorise a few rows, recite them, and stop.

    Args:
        trainer: as it will train; left as it is.
        spec: the filled settings.
        rows: what it trains on, to find the rows of its batches in the data.
    """
    from truetune.rehearsal.rehearsal_report import judge_rehearsal
    from truetune.rehearsal.rehearse_in_process import record_rehearsal

    rows_as_given = _data_rows_of_first_batches(trainer, spec, rows)
    return judge_rehearsal(
        [record_rehearsal(trainer, source_data=rows_as_given, batches=AUDIT_BATCHES, laws="none")],
        spec,
    )


def rehearse_trainer_by_rewards(trainer: Any, spec: RunSpec) -> Any:
    """Rehearse a training by rewards in miniature: does its code raise what it is paid for?

    Args:
        trainer: as it will train; left as it is.
        spec: the filled settings.
    """
    from truetune.rehearsal.rehearsal_report import judge_rehearsal
    from truetune.rehearsal.rehearse_in_process import record_rehearsal

    return judge_rehearsal([record_rehearsal(trainer, batches=AUDIT_BATCHES, laws="none")], spec)


def _data_rows_of_first_batches(trainer: Any, spec: RunSpec, rows: Any) -> Sequence[dict[str, Any]]:
    """The rows of the first batches, as they are in the data."""
    with temporary_data_loader_and_tokenizer(trainer) as (loader, _):
        peeked = peek_batches(loader, AUDIT_BATCHES)
    # A dictionary keeps the order and drops the doubles.
    numbers = dict.fromkeys(index for batch in peeked for index in batch.indices or ())
    origins = {place for number in numbers for place in rows.origins(number)}
    columns: list[dict[str, Any]] = []
    sources = find_data_files_of_paths(spec.data)
    names = dict(
        zip(
            (str(source.path) for source in sources),
            names_relative_to_common_folder(sources).names,
            strict=True,
        )
    )
    for row in read_conversations(spec.data, format=spec.format, columns=spec.map):
        if (names.get(row.origin.file), row.origin.line) in origins:
            columns.append(_row_as_known_columns(row))
        # Reading on to the end of a large file would find nothing more.
        if len(columns) == min(len(origins), MAX_AUDIT_ROWS):
            break
    return columns


def _row_as_known_columns(row: Conversation) -> dict[str, Any]:
    """A row as the columns that every reader knows."""
    border = row.prompt_messages or 0
    columns: dict[str, Any]
    prompt: Any = row.messages[:border] if row.is_chat else row.prompt
    answer: Any = row.messages[border:] if row.is_chat else row.completion
    if row.rejected is not None:
        columns = {"prompt": prompt, "chosen": answer, "rejected": row.rejected}
    elif row.label is not None:
        columns = {"prompt": prompt, "completion": answer, "label": row.label}
    elif row.is_chat:
        columns = {"messages": row.messages}
    else:
        columns = (
            {"text": row.text} if row.text is not None else {"prompt": prompt, "completion": answer}
        )
    return columns | ({"tools": row.tools} if row.tools else {})
