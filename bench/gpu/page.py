"""The results of the GPU bench as JSON and as a page that documents can include.

python -m bench.gpu.page gpu.json               print the page
python -m bench.gpu.page gpu.json --write       and put it into docs/bench.md
python -m bench.gpu.page gpu.json --logs FOLDER write what each failing program of `messages` printed, one file each
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.gpu.entries import Entry, Value

DOCUMENT = Path(__file__).parents[2] / "docs" / "bench.md"
BEGIN, END = "<!-- gpu -->\n", "<!-- /gpu -->"
"""What stands between them in the document is replaced"""
SCHEMA = "truetune.gpu-bench/1"
TITLES: Mapping[str, str] = {
    "environment": "The machine",
    "messages": "Real failures, as diagnose reads them",
    "correctness": "Packed as alone, on the card as on the CPU",
    "memory": "The plan beside the card",
    "throughput": "Training beside TRL",
    "grpo": "Training by rewards beside TRL",
}
"""Section -> its heading, in the order of the page"""
INTRODUCTIONS: Mapping[str, str] = {
    "messages": "Each program fails in one planted way; `truetune diagnose` reads what it printed.",
    "correctness": "Losses in nats a token, compared token by token. The control is the same pack without its borders:"
    " it has to differ.",
    "memory": "Peak of tensors in the second step (`torch.cuda.max_memory_allocated`), in GiB; `reserved` is what the"
    " allocator holds. A plan that is off by more than 15 % fails.",
    "throughput": "The same model, packed rows, optimizer and settings in one process, in turn. Start included: from"
    " building the trainer to its last step. MFU leaves attention out.",
    "grpo": "`truetune train` with `method: grpo` and TRL's own GRPOTrainer: the same weights, prompts, seed and"
    " settings; each rollout is learned from twice. Timed steps come after those that the audit records; the whole time"
    " of truetune has its checks and its saved weights in it. The plan is its largest moment; off by more than 15 %, it"
    " fails.",
}


def write_results(
    results: Path, markdown: Path, entries: Sequence[Entry], size: str, minutes: float
) -> None:
    """Write both files from the entries so far."""
    document = {
        "schema": SCHEMA,
        "size": size,
        "minutes": minutes,
        "date": datetime.date.today().isoformat(),
        "entries": [asdict(entry) for entry in entries],
    }
    results.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    markdown.write_text(render_page(entries), encoding="utf-8")


def read_results(path: Path) -> list[Entry]:
    """The entries of a gpu.json. Raises ValueError for a file of another kind."""
    document = json.loads(path.read_text(encoding="utf-8"))
    if document.get("schema") != SCHEMA:
        raise ValueError(f"{path}: expected the schema {SCHEMA}, found {document.get('schema')}")
    return [Entry(**entry) for entry in document["entries"]]


def summary_line(section: str, entries: Iterable[Entry], seconds: float) -> str:
    """What a section came to, in one line."""
    counts = Counter(entry.status for entry in entries if entry.section == section)
    words = [f"{count} {status}" for status, count in sorted(counts.items())]
    return f"{section:<12} {seconds:6.1f} s  {', '.join(words) or 'nothing measured'}"


def render_page(entries: Sequence[Entry]) -> str:
    """All sections, each with a table; sections without an entry are left out."""
    parts = []
    for section, title in TITLES.items():
        own = [entry for entry in entries if entry.section == section]
        if not own:
            continue
        parts.append(f"### {title}\n")
        if section in INTRODUCTIONS:
            parts.append(f"{INTRODUCTIONS[section]}\n")
        if section == "environment":
            parts += [_facts(entry) for entry in own]
        else:
            # One table for what has the same figures: one for all would be mostly empty.
            for columns in dict.fromkeys(tuple(entry.figures) for entry in own if entry.figures):
                parts.append(_table(columns, [e for e in own if tuple(e.figures) == columns]))
            parts += [
                f"- {entry.name}: {entry.status} ({_cell(entry.note)})"
                for entry in own
                if not entry.figures
            ]
            parts.append("")
    return "\n".join(parts)


def write_document(text: str, path: Path = DOCUMENT) -> None:
    """Put the page between the markers of a document. Raises ValueError where it does not have both."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path}: expected {BEGIN.strip()} and {END} in it")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def _facts(entry: Entry) -> str:
    """The figures of one entry, one a line: there are too many for a row."""
    figures = [f"- {name}: {_cell(value)}" for name, value in entry.figures.items()]
    note = f" ({_cell(entry.note)})" if entry.note else ""
    return "\n".join([f"{entry.name}{note}:\n", *figures, ""])


def _table(columns: Sequence[str], entries: Sequence[Entry]) -> str:
    """One row an entry."""
    lines = [
        f"| | result | {' | '.join([*columns, 'note'])} |",
        f"|---|---|{'---|' * (len(columns) + 1)}",
    ]
    for entry in entries:
        values = [_cell(entry.figures[column]) for column in columns]
        lines.append(f"| {' | '.join([entry.name, entry.status, *values, _cell(entry.note)])} |")
    return "\n".join([*lines, ""])


def _cell(value: Value) -> str:
    """A value as a table shows it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return value.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def write_logs(entries: Iterable[Entry], folder: Path) -> list[Path]:
    """What each program of `messages` printed, as NAME.log: real texts for tests of `diagnose`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for entry in entries:
        if entry.section == "messages" and entry.text:
            name = re.sub(r"[^a-z0-9]+", "-", entry.name.lower()).strip("-")
            path = folder / f"{name}.log"
            path.write_text(entry.text, encoding="utf-8")
            written.append(path)
    return written


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the page of results, or write the logs of their programs."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu.page", description=__doc__.split("\n")[0]
    )
    parser.add_argument("results", type=Path, help="a gpu.json")
    parser.add_argument("--write", action="store_true", help="put the page into docs/bench.md")
    parser.add_argument("--logs", type=Path, help="write the programs' output into this folder")
    asked = parser.parse_args(arguments)
    entries = read_results(asked.results)
    if asked.logs is not None:
        for path in write_logs(entries, asked.logs):
            print(path)
        return
    text = render_page(entries)
    print(text)
    if asked.write:
        write_document(text)


if __name__ == "__main__":
    main()
