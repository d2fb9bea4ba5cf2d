"""`python -m bench.encode TOKENIZER...`: `truetune encode` against TRL's preparation and against encoders alone.

Every contender is a process of its own, and all run in turn, several times; the table gives medians, and ratios pair
by pair. `truetune encode` is counted as a whole process, start and writing included. TRL is counted twice: the call of
`SFTTrainer(...)` alone, and the whole process. The encoders (kitoken, gigatoken, `tokenizers`) get rendered texts, one
a chat, and only the encoding counts. CPU seconds are those of a process and all its children; peak memory is that of
the largest process of them.

With `--trl-rows`, TRL gets only the first rows, and a few rows once more to tell its fixed part from the rest; its
seconds for all rows are extrapolated from the two.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from bench.encoders import ENCODERS
from bench.plot import bars

FEW = 64
OURS, AGAIN = "truetune encode", "truetune encode, again"
TRL, TRL_WHOLE = "TRL, the better", "TRL, the better whole process"
TRL_EACH = {"TRL, 1 process": 1, "TRL, 2 processes": 2}
WRITE = (
    "import sys; from pathlib import Path; from bench.chats import write; write(Path(sys.argv[1]),"
    " int(sys.argv[2]))"
)
PACKAGES = ("trl", "transformers", "datasets", "tokenizers", "kitoken", "gigatoken")


class Process(NamedTuple):
    """What a process took."""

    wall: float
    cpu: float
    """seconds, of it and its children"""
    peak: int
    """MB, of the largest process of them"""
    output: dict[str, Any]


class Failed(Exception):
    """A contender ended with an error."""


@dataclass(frozen=True)
class Sample:
    """One run of one contender; `seconds` are those that count."""

    rows: int
    seconds: float
    wall: float
    cpu: float
    peak: int
    note: str = ""

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


@dataclass(frozen=True)
class Job:
    """What one tokenizer is measured with."""

    tokenizer: str
    place: Path
    """chats.jsonl, and its first rows as trl.jsonl and few.jsonl; the rendered texts"""
    rows: int
    trl_rows: int
    trl_template: str | None
    options: list[str]
    """for `truetune encode`"""


def measured(
    arguments: Iterable[str | Path],
    cache: Path,
    variables: Mapping[str, str] = MappingProxyType({}),
    codes: tuple[int, ...] = (0,),
) -> Process:
    """Run a Python process whose caches lie in `cache`; its last line of output is read where it is JSON.

    `variables` are set in its environment. Raises Failed where its exit code is none of `codes`.
    """
    caches = {"HF_DATASETS_CACHE": str(cache), "XDG_CACHE_HOME": str(cache), "HF_HUB_OFFLINE": "1"}
    environment = {**os.environ, **caches, **variables}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)], stdout=output, stderr=errors, env=environment
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (output, errors):
            file.seek(0)
        *_, said = ["", *output.read().splitlines()]
        *_, complaint = ["no message", *errors.read().splitlines()]
    if process.returncode not in codes:
        raise Failed(f"exit code {process.returncode}: {complaint}")
    found = json.loads(said) if said.startswith("{") else {}
    return Process(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024, found)


def encode(job: Job) -> dict[str, Sample]:
    """A first run, and the same command again. Control tokens that the chats speak of are kept, as TRL does."""
    out, cache = job.place / "out", job.place / "cache"
    command = [
        "-m",
        "truetune",
        "encode",
        str(job.place / "chats.jsonl"),
        "-t",
        job.tokenizer,
        "--output",
        str(out),
    ]
    command += ["--content-specials", "keep", *job.options]
    try:
        done = {name: measured(command, cache) for name in (OURS, AGAIN)}
        manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    finally:
        for folder in (out, cache):
            shutil.rmtree(folder, ignore_errors=True)
    counts = manifest["counts"]
    note = (
        f"{counts['documents']:,} examples, {counts['tokens'] / 1e6:.2f} M tokens,"
        f" {', '.join(manifest['engines'])}"
    )
    return {
        name: Sample(job.rows, run.wall, run.wall, run.cpu, run.peak, note)
        for name, run in done.items()
    }


def trl(job: Job) -> dict[str, Sample]:
    """TRL's preparation in one and in two processes; the better ones under names of their own."""
    each = {name: _prepared(job, processes) for name, processes in TRL_EACH.items()}
    whole = min(each.values(), key=lambda sample: sample.wall)
    return {
        **each,
        TRL: min(each.values(), key=lambda sample: sample.seconds),
        TRL_WHOLE: replace(whole, seconds=whole.wall),
    }


def _prepared(job: Job, processes: int) -> Sample:
    """All rows, extrapolated where TRL gets only the first ones."""

    def run(data: str) -> tuple[Process, float]:
        with tempfile.TemporaryDirectory(dir=job.place) as cache:
            command = [
                "-m",
                "bench.trl_prepare",
                str(job.place / data),
                job.tokenizer,
                str(processes),
            ]
            done = measured([*command, job.trl_template or ""], Path(cache))
            return done, done.output["seconds"]

    done, seconds = run("trl.jsonl")
    wall = done.wall
    if job.trl_rows < job.rows:
        few, few_seconds = run("few.jsonl")
        times = (job.rows - FEW) / (job.trl_rows - FEW)
        seconds = few_seconds + (seconds - few_seconds) * times
        wall = few.wall + (wall - few.wall) * times
    return Sample(job.rows, seconds, wall, done.cpu, done.peak, done.output["masks"])


