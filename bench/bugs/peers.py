"""Other people's checkers over the same cases, each at the version and with the commands that peers.yaml names."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bench.bugs.case import Case, Twins, inputs
from bench.bugs.run import BUILDING
from tests.parts.shelf import Missing, lay

LIMIT = 180
"""seconds that one call may take"""


@dataclass(frozen=True, slots=True)
class Try:
    """What a peer said about a case that it claims to cover."""

    peer: str
    case: str
    family: str | None
    found: tuple[str, ...]
    """What it said of the broken twin alone"""
    alarms: tuple[str, ...]
    """What it said of the clean twin"""
    seconds: float
    note: str = ""
    """How it failed, where it did"""


@cache
def peers() -> dict[str, dict[str, Any]]:
    """peers.yaml."""
    told: dict[str, dict[str, Any]] = yaml.safe_load(
        Path(__file__).with_name("peers.yaml").read_text("utf-8")
    )
    return told


def run(cases: Iterable[Case], wanted: str = "*") -> list[Try]:
    """Every peer whose name fits over the cases that it claims."""
    chosen, jobs = tuple(cases), []
    for name, told in peers().items():
        if fnmatchcase(name, wanted) and "runs" in told:
            folder = installed(name)
            jobs += [
                (name, folder, how, case, family)
                for how in told["runs"]
                for case, family in _claimed(how, chosen)
            ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = []
        for result in pool.map(lambda job: attempt(*job), jobs):
            if result is not None:
                print(line(result), flush=True)
                done.append(result)
        return done


def line(tried: Try) -> str:
    """One line about an attempt."""
    verdict = "failed" if tried.note else "found" if tried.found else "missed"
    family = f" [{tried.family}]" if tried.family else ""
    alarms = f"  FALSE ALARM: {', '.join(tried.alarms)}" if tried.alarms else ""
    said = ", ".join(tried.found)
    return (
        f"{tried.peer:22} {verdict:7} {tried.case}{family}  {said}  {tried.seconds} s "
        f" {tried.note}{alarms}"
    )


def installed(name: str) -> Path:
    """The folder in which pip puts a peer, beside the packages that are installed already."""
    told = peers()[name]

    def fill(folder: Path) -> None:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--quiet",
            "install",
            "--target",
            str(folder),
        ]
        subprocess.run([*pip, *told.get("install", ()), f"{name}=={told['version']}"], check=True)
        if "needs" in told:
            subprocess.run([*pip, *told["needs"]], check=True)

    return lay(f"bugs/peers/{name}-{told['version']}", fill)


def attempt(
    peer: str, folder: Path, how: dict[str, Any], case: Case, family: str | None
) -> Try | None:
    """The peer on both twins; None where the case has nothing that its command takes, or can't be had here."""
    try:
        with BUILDING:
            twins = inputs(case, family)
        commands = [_command(how["command"], case, twins, side) for side in ("broken", "clean")]
    except (Missing, KeyError):
        return None
    broken, seconds, failed = _said(folder, commands[0])
    clean, _, failed_clean = _said(folder, commands[1])
    before = set(_found(how["finding"], clean))
    return Try(
        peer,
        case.name,
        family,
        found=tuple(sorted(set(_found(how["finding"], broken)) - before)),
        alarms=tuple(sorted(set(_found(how.get("alarm", how["finding"]), clean)))),
        seconds=round(seconds, 2),
        note=failed or failed_clean,
    )


def _claimed(how: dict[str, Any], cases: Iterable[Case]) -> Iterator[tuple[Case, str | None]]:
    """The cases that a run covers, each with the first of its tokenizers."""
    for case in cases:
        if any(fnmatchcase(case.name, pattern) for pattern in how["cases"]):
            yield case, next(iter(case.families), None)


def _command(template: str, case: Case, twins: Twins, side: str) -> list[str]:
    """Raises KeyError where truetune's command has not what the peer's needs."""
    given = twins.arguments(case, side)
    path = Path(given[1])
    values = {
        "path": given[1],
        "log": str(path / "trainer_state.json" if path.is_dir() else path),
        "length": "2048",
    }
    for option, name in (
        ("-t", "tokenizer"),
        ("--eval-data", "eval"),
        ("--max-length", "length"),
        ("--base", "base"),
    ):
        if option in given:
            values[name] = given[given.index(option) + 1]
    return [word.format(**values) for word in shlex.split(template)]


def _said(folder: Path, command: list[str]) -> tuple[str, float, str]:
    """(output, seconds, how it failed) of `python -m COMMAND`, called in an empty folder."""
    quiet = {"COLUMNS": "240", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **quiet, "PYTHONPATH": str(folder)}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as empty:
        try:
            done = subprocess.run(
                [sys.executable, "-m", *command],
                cwd=empty,
                env=environment,
                capture_output=True,
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            return "", LIMIT, f"no answer in {LIMIT} s"
    output, errors = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    crashed = "Traceback (most recent call last)" in errors
    return (
        output + errors,
        time.perf_counter() - began,
        errors.strip().splitlines()[-1][:200] if crashed else "",
    )


def _found(pattern: str, output: str) -> list[str]:
    return re.findall(pattern, output, flags=re.MULTILINE)
