"""What a tree makes of the judged findings, on files that were fetched again.

The files lie in a folder as KIND/OWNER+NAME/PATH, at the commits that the judgements name.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from bench.precision.judged import FINDINGS, JudgedFinding, Kind, State, findings
from truetune.cli import commands
from truetune.errors import TruetuneError
from truetune.source.walk import SKIPPED


class Report(NamedTuple):
    """What is compared of a finding."""

    rule: str
    line: int | None
    severity: str
    message: str


COMMANDS: dict[Kind, str] = {"scripts": "lint", "notebooks": "lint", "configs": "check", "logs": "diagnose"}
FIRST = 40
"""Characters of a message that must be the same; figures and lists stand further on"""


def report_again(corpus: Path) -> list[JudgedFinding]:
    """The judgements, with `now` as of this tree; files that it leaves out of folders have no findings.

    Raises FileNotFoundError where a judged file is not in the folder, and whatever a command fails with: a file that
    it refuses has no findings, one on which it breaks is not judged.
    """
    said: dict[Path, list[Report]] = {}
    judged: list[JudgedFinding] = []
    for finding in findings():
        path = corpus / finding.kind / finding.repository.replace("/", "+", 1) / finding.path
        if not path.is_file():
            raise FileNotFoundError(f"{path}: fetch {finding.repository} at {finding.commit} and lay the file there")
        if path not in said:
            left_out = SKIPPED.intersection(Path(finding.path).parts)
            said[path] = [] if left_out else _reported(COMMANDS[finding.kind], path)
        judged.append(replace(finding, now=_state(finding, said[path])))
    return judged


def keep(judged: list[JudgedFinding]) -> None:
    """Write the judgements in the place of those that were kept."""
    FINDINGS.write_text("".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in judged), "utf-8")


def _state(finding: JudgedFinding, reported: list[Report]) -> State:
    there = [report for report in reported if (report.rule, report.line) == (finding.rule, finding.line)]
    if not there:
        return "gone"
    kept = Report(finding.rule, finding.line, finding.severity, finding.message[:FIRST])
    return "same" if kept in there else "changed"


def _reported(command: str, path: Path) -> list[Report]:
    """The findings of a file; none where the command refused it."""
    result = CliRunner().invoke(commands, [command, "--format", "json", str(path)])
    if isinstance(result.exception, TruetuneError):
        return []
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return [
        Report(
            rule=finding["rule"],
            line=finding["cases"][0]["line"] if finding["cases"] else None,
            severity=finding["severity"],
            message=finding["message"][:FIRST],
        )
        for finding in json.loads(result.stdout)["findings"]
    ]
