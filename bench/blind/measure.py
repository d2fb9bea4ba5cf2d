"""Run each case's command on its faulty folder and on its twin, as a user would, and read the findings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.blind.round import PLACE_OF_PARTS, BlindCase, place_of_parts
from bench.bugs.warm import QUIET
from bench.recall.measure import FINDING

LIMIT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Output:
    """What one command printed about one folder."""

    text: str
    exit_code: int | None
    """None where it was stopped after LIMIT_SECONDS."""

    @property
    def findings(self) -> tuple[str, ...]:
        """Rules with an error or a warning, in the order of the output."""
        return tuple(dict.fromkeys(found["rule"] for found in FINDING.finditer(self.text)))


@dataclass(frozen=True, slots=True)
class MeasuredCase:
    """What was printed about a case and its twin."""

    case: BlindCase
    output: Output
    """Of the folder with the fault, or of the healthy set-up."""
    twin: Output | None
    """Of the twin without the fault; a healthy set-up has none."""

    @property
    def is_named(self) -> bool:
        """Does a rule about the fault have a finding on the faulty folder, and not on the twin?"""
        about = set(self.case.named_by)
        alike = set(self.twin.findings) if self.twin is not None else set()
        return bool(about & set(self.output.findings) - alike)

    @property
    def alarms(self) -> tuple[str, ...]:
        """Findings where nothing is wrong."""
        return self.output.findings if self.twin is None else self.twin.findings


def measure_cases(cases: Sequence[BlindCase], unpacked: Path, jobs: int) -> Iterator[MeasuredCase]:
    """All cases, `jobs` at a time, in their order, each as soon as it is known."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(partial(_measure_case, unpacked), cases)


def _measure_case(unpacked: Path, case: BlindCase) -> MeasuredCase:
    folder = unpacked / case.name
    if not case.is_faulty:
        return MeasuredCase(case, _run(case.command, folder / "files"), None)
    twin = _run(case.command, folder / "twin")
    return MeasuredCase(case, _run(case.command, folder / "faulty"), twin)


def _run(command: str, folder: Path) -> Output:
    with tempfile.TemporaryDirectory(prefix="blind-") as scratch:
        # The folder's name must not say whether it holds the fault.
        copy = Path(scratch) / "project"
        shutil.copytree(folder, copy)
        tools = Path(scratch) / "bin"
        tools.mkdir()
        _write_tool(tools / "truetune", "-m truetune")
        _write_tool(tools / "python", "")
        path = os.pathsep.join([str(tools), os.environ["PATH"]])
        # Wide lines, so that a name is never broken in two, and no colours.
        surroundings = os.environ | QUIET | {"COLUMNS": "400", "NO_COLOR": "1", "PATH": path}
        line = command.replace(PLACE_OF_PARTS, str(place_of_parts()))
        try:
            ended = subprocess.run(
                ["bash", "-c", line],
                cwd=copy,
                env=surroundings,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return Output("", None)
    return Output(ended.stdout + ended.stderr, ended.returncode)


def _write_tool(path: Path, arguments: str) -> None:
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
