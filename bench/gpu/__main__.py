"""`python -m bench.gpu`: all sections in turn, each in a process of its own, within a number of minutes.

What is found is written as it is found: `entries.jsonl` entry by entry, `gpu.json` and `gpu.md` after each section. A
section that hangs is ended with all its programs when its time is over, and what it had measured is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.gpu import page
from bench.gpu.entries import Budget, Entry, append_entry, error_entry, read_entries
from bench.gpu.size import CARD, SIZES, Size

ENTRIES, RESULTS, PAGE = "entries.jsonl", "gpu.json", "gpu.md"
GRACE_S = 12.0
"""Seconds that a section gets beyond its own time, to end by itself, before it is ended"""
FULL_MINUTES = 14.0
"""The minutes that the seconds of SECTIONS are for"""
ENVIRONMENT = {
    # No network: what would ask for a file has to fail at once and not wait.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "WANDB_DISABLED": "true",
}


@dataclass(frozen=True)
class Section:
    """One part of the bench."""

    name: str
    """Of its module in bench.gpu"""
    seconds: float
    """Of FULL_MINUTES, at most; what it leaves goes to the last section"""


# In the order of what would be missed most. The last one has all the time that is left.
SECTIONS = (
    Section("environment", 90),
    Section("messages", 110),
    Section("correctness", 130),
    Section("memory", 120),
    Section("throughput", 115),
    Section("grpo", 270),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench, or one section of it. The exit code is 1 where something failed or raised."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/gpu"), help="folder of the results"
    )
    parser.add_argument("--size", choices=sorted(SIZES), default=CARD.name)
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES)
    parser.add_argument("--only", help="names of sections, with commas between")
    parser.add_argument(
        "--in-process", action="store_true", help="all sections in this process: no timeouts"
    )
    parser.add_argument("--section", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    size = SIZES[asked.size]
    if asked.section:
        measure_section(asked.section, size, Budget.of(asked.seconds), asked.out)
        return 0
    return run_bench(
        asked.out,
        size,
        asked.minutes,
        only=asked.only.split(",") if asked.only else None,
        in_process=asked.in_process,
    )


def run_bench(
    out: Path,
    size: Size,
    minutes: float,
    *,
    only: Sequence[str] | None = None,
    in_process: bool = False,
    sections: Sequence[Section] = SECTIONS,
) -> int:
    """Run the sections in turn and write the results after each; the exit code.

    Args:
        out: folder of the results; those of an earlier run are replaced.
        size: how large everything is.
        minutes: for all sections together.
        only: names of the sections that are run; all where None.
        in_process: run them here, where a hang is not ended.
        sections: in the order of their priority.
    """
    (out / ENTRIES).unlink(missing_ok=True)
    os.environ.update(ENVIRONMENT)
    ends = time.monotonic() + 60 * minutes
    chosen = [section for section in sections if only is None or section.name in only]
    for section in sections:
        started = time.monotonic()
        seconds = ends - started
        if section is not chosen[-1]:
            seconds = min(seconds, section.seconds * minutes / FULL_MINUTES)
        if section not in chosen:
            note = "not asked for (--only)"
            append_entry(out / ENTRIES, Entry(section.name, "section", "not run", note=note))
        elif seconds <= 0:
            note = f"the {minutes:g} minutes were over"
            append_entry(out / ENTRIES, Entry(section.name, "section", "not run", note=note))
        elif in_process:
            measure_section(section.name, size, Budget.of(seconds), out)
        else:
            _run_in_child(section.name, size, seconds, out)
        entries = read_entries(out / ENTRIES)
        page.write_results(out / RESULTS, out / PAGE, entries, size.name, minutes)
        print(page.summary_line(section.name, entries, time.monotonic() - started), flush=True)
    return int(any(entry.status in ("failed", "error") for entry in read_entries(out / ENTRIES)))


def measure_section(name: str, size: Size, budget: Budget, out: Path) -> None:
    """Measure one section here, and write each entry as soon as it is known."""
    warnings.simplefilter("ignore", FutureWarning)
    try:
        module = importlib.import_module(f"bench.gpu.{name}")
        for entry in module.measure(size, budget):
            append_entry(out / ENTRIES, entry)
    # The other sections have to run, whatever this one meets; a missing package is one such thing.
    except Exception as error:
        append_entry(out / ENTRIES, error_entry(name, "section", error))


def _run_in_child(name: str, size: Size, seconds: float, out: Path) -> None:
    """Measure one section in a process of its own, and end that with all its programs when the time is over."""
    command = [sys.executable, "-m", "bench.gpu", "--section", name, "--size", size.name]
    command += ["--seconds", str(seconds), "--out", str(out)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        problem = ""
        try:
            code = process.wait(seconds + GRACE_S)
            if code:
                problem = f"its process ended with {code}"
        except subprocess.TimeoutExpired:
            problem = f"not done after {seconds + GRACE_S:.0f} s: ended"
        finally:
            # The whole group, also after a good end: a program of the section may hang.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if problem:
            output.seek(0)
            entry = Entry(name, "section", "error", note=problem, text=output.read()[-8000:])
            append_entry(out / ENTRIES, entry)


if __name__ == "__main__":
    sys.exit(main())
