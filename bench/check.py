"""`python -m bench.check TOKENIZER...`: a whole `truetune check` against `encode_batch` alone on the same texts.

Both run in turn, several times; the table gives medians and the ratios pair by pair. Where the template rewrites
earlier turns (Qwen3), a check encodes one example a turn and not one text a chat: both are compared. Peak memory is
that of the whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.chats import write

ENCODE = """
import json, sys, time
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.render.template_probes import make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec
tokenizer = load_tokenizer(sys.argv[2])
renderer = make_probes(tokenizer, RunSpec(history=sys.argv[3])).renderer()
texts = [rendering.text for row in read_conversations([sys.argv[1]]) for rendering in renderer.render(row)]
began = time.perf_counter()
encodings = tokenizer.backend.encode_batch(texts, add_special_tokens=False)
seconds = time.perf_counter() - began
print(json.dumps({"seconds": seconds, "tokens": sum(len(e) for e in encodings)}))
"""
PYTHON = [sys.executable, "-c"]


def measured(command: list[str]) -> tuple[float, int, str]:
    """(wall seconds, peak memory in MB, output) of a whole process."""
    import time

    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{command} ended with {process.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss // 1024, output


def compare(data: Path, tokenizer: str, runs: int) -> dict[str, float | int | str]:
    """Medians over pairs of runs."""
    check = [
        sys.executable,
        "-m",
        "truetune",
        "check",
        str(data),
        "-t",
        tokenizer,
        "--quiet",
        "--max-length",
        "4096",
    ]
    encode = [*PYTHON, ENCODE, str(data), tokenizer]
    seconds, memory, rows, examples, tokens = [], 0, [], [], 0
    for _ in range(runs):
        once = json.loads(measured([*encode, "single"])[2])
        wall, peak, _ = measured(check)
        served = json.loads(measured([*encode, "as-served"])[2])
        seconds.append(wall)
        rows.append(once["seconds"])
        examples.append(served["seconds"])
        memory, tokens = max(memory, peak), once["tokens"]
    return {
        "tokenizer": Path(tokenizer).name,
        "tokens": tokens,
        "check s": round(statistics.median(seconds), 2),
        "encode_batch s, one text a chat": round(statistics.median(rows), 2),
        "ratio": round(statistics.median(a / b for a, b in zip(seconds, rows, strict=True)), 2),
        "encode_batch s, every example": round(statistics.median(examples), 2),
        "ratio to that": round(
            statistics.median(a / b for a, b in zip(seconds, examples, strict=True)), 2
        ),
        "peak MB": memory,
    }


def main() -> None:
    """Print a table, one line a tokenizer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "chats.jsonl"
        write(data, arguments.rows)
        print(
            f"{arguments.rows:,} chats, {data.stat().st_size / 1e6:.0f} MB, {arguments.runs} pairs"
            " of runs"
        )
        startup = [measured([sys.executable, "-m", "truetune", "--help"])[0] for _ in range(5)]
        print(f"truetune --help: {statistics.median(startup):.3f} s")
        for tokenizer in arguments.tokenizers:
            print(json.dumps(compare(data, tokenizer, arguments.runs)), flush=True)


if __name__ == "__main__":
    main()
