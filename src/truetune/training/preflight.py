"""What is looked at before the first step: settings and data, what reaches the loss, and the run in miniature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from truetune.auditing.record_in_process import record_run as audited
from truetune.checks.audit import audit
from truetune.checks.findings import RANK, Finding, in_order
from truetune.checks.judgement import NotJudged
from truetune.checks.report import AuditReport, Report, with_judgement
from truetune.checks.run import check
from truetune.checks.settings import of_settings
from truetune.data.conversation import Conversation
from truetune.data.files import find_sources
from truetune.data.rows import read_conversations
from truetune.encoding.source_names import names_of
from truetune.errors import FindingsError
from truetune.package import __version__
from truetune.probe.peek_batches import peek_batches
from truetune.probe.ready_trainer import ready_trainer
from truetune.spec.config import Config
from truetune.spec.run import RunSpec
from truetune.training.listen import Listener

STRICT = ("packed-without-boundaries", "template-never-applied")
"""Rules that warn of other trainers' choices: here they can only be faults"""
GIVEN = 200
"""Rows of the data that an audit is given, at most"""
BATCHES = 4


class Looks:
    """What the looks before a run found; each is shown, and may stop it."""

    def __init__(self, listener: Listener, *, force: bool) -> None:
        self.listener, self.force = listener, force
        self.findings: list[Finding] = []
        self.missing: list[NotJudged] = []
        """What was asked for and could not be judged"""
        self.found: dict[str, tuple[Finding, ...]] = {}
        """By what was looked at"""

    def take(self, what: str, report: Report) -> None:
        """Raise FindingsError where a report has findings at or above `fail_on`, unless told to go on."""
        self.listener.draw(report)
        self.findings += report.findings
        self.missing += report.missing()
        for part in report.missing():
            self.listener.say(f"not judged: {part}")
        self.found[what] = report.findings
        if report.failed() and not self.force:
            worst = [f for f in report.findings if RANK[f.severity] >= RANK[report.spec.fail_on]]
            names = ", ".join(dict.fromkeys(f.rule for f in worst))
            raise FindingsError(
                f"{what} found {names}: nothing was trained (--force goes on, and records it)",
                tuple(worst),
            )


def check_data(spec: RunSpec, listener: Listener) -> Report:
    """What the rules say about settings, tokenizer and data, with the values that will take effect."""
    spec = spec.model_copy(update={"trained_by": "truetune"})
    report = check(spec, progress=lambda rows, done, total: listener.busy("checking", done, total))
    config = Config("truetune", __version__, "", spec, limit=spec.max_length)
    return with_judgement(report, of_settings(config, spec))


def audit_run(trainer: Any, spec: RunSpec, rows: Any, *, laws: str = "quick") -> AuditReport:
    """What reaches the loss of this trainer in its first batches, and the laws that hold for its model."""
    given = _given(trainer, spec, rows)
    record = audited(trainer, None, None, loss=None, given=given, batches=BATCHES, laws=laws)
    report = audit([record], spec)
    found = [replace(f, severity="error") if f.rule in STRICT else f for f in report.findings]
    return replace(report, findings=in_order(found))


def rehearse_run(trainer: Any, spec: RunSpec, rows: Any) -> Any:
    """The run in miniature: memorise a few rows, recite them, and stop."""
    from truetune.rehearsal.rehearsal_report import judge_rehearsal
    from truetune.rehearsal.rehearse_in_process import record_rehearsal

    given = _given(trainer, spec, rows)
    return judge_rehearsal(
        [record_rehearsal(trainer, source_data=given, batches=BATCHES, laws="none")], spec
    )


def _given(trainer: Any, spec: RunSpec, rows: Any) -> Sequence[dict[str, Any]]:
    """The rows of the first batches, as they stand in the data."""
    with ready_trainer(trainer) as (loader, _):
        peeked = peek_batches(loader, BATCHES)
    numbers = dict.fromkeys(index for batch in peeked for index in batch.indices or ())
    origins = {place for number in numbers for place in rows.origins(number)}
    found: list[dict[str, Any]] = []
    sources = find_sources(spec.data)
    names = dict(
        zip((str(source.path) for source in sources), names_of(sources).names, strict=True)
    )
    for row in read_conversations(spec.data, format=spec.format, columns=spec.map):
        if (names.get(row.origin.file), row.origin.line) in origins:
            found.append(_as_given(row))
        if len(found) == min(len(origins), GIVEN):
            break
    return found


def _as_given(row: Conversation) -> dict[str, Any]:
    """A row with the columns that every reader knows."""
    border = row.prompt_messages or 0
    made: dict[str, Any]
    prompt: Any = row.messages[:border] if row.is_chat else row.prompt
    answer: Any = row.messages[border:] if row.is_chat else row.completion
    if row.rejected is not None:
        made = {"prompt": prompt, "chosen": answer, "rejected": row.rejected}
    elif row.label is not None:
        made = {"prompt": prompt, "completion": answer, "label": row.label}
    elif row.is_chat:
        made = {"messages": row.messages}
    else:
        made = (
            {"text": row.text} if row.text is not None else {"prompt": prompt, "completion": answer}
        )
    return made | ({"tools": row.tools} if row.tools else {})
