"""`python -m bench.paired BEFORE/src AFTER/src TOKENIZER...`: `encode` and `check` of two source trees, in turn.

Each run is a whole process (start and writing included) with caches of its own; the two trees run A B A B, and the
ratios are taken pair by pair, so that a machine whose speed drifts does not decide. Both trees run in this Python, with
the packages that are installed here. The ids and labels that both encoded are compared as well.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet

from bench.chats import write
from bench.encode import Process, measured


def encode(source: Path, data: Path, tokenizer: str) -> tuple[Process, str]:
    """One `truetune encode` with an empty cache, and a digest of what it wrote."""
    with tempfile.TemporaryDirectory(dir=data.parent) as folder:
        out, cache = Path(folder) / "out", Path(folder) / "cache"
        command: list[str | Path] = [
            "-m",
            "truetune",
            "encode",
            data,
            "-t",
            tokenizer,
            "-o",
            out,
            "--content-specials",
            "keep",
            "-q",
        ]
        process = measured(command, cache, {"PYTHONPATH": str(source)})
        return process, _digest_ids(out)


def check(source: Path, data: Path, tokenizer: str) -> tuple[Process, str]:
    """One `truetune check`, and a digest of its findings."""
    with tempfile.TemporaryDirectory(dir=data.parent) as folder:
        report = Path(folder) / "report.json"
        command: list[str | Path] = [
            "-m",
            "truetune",
            "check",
            data,
            "-t",
            tokenizer,
            "--max-length",
            "4096",
            "-o",
            report,
        ]
        process = measured(command, Path(folder), {"PYTHONPATH": str(source)}, codes=(0, 1))
        findings = json.loads(report.read_text(encoding="utf-8"))["findings"]
    return process, hashlib.sha256(json.dumps(findings, sort_keys=True).encode()).hexdigest()


def _digest_ids(out: Path) -> str:
    """Of all ids and labels, in order."""
    digest = hashlib.sha256()
    for path in sorted(out.rglob("*.parquet")):
        for row in pyarrow.parquet.read_table(path, columns=["input_ids", "labels"]).to_pylist():
            digest.update(json.dumps(row).encode())
    return digest.hexdigest()


COMMANDS: dict[str, Callable[[Path, Path, str], tuple[Process, str]]] = {
    "encode": encode,
    "check": check,
}


def compare(command: str, trees: tuple[Path, Path], data: Path, tokenizer: str, runs: int) -> str:
    """One line of the table. The trees change the order from pair to pair, so that neither is always first."""
    processes: tuple[list[Process], list[Process]] = ([], [])
    digests: tuple[set[str], set[str]] = (set(), set())
    for run in range(runs):
        for side in (0, 1) if run % 2 == 0 else (1, 0):
            process, digest = COMMANDS[command](trees[side], data, tokenizer)
            processes[side].append(process)
            digests[side].add(digest)
    cells = [f"{Path(tokenizer).name} {command}"]
    for figure in ("wall", "cpu", "peak"):
        before, after = ([getattr(process, figure) for process in side] for side in processes)
        ratios = sorted(new / old for old, new in zip(before, after, strict=True))
        cells += [f"{statistics.median(before):.2f}", f"{statistics.median(after):.2f}"]
        cells.append(f"{statistics.median(ratios):.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    same = digests[0] == digests[1] and len(digests[0]) == 1
    return "| " + " | ".join([*cells, "same" if same else "differ"]) + " |"


def main() -> None:
    """Print a table, one line for each tokenizer and command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "before", type=Path, help="folder that holds the package, of the older tree"
    )
    parser.add_argument("after", type=Path, help="likewise, of the newer tree")
    parser.add_argument("tokenizers", nargs="+", help="tokenizer folders")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    trees = options.before.resolve(), options.after.resolve()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "chats.jsonl"
        write(data, options.rows)
        size = data.stat().st_size / 1e6
        print(
            f"{options.rows:,} chats, {size:.0f} MB; {options.runs} pairs; medians; ratio: after /"
            " before, pair by pair"
        )
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
        columns = [
            f"{name} {tree}"
            for name in ("wall s", "CPU s", "peak MB")
            for tree in ("before", "after", "ratio")
        ]
        print(
            "| | "
            + " | ".join([*columns, "output"])
            + " |\n|---|"
            + "---:|" * len(columns)
            + "---|"
        )
        for tokenizer in options.tokenizers:
            for command in COMMANDS:
                print(compare(command, trees, data, tokenizer, options.runs), flush=True)
        print(f"\nload at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