def alone(job: Job, encoder: str) -> dict[str, Sample]:
    """An encoder with nothing around it."""
    done = measured(["-m", "bench.encoders", encoder, job.place], job.place)
    rows, seconds = done.output["rows"], done.output["seconds"]
    return {f"{encoder} alone": Sample(rows, seconds, done.wall, done.cpu, done.peak)}


def compare(job: Job, runs: int) -> dict[str, Any]:
    """All contenders in turn, so many times; one that fails is left out from then on."""
    texts = measured(
        ["-m", "bench.encoders", "texts", job.place / "chats.jsonl", job.tokenizer, job.place],
        job.place,
    )
    differ = measured(["-m", "bench.encoders", "differ", job.place], job.place)
    contenders: dict[str, Callable[[Job], dict[str, Sample]]] = {OURS: encode, TRL: trl}
    contenders |= {f"{name} alone": partial(alone, encoder=name) for name in ENCODERS}
    samples: dict[str, list[Sample]] = {}
    failed: dict[str, str] = {}
    for _ in range(runs):
        for name, contender in contenders.items():
            if name not in failed:
                try:
                    for part, sample in contender(job).items():
                        samples.setdefault(part, []).append(sample)
                except Failed as error:
                    failed[name] = str(error)
    return {
        "tokenizer": Path(job.tokenizer).name,
        **texts.output,
        "texts whose ids differ": differ.output,
        "failed": failed,
        "contenders": {
            name: summary(some, samples.get(OURS, [])) for name, some in samples.items()
        },
    }


def summary(samples: list[Sample], ours: list[Sample]) -> dict[str, Any]:
    """Medians, and how many times faster `truetune encode` is, pair by pair."""
    ratios = [our.rate / sample.rate for our, sample in zip(ours, samples, strict=False)]
    return {
        "rows/s": round(statistics.median(sample.rate for sample in samples)),
        "seconds": round(statistics.median(sample.seconds for sample in samples), 2),
        "whole process s": round(statistics.median(sample.wall for sample in samples), 2),
        "CPU s": round(statistics.median(sample.cpu for sample in samples), 2),
        "peak MB a process": max(sample.peak for sample in samples),
        "truetune / this": round(statistics.median(ratios), 2) if ratios else None,
        "note": samples[0].note,
        "runs": [asdict(sample) for sample in samples],
    }


def printed(result: Mapping[str, Any]) -> None:
    """One tokenizer as a Markdown table."""
    columns = [
        "rows/s",
        "seconds",
        "whole process s",
        "CPU s",
        "peak MB a process",
        "truetune / this",
    ]
    print(
        f"\n## {result['tokenizer']}: {result['texts']:,} texts, {result['tokens'] / 1e6:.2f} M"
        " tokens"
    )
    print(
        "Texts of the first 1,000 whose ids are not those of tokenizers:"
        f" {result['texts whose ids differ']}.\n"
    )
    print("| | " + " | ".join(columns) + " | |\n|---|" + "---:|" * len(columns) + "---|")
    for name, row in result["contenders"].items():
        cells = (f"{row[column]:,}" if row[column] is not None else "" for column in columns)
        print(f"| {name} | " + " | ".join(cells) + f" | {row['note']} |")
    for name, reason in result["failed"].items():
        print(f"| {name} | failed: {reason} |")
    sys.stdout.flush()


def prefix(source: Path, target: Path, rows: int) -> None:
    with source.open("rb") as whole, target.open("wb") as part:
        part.writelines(islice(whole, rows))


def main() -> None:
    """Print a table for each tokenizer, and write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tokenizers", nargs="+", help="tokenizer folders")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--trl-rows", type=int, help="give TRL only so many rows, and extrapolate")
    parser.add_argument(
        "--trl-template",
        action="append",
        default=[],
        metavar="FOLDER=NAME",
        help="TRL's NAME_training.jinja",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        help="for `truetune encode`: --option=--history=single",
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    options = parser.parse_args()
    templates = dict(pair.split("=") for pair in options.trl_template)
    trl_rows = min(options.trl_rows or options.rows, options.rows)
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }
    results = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        chats = place / "chats.jsonl"
        measured(["-c", WRITE, chats, str(options.rows)], place)
        for name, rows in (("trl.jsonl", trl_rows), ("few.jsonl", FEW)):
            prefix(chats, place / name, rows)
        print(
            f"{options.rows:,} chats, {chats.stat().st_size / 1e6:.0f} MB; medians of"
            f" {options.runs} runs; {machine}"
        )
        if trl_rows < options.rows:
            print(
                f"TRL ran {trl_rows:,} rows; its seconds (not its CPU and memory) are extrapolated"
                " to all."
            )
        for tokenizer in options.tokenizers:
            template = templates.get(Path(tokenizer).name)
            job = Job(tokenizer, place, options.rows, trl_rows, template, options.option)
            results.append(compare(job, options.runs))
            printed(results[-1])
    if options.json:
        made = {
            "rows": options.rows,
            "TRL rows": trl_rows,
            "machine": machine,
            "tokenizers": results,
        }
        options.json.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    if options.plot:
        shown = [OURS, TRL, *(f"{name} alone" for name in ENCODERS)]
        groups = {
            result["tokenizer"]: {
                name: made["rows/s"] for name in shown if (made := result["contenders"].get(name))
            }
            for result in results
        }
        bars(
            options.plot,
            f"Rows per second, {options.rows:,} chats, {os.cpu_count()} cores",
            groups,
            OURS,
        )


if __name__ == "__main__":
    main()
