"""Run truetune on a copy of a case's folder, and read whether the fault is named.

Each command is a process of its own, as a user runs it: what one case imports or caches says nothing of the next.
`tests/bench/test_recall.py` runs them in one process, which costs an eighth.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.bugs.warm import QUIET
from bench.recall.case import Case

LIMIT_SECONDS = 300
FINDING = re.compile(r"^(?:error|warning)\[[A-Z]+\d+\] (?P<rule>[\w-]+)", re.MULTILINE)
"""A finding that a user has to act on: a note is none"""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was printed about one case."""

    case: Case
    findings: tuple[str, ...]
    """Rules with an error or a warning, in the order of the output"""
    is_named: bool
    """Does the output name the fault?"""

    @property
    def is_right(self) -> bool:
        """Is a faulty case named, and a healthy one left alone?"""
        return self.is_named == self.case.is_faulty


def measure(chosen: Sequence[Case], jobs: int) -> Iterator[Measured]:
    """All chosen cases, `jobs` at a time, in their order, each as soon as it is known."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(measure_case, chosen)


def measure_case(case: Case, run_command: Callable[[str, Path], str] | None = None) -> Measured:
    """One case, in a copy of its folder.

    Args:
        case: the case.
        run_command: gives what a command prints in a folder; by default it runs in a process of its own.
    """
    run_command = run_command or _output_of
    with tempfile.TemporaryDirectory(prefix="recall-") as scratch:
        folder = Path(scratch) / case.name
        shutil.copytree(case.folder, folder, ignore=shutil.ignore_patterns("case.yaml"))
        output = "".join(run_command(command, folder) for command in case.commands)
    findings = tuple(dict.fromkeys(found["rule"] for found in FINDING.finditer(output)))
    return Measured(case, findings, _is_named(case, findings, output))


def _output_of(command: str, folder: Path) -> str:
    """What one command prints; "" where it was stopped after LIMIT_SECONDS."""
    # Wide lines, so that a name is never broken in two, and no colours.
    surroundings = os.environ | QUIET | {"COLUMNS": "400", "NO_COLOR": "1"}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "truetune", *shlex.split(command)],
            cwd=folder,
            env=surroundings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return ""
    return ended.stdout + ended.stderr


def _is_named(case: Case, findings: tuple[str, ...], output: str) -> bool:
    """Is one of the rules of the fault among the findings, or one of the case's own words in the output?"""
    if not case.says:
        return any(rule in findings for rule in case.fault.rules)
    text = " ".join(output.split()).casefold()
    return any(word in findings or word.casefold() in text for word in case.says)
