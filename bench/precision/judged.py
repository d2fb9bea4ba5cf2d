"""The judgements: findings over public files, read beside the code, and files that no rule reported on.

There are two sets. Rules were corrected by what was judged in `DEVELOPMENT`. The repositories of `HELD_OUT` are others,
judged by another reader before any rule was corrected by them: nobody had tuned rules to its files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

FOLDER = Path(__file__).parent

Kind = Literal["scripts", "notebooks", "configs", "logs", "data", "tokenizers"]
Verdict = Literal["true", "pedantic", "false"]
State = Literal["same", "changed", "gone"]
SOURCES_AND_RUNS: tuple[Kind, ...] = ("scripts", "notebooks", "configs", "logs")
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


@dataclass(frozen=True)
class JudgedSet:
    """The judgements over one set of public repositories.

    `marker` names the place of its tables in docs/bench.md; `kinds` are the kinds of its files, in the table's order.
    """

    marker: str
    findings_file: Path
    silent_file: Path
    kinds: tuple[Kind, ...]

    def findings(self) -> list[JudgedFinding]:
        """The judged findings, in the order in which they were drawn."""
        return _read(self.findings_file, JudgedFinding)

    def silent_files(self) -> list[SilentFile]:
        """The files without a finding that were read."""
        return _read(self.silent_file, SilentFile)


def _read(path: Path, record: type[Record]) -> list[Record]:
    return [record(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


DEVELOPMENT = JudgedSet(
    "precision", FOLDER / "findings.jsonl", FOLDER / "silent.jsonl", SOURCES_AND_RUNS
)
HELD_OUT = JudgedSet(
    "precision held out",
    FOLDER / "held_out.jsonl",
    FOLDER / "held_out_silent.jsonl",
    (*SOURCES_AND_RUNS, "data", "tokenizers"),
)
SETS = (DEVELOPMENT, HELD_OUT)
