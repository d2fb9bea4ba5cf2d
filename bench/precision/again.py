"""What a tree makes of the judged findings, on files that were fetched again.

The files lie in a folder as KIND/OWNER+NAME/PATH, at the commits that the judgements name. Rules read which release a
project asks for from its requirement files, up to a folder that looks like the project's root: lay these files and an
empty `.git` into KIND/OWNER+NAME too, or findings that the project's own pins rule out are reported all the same.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from bench.precision.judged import JudgedFinding, JudgedSet, Kind, State
from truetune.cli import truetune_group
from truetune.errors import TruetuneError
from truetune.source.find_source_files import SKIPPED_FOLDERS


class Report(NamedTuple):
    """What is compared of a finding."""

    rule: str
    line: int | None
    severity: str
    message: str


COMMANDS: dict[Kind, str] = {
    "scripts": "lint",
    "notebooks": "lint",
    "configs": "check",
    "logs": "diagnose",
    "data": "check",
    "tokenizers": "check",
}
FIRST = 40
"""Characters of a message that must be the same; figures and lists stand further on"""


def report_again(
    judged_set: JudgedSet, corpus: Path, tokenizer: Path | None = None
) -> list[JudgedFinding]:
    """The judgements, with `now` as of this tree; files that it leaves out of folders have no findings.

    Args:
        judged_set: The judgements.
        corpus: The folder with the judged files.
        tokenizer: The tokenizer's folder for the checks of data; None leaves the judgements on data as they are.

    Raises:
        FileNotFoundError: a judged file is not in the folder.
        Exception: whatever a command fails with. A file that it refuses has no findings; one on which it breaks is not
            judged.
    """
    reports: dict[Path, list[Report]] = {}
    judged: list[JudgedFinding] = []
    for finding in judged_set.findings():
        if finding.kind == "data" and tokenizer is None:
            judged.append(finding)
            continue
        path = corpus / finding.kind / finding.repository.replace("/", "+", 1) / finding.path
        if not path.exists():
            raise FileNotFoundError(
                f"{path}: fetch {finding.repository} at {finding.commit} and lay the file there"
            )
        if path not in reports:
            left_out = SKIPPED_FOLDERS.intersection(Path(finding.path).parts)
            reports[path] = [] if left_out else _report_on(finding.kind, path, tokenizer)
        judged.append(replace(finding, now=_state(finding, reports[path])))
    return judged


def keep(judged_set: JudgedSet, judged: list[JudgedFinding]) -> None:
    """Write the judgements in the place of those that were kept."""
    lines = [json.dumps(asdict(finding), ensure_ascii=False) + "\n" for finding in judged]
    judged_set.findings_file.write_text("".join(lines), "utf-8")


def _state(finding: JudgedFinding, reported: list[Report]) -> State:
    there = [
        report for report in reported if (report.rule, report.line) == (finding.rule, finding.line)
    ]
    if not there:
        return "gone"
    kept = Report(finding.rule, finding.line, finding.severity, finding.message[:FIRST])
    return "same" if kept in there else "changed"


def _report_on(kind: Kind, path: Path, tokenizer: Path | None) -> list[Report]:
    """The findings of a file; none where the command refused it."""
    options = ["--tokenizer", str(tokenizer)] if kind == "data" else []
    result = CliRunner().invoke(
        truetune_group, [COMMANDS[kind], "--format", "json", *options, str(path)]
    )
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
