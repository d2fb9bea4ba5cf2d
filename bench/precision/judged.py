"""The judgements: findings of one run over public files, read beside the code, and files that no rule spoke of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

FOLDER = Path(__file__).parent
FINDINGS = FOLDER / "findings.jsonl"
SILENT = FOLDER / "silent.jsonl"

Kind = Literal["scripts", "notebooks", "configs", "logs"]
Verdict = Literal["true", "pedantic", "false"]
State = Literal["same", "changed", "gone"]
KINDS: tuple[Kind, ...] = ("scripts", "notebooks", "configs", "logs")
VERDICTS: tuple[Verdict, ...] = ("true", "pedantic", "false")


@dataclass(frozen=True)
class JudgedFinding:
    """A finding in a file of a public repository, and what a reader made of it.

    `verdict` is "true" (right, and worth acting on), "pedantic" (right, and nobody would act on it) or "false" (wrong,
    or advice that can't be followed). `line` is None where the finding named none. `now` says what the tree in which
    this file lies makes of it: "same", "changed" (the rule speaks there in other words or more mildly, and must be
    judged again) or "gone".
    """

    kind: Kind
    repository: str
    commit: str
    path: str
    line: int | None
    rule: str
    severity: str
    message: str
    verdict: Verdict
    reason: str
    now: State


@dataclass(frozen=True)
class SilentFile:
    """A file in which nothing was found, and what a reader missed there; None where silence was right."""

    kind: Kind
    repository: str
    commit: str
    path: str
    missed: str | None


Record = TypeVar("Record", JudgedFinding, SilentFile)


def findings() -> list[JudgedFinding]:
    """The judged findings, in the order in which they were drawn."""
    return _read(FINDINGS, JudgedFinding)


def silent_files() -> list[SilentFile]:
    """The files without a finding that were read."""
    return _read(SILENT, SilentFile)


def _read(path: Path, record: type[Record]) -> list[Record]:
    return [record(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
