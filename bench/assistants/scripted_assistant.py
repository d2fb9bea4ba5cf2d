"""An assistant without a model: it calls the tools in the order that the skill says, and takes the first finding.

It knows the folder and the user's words, never the fault. So what it reaches is what the tools say, and not what a
model knew already; a model, which can read the files too, should reach at least as much.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import chdir, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from bench.assistants.projects import BrokenProject
from truetune.assistants import tools
from truetune.report.brief_json import BriefFinding, BriefReport

Result = TypeVar("Result")
MAX_CALLS = 5


class OutOfCalls(Exception):
    """The assistant has made all of its calls."""


@dataclass
class CallLog:
    """The calls of an assistant, and what findings each of them returned."""

    names: list[str] = field(default_factory=list)
    findings: list[tuple[BriefFinding, ...]] = field(default_factory=list)

    def record(self, name: str, call: Callable[[], Result]) -> Result:
        """Make a call and keep its findings. Raises OutOfCalls for the sixth."""
        if len(self.names) == MAX_CALLS:
            raise OutOfCalls
        self.names.append(name)
        result = call()
        self.findings.append(result.findings if isinstance(result, BriefReport) else ())
        return result


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far the assistant came with one project."""

    project: str
    calls: tuple[str, ...]
    named_at_call: int | None
    """The first call, from 1, with a finding that names the fault and has a remedy; None: no call"""
    is_first_finding: bool
    """Is that finding the first of its call, which the assistant acts on?"""
    fixed_by_tool: bool
    """Did the tool fix end it, by the check after it?"""


def repair_project(project: BrokenProject) -> Outcome:
    """Let the assistant work on a copy of a project, in at most MAX_CALLS calls.

    Raises:
        Missing: the project needs something that this machine lacks.
    """
    log = CallLog()
    with TemporaryDirectory(prefix="project-") as scratch:
        folder = project.lay_out(Path(scratch))
        # Settings name their data from the folder in which a user works.
        with chdir(folder), suppress(OutOfCalls):
            _work_in_order_of_skill(project.symptom, log)
    return _judge_calls(project, log)


def _work_in_order_of_skill(symptom: str, log: CallLog) -> None:
    """Look for the cause, read what the first finding means, make its edit, and check again."""
    report = _find_faults(symptom, log)
    if not any(finding.severity != "info" for finding in report.findings):
        # What was asked by words may be seen by another tool.
        report = log.record("check", lambda: tools.check_files(["."]))
    if not report.findings:
        return
    first = report.findings[0]
    log.record("explain", lambda: tools.explain_rule_or_words(first.code))
    file = first.place.partition(":")[0]
    # Only a script is edited in place: of rows the user decides where they go.
    if not first.fix.startswith("truetune lint ") or not file:
        return
    shown = log.record("fix", lambda: tools.fix_files(file))
    if shown.diff:
        log.record("fix", lambda: tools.fix_files(file, write=True))
        _find_faults(symptom, log)


def _find_faults(symptom: str, log: CallLog) -> BriefReport:
    """Troubleshoot the user's words, or check where nothing was said."""
    if symptom:
        return log.record("troubleshoot", lambda: tools.troubleshoot_symptom(symptom, ["."]))
    return log.record("check", lambda: tools.check_files(["."]))


def _judge_calls(project: BrokenProject, log: CallLog) -> Outcome:
    """What the calls show of the named fault."""
    named = [[project.is_named_by(finding) for finding in findings] for findings in log.findings]
    at = next((number for number, flags in enumerate(named) if any(flags)), None)
    was_written = log.names.count("fix") == 2 and len(log.names) > log.names.index("fix") + 2
    return Outcome(
        project=project.name,
        calls=tuple(log.names),
        named_at_call=None if at is None else at + 1,
        is_first_finding=at is not None and named[at][0],
        fixed_by_tool=at is not None and was_written and not any(named[-1]),
    )
