"""Blocks that set up a run, as for rules on batches; a miniature of it is rehearsed, without the laws.

`serve`, where a block sets it, is the URL of a server that is asked for its prompts.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from tests.checks.pages.batch import run
from truetune.checks.findings import Finding
from truetune.checks.judge_audit import AuditReport
from truetune.checks.rule import Rule
from truetune.probe.run_record import Record
from truetune.rehearsal.ask_server_for_prompt_ids import (
    ask_server_for_recited_rows_prompts,
    find_prompt_server,
)
from truetune.rehearsal.rehearsal_report import judge_rehearsal
from truetune.rehearsal.rehearse_in_process import record_rehearsal
from truetune.settings.run_spec import RunSpec


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """What a rehearsal of the run that a block sets up finds, with this rule alone."""
    return audited(rule, text).findings


def audited(rule: type[Rule[Any]], text: str) -> AuditReport:
    """What a rehearsal of the run that a block sets up says, with this rule alone."""
    return judge_rehearsal([_rehearsed(text)], RunSpec(select=(rule.name(),)))


@cache
def _rehearsed(text: str) -> Record:
    imports = (
        "from tests.rehearsal.server import server\nfrom tests.auditing.tiny_rollouts import grpo\n"
    )
    names = run(imports + text)
    record = record_rehearsal(names["run"], source_data=names.get("given"), laws="none", rows=3)
    if "serve" in names:
        ask_server_for_recited_rows_prompts(record, find_prompt_server(names["serve"]))
    return record
