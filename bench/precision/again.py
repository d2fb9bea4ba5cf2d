"""Which of the judged findings a tree still reports, on files that were fetched again.

The files lie in a folder as KIND/OWNER+NAME/PATH, at the commits that the judgements name.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from click.testing import CliRunner

from bench.precision.judged import FINDINGS, JudgedFinding, Kind, findings
from truetune.cli import commands

COMMANDS: dict[Kind, str] = {"scripts": "lint", "notebooks": "lint", "configs": "check", "logs": "diagnose"}
FIRST = 40
"""Characters of a message that must be the same; figures and lists stand further on"""


def report_again(corpus: Path) -> list[JudgedFinding]:
    """The judgements, with `stands` as of this tree.

    Raises FileNotFoundError where a judged file is not in the folder.
    """
    said: dict[Path, set[tuple[str, int | None, str]]] = {}
    judged: list[JudgedFinding] = []
    for finding in findings():
        path = corpus / finding.kind / finding.repository.replace("/", "+", 1) / finding.path
        if not path.is_file():
            raise FileNotFoundError(f"{path}: fetch {finding.repository} at {finding.commit} and lay the file there")
        if path not in said:
            said[path] = _reported(COMMANDS[finding.kind], path)
        key = (finding.rule, finding.line, finding.message[:FIRST])
        judged.append(replace(finding, stands=key in said[path]))
    return judged


def keep(judged: list[JudgedFinding]) -> None:
    """Write the judgements in the place of those that were kept."""
    FINDINGS.write_text("".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in judged), "utf-8")


def _reported(command: str, path: Path) -> set[tuple[str, int | None, str]]:
    """Rule, first line and beginning of the message of all findings in a file; empty where the command refused it."""
    output = CliRunner().invoke(commands, [command, "--format", "json", str(path)]).stdout
    if not output.startswith("{"):
        return set()
    reported = set()
    for finding in json.loads(output)["findings"]:
        line = finding["cases"][0]["line"] if finding["cases"] else None
        reported.add((finding["rule"], line, finding["message"][:FIRST]))
    return reported
