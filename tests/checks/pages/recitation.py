"""Blocks that set up a run, as for rules on batches; a miniature of it is rehearsed, without the laws.

`serve`, where a block sets it, is the URL of a server that is asked for its prompts.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from tests.checks.pages.batch import run
from truetune.checks.audit import AuditReport
from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.probe.run_record import Record
from truetune.rehearsal.here import record_of
from truetune.rehearsal.report import report
from truetune.rehearsal.served import ask, server_of
from truetune.spec.run import RunSpec


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """What a rehearsal of the run that a block sets up finds, with this rule alone."""
    return audited(rule, text).findings


def audited(rule: type[Rule[Any]], text: str) -> AuditReport:
    """What a rehearsal of the run that a block sets up says, with this rule alone."""
    return report([_rehearsed(text)], RunSpec(select=(rule.name(),)))


@cache
def _rehearsed(text: str) -> Record:
    names = run("from tests.rehearsal.server import server\n" + text)
    record = record_of(names["run"], given=names.get("given"), laws="none", rows=3)
    if "serve" in names:
        ask(record, server_of(names["serve"]))
    return record
