"""Logs of one record a line: JSONL and CSV; and JSON files that hold a list of records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truetune.errors import DataError
from truetune.logs.builder import Builder
from truetune.logs.cells import is_stream, read_stream
from truetune.parsing import InputLimitError
from truetune.parsing.bounded_files import check_blank_lines
from truetune.parsing.csv_reader import CsvReader
from truetune.parsing.csv_reader import Error as CsvError
from truetune.parsing.json_reader import parse_json
from truetune.parsing.json_reader import read_json as read_json_file
from truetune.parsing.limits import LOG, LOG_RECORD

MAX_CSV_RECORD = 1 << 17
"""Characters of one row of a table; the widest tables of published runs have some thousand."""
MAX_LINE = LOG_RECORD.max_bytes
"""Longer lines are no records."""


def read_jsonl(path: Path, into: Builder) -> None:
    """One JSON object a line (LLaMA-Factory, ms-swift, torchtune, own loggers)."""
    for line in _lines(path, into):
        if not line.strip():
            continue
        try:
            record = parse_json(line, LOG_RECORD)
        except ValueError:
            into.note(f"{path.name}: lines that are no JSON")
            continue
        if isinstance(record, dict):
            into.record(record)
        else:
            into.note(f"{path.name}: lines that are no records")


def read_csv(path: Path, into: Builder) -> None:
    """A table with a header (Lightning's metrics.csv, litgpt, exports of W&B: `run - train/loss`)."""
    rows = CsvReader(_lines(path, into), max_characters=MAX_CSV_RECORD)
    try:
        header = [_column(name) for name in next(rows, [])]
        if len(named := [name for name in header if name]) > len(set(named)):
            into.note(f"{path.name}: columns of one name, of which the last is taken")
        for row in rows:
            if len(row) > len(header):
                into.note(f"{path.name}: rows with more cells than the header")
            into.record(
                {name: cell for name, cell in zip(header, row, strict=False) if name and cell != ""}
            )
    except (CsvError, InputLimitError) as error:
        into.note(f"{path.name}: the rest is left out ({error})")


def read_json(path: Path, into: Builder) -> None:
    """A JSON file: a trainer_state, a list of records, or results (`all_results.json`). Raises DataError."""
    content = load_json(path)
    if isinstance(content, dict) and "log_history" in content:
        read_state(content, into)
    elif is_stream(content):
        into.format = "printed output"
        read_stream(content, path.name, into)
    elif isinstance(content, dict):
        into.facts.update({k: v for k, v in content.items() if isinstance(v, int | float | str)})
    else:
        _each(content, path.name, into)


def read_state(state: dict[str, Any], into: Builder) -> None:
    """The content of a trainer_state.json of transformers."""
    into.format = "transformers"
    facts = {name: value for name, value in state.items() if isinstance(value, int | float | str)}
    into.facts.update(facts)
    _each(state.get("log_history") or [], "log_history", into)


def load_json(path: Path) -> Any:
    """The content of a JSON file. Raises DataError."""
    try:
        return read_json_file(path, LOG)
    except InputLimitError as error:
        raise DataError(f"{path}: {error}, so it is no log that can be read") from None
    except ValueError as error:
        raise DataError(
            f"{path}: it is no JSON ({error}); is it cut off? Take the file of an older checkpoint"
        ) from None


def _each(records: Any, name: str, into: Builder) -> None:
    if not isinstance(records, list):
        raise DataError(
            f"{into.path}: {name} is {type(records).__name__}; a list of records was expected"
        )
    for record in records:
        if isinstance(record, dict):
            into.record(record)
        else:
            into.note(f"{name}: entries that are no records")


def _lines(path: Path, into: Builder) -> Iterator[str]:
    """The lines of a log that can be read; a note says of the others what is left out."""
    blank = others = 0
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        while line := file.readline(MAX_LINE):
            if len(line) == MAX_LINE and not line.endswith("\n"):
                into.note(f"{path.name}: lines longer than {MAX_LINE:,} characters")
                while line and not line.endswith("\n"):
                    line = file.readline(MAX_LINE)
                continue
            if "\0" in line:
                into.note(f"{path.name}: lines with null bytes")
                line = line.replace("\0", "")
            if line.isspace():
                blank += 1
            else:
                others += 1
            try:
                check_blank_lines(blank, others)
            except InputLimitError as error:
                into.note(f"{path.name}: the rest is left out ({error})")
                return
            if "\ufffd" in line:
                into.note(f"{path.name}: lines that are no UTF-8")
            yield line


def _column(name: str) -> str:
    """`run-7 - train/loss` -> `train/loss`; nothing for W&B's columns of minima and maxima."""
    name = name.strip().rpartition(" - ")[2]
    return "" if name.endswith(("__MIN", "__MAX")) else name
