"""truetune over the cases: each twin in a process of its own, and what that says about each case."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, local
from typing import Any, Literal, NamedTuple

from bench.bugs.case import Case, inputs
from bench.bugs.warm import Warm, environment
from tests.parts.shelf import Missing
from truetune.checks.findings import RANK
from truetune.settings.run_spec import Severity

Verdict = Literal["found", "other rule", "missed", "failed", "skipped"]
LIMIT = 300
"""seconds that one call may take"""
BUILDING = Lock()
"""transformers can't be imported by two threads at once"""
WARM = local()


class Said(NamedTuple):
    """What one call of truetune said."""

    findings: tuple[dict[str, Any], ...]
    seconds: float
    error: str = ""
    """Why there is no report."""

    def rules(self, severity: Severity = "warning") -> set[str]:
        """Those with a finding of at least this severity."""
        return {f["rule"] for f in self.findings if RANK[f["severity"]] >= RANK[severity]}


@dataclass(frozen=True, slots=True)
class Trial:
    """A case, tried with one tokenizer."""

    case: str
    family: str | None
    verdict: Verdict
    by: tuple[str, ...] = ()
    """The rules that found it."""
    alarms: tuple[str, ...] = ()
    """Rules with an error or a warning about the clean twin"""
    seconds: float = 0.0
    """wall time of the call on the broken twin"""
    note: str = ""
    messages: tuple[str, ...] = ()
    """What they said"""


def truetune(arguments: list[str], folder: Path, rollouts: bool = False) -> Said:
    """`python -m truetune ARGUMENTS --format json`, called in a folder; with `rollouts`, both reports of a run."""
    runs = "--" in arguments
    middle = arguments.index("--") if runs else len(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        if runs:
            folder = shutil.copytree(folder, Path(scratch, "run"))
        words = [
            *arguments[:middle],
            "--format",
            "json",
            *(("-o", str(report)) if runs else ("--quiet",)),
        ]
        command = [sys.executable, "-m", "truetune", *words, *arguments[middle:]]
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(runs),
            start_new_session=True,
        )
        try:
            out, complaints = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return Said((), LIMIT, f"no answer in {LIMIT} s")
        seconds = time.perf_counter() - began
        files = [report, report.with_stem("report-2")] if rollouts else [report]
        is_whole = all(file.exists() for file in files)
        texts = (
            [out] if not runs else [file.read_text("utf-8") for file in files] if is_whole else []
        )
    if process.returncode not in (0, 1) or not all(texts) or not texts:
        said = [line for line in complaints.splitlines() if line.startswith("truetune: ")] or [
            complaints[-300:]
        ]
        return Said((), seconds, f"exit code {process.returncode}: {said[-1].strip()}")
    return Said(tuple(one for text in texts for one in json.loads(text)["findings"]), seconds)


def warm(arguments: list[str], folder: Path, rollouts: bool = False) -> Said:
    """The same for a script that is run, in this thread's warm process."""
    if not hasattr(WARM, "process"):
        WARM.process = Warm()
    began = time.perf_counter()
    answer = WARM.process.ask(arguments, folder, LIMIT, rollouts)
    return Said(
        tuple(answer.get("findings", ())), time.perf_counter() - began, answer.get("error", "")
    )


def trial(case: Case, family: str | None, processes: bool = False) -> Trial:
    """Both twins of a case; those that are run in a warm process, or by the command where `processes` asks for it."""
    try:
        with BUILDING:
            twins = inputs(case, family)
            told = [twins.arguments(case, side) for side in ("broken", "clean")]
    except Missing as reason:
        return Trial(case.name, family, "skipped", note=str(reason))
    except Exception as error:
        return Trial(case.name, family, "failed", note=f"make.py: {error!r}")
    call = warm if case.warm and not processes else truetune
    said = [
        call(words, folder, case.stage == "rollout")
        for words, folder in zip(told, (twins.broken, twins.clean), strict=True)
    ]
    return judged(case, family, *said)


def judged(case: Case, family: str | None, broken: Said, clean: Said) -> Trial:
    """Found is what a right rule says of the broken twin, and does not say of the clean one."""
    alarms = clean.rules() - set(case.besides) | ({clean.error} if clean.error else set())
    right = (broken.rules(case.severity) & set(case.rules)) - clean.rules(case.severity)
    other = broken.rules() - clean.rules() - set(case.rules)
    verdict: Verdict = (
        "failed" if broken.error else "found" if right else "other rule" if other else "missed"
    )
    return Trial(
        case=case.name,
        family=family,
        verdict=verdict,
        by=tuple(sorted(right or other)),
        alarms=tuple(sorted(alarms)),
        seconds=round(broken.seconds, 2),
        note=broken.error,
        messages=tuple(f["message"] for f in broken.findings if f["rule"] in (right or other)),
    )


def trials(chosen: Iterable[Case], processes: bool = False) -> list[Trial]:
    """Every case with each of its tokenizers, as many at a time as there are processors."""
    pairs: list[tuple[Case, str | None]] = [
        (case, family) for case in chosen for family in case.families or (None,)
    ]
    build([pair for pair in pairs if not pair[0].static])
    done = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(lambda pair: trial(pair[0], pair[1], processes), pairs):
            print(line(result), flush=True)
            done.append(result)
    return done


def line(trial: Trial) -> str:
    """One line about a trial."""
    family = f" [{trial.family}]" if trial.family else ""
    alarms = f"  FALSE ALARM: {', '.join(trial.alarms)}" if trial.alarms else ""
    return (
        f"{trial.verdict:10}  {trial.case}{family}  {', '.join(trial.by)}  {trial.seconds} s "
        f" {trial.note}{alarms}"
    )


def build(pairs: list[tuple[Case, str | None]]) -> None:
    """Lay out the inputs that make.py builds, in few processes: importing torch is what takes long."""
    if pairs:
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_built, *zip(*pairs, strict=True)))


def _built(case: Case, family: str | None) -> None:
    """What goes wrong here goes wrong again, and is told, when the case is tried."""
    with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
        inputs(case, family)
