"""Reads logs of one record a line (JSONL, CSV), and JSON files that hold a list of records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truetune.errors import DataError
from truetune.logs.canonical_metric_names import METRIC_ALIASES
from truetune.logs.read_notebook_and_kaggle_output import is_kaggle_log, read_kaggle_log
from truetune.logs.run_log_builder import RunLogBuilder
from truetune.parsing import InputLimitError
from truetune.parsing.input_limits import LOG, LOG_RECORD
from truetune.parsing.parse_json_within_limits import parse_json, read_json
from truetune.parsing.read_csv_within_limits import CsvReader
from truetune.parsing.read_csv_within_limits import Error as CsvError
from truetune.parsing.read_files_within_limits import refuse_mostly_blank_lines

MAX_CSV_CHARACTERS = 1 << 17
"""Characters of one row of a table; the widest tables of published runs have some thousand."""
MAX_LINE_CHARACTERS = LOG_RECORD.max_bytes
"""Longer lines are no records."""
TENSORBOARD_COLUMNS = ("Wall time", "Step", "Value")
"""What TensorBoard writes of one curve that is downloaded as CSV"""
EVALUATOR_COLUMNS = ("epoch", "steps")
"""With which the tables of sentence-transformers' evaluators begin"""
KNOWN_CURVES = (
    *METRIC_ALIASES,
    "loss",
    "eval_loss",
    "learning_rate",
    "grad_norm",
    "reward",
    "kl",
    "entropy",
)
"""Names of curves that a file may be called by"""


def read_jsonl_log(path: Path, log_builder: RunLogBuilder) -> None:
    """Read a log of one JSON object a line (LLaMA-Factory, ms-swift, torchtune, verl, own loggers)."""
    for line in _lines_within_limit(path, log_builder):
        if not line.strip():
            continue
        try:
            record = parse_json(line, LOG_RECORD)
        except ValueError:
            log_builder.note_skipped(f"{path.name}: lines that are no JSON")
            continue
        if isinstance(record, dict):
            log_builder.add_record(_record_without_envelope(record))
        else:
            log_builder.note_skipped(f"{path.name}: lines that are no records")


def read_csv_log(path: Path, log_builder: RunLogBuilder) -> None:
    """Read a CSV table with a header (Lightning's metrics.csv, litgpt, exports of W&B: `run -
    train/loss`).
    """
    rows = CsvReader(_lines_within_limit(path, log_builder), max_characters=MAX_CSV_CHARACTERS)
    try:
        header = _metrics_of_header([name.strip() for name in next(rows, [])], path.stem)
        named = [name for name in header if name]
        if len(named) > len(set(named)):
            log_builder.note_skipped(
                f"{path.name}: columns of one name, of which the last is taken"
            )
        for row in rows:
            if len(row) > len(header):
                log_builder.note_skipped(f"{path.name}: rows with more cells than the header")
            # Lightning writes one row for each call of log(): most cells of a row are empty, and no zeros
            log_builder.add_record(
                {name: cell for name, cell in zip(header, row, strict=False) if name and cell != ""}
            )
    except (CsvError, InputLimitError) as error:
        log_builder.note_skipped(f"{path.name}: the rest is left out ({error})")


def read_json_log(path: Path, log_builder: RunLogBuilder) -> None:
    """Read a JSON file: a trainer_state, a list of records, or results (`all_results.json`). Raises
    DataError.
    """
    content = load_log_json(path)
    if isinstance(content, dict) and "log_history" in content:
        add_trainer_state(content, log_builder)
    elif is_kaggle_log(content):
        log_builder.format = "printed output"
        read_kaggle_log(content, path.name, log_builder)
    elif _is_table_of_curves(content):
        _add_table_of_curves(content, log_builder)
    elif isinstance(content, dict):
        log_builder.facts.update(
            {k: v for k, v in content.items() if isinstance(v, int | float | str)}
        )
    else:
        _add_list_of_records(content, path.name, log_builder)


def add_trainer_state(state: dict[str, Any], log_builder: RunLogBuilder) -> None:
    """Add the records and facts in a trainer_state.json of transformers."""
    log_builder.format = "transformers"
    facts = {name: value for name, value in state.items() if isinstance(value, int | float | str)}
    log_builder.facts.update(facts)
    _add_list_of_records(state.get("log_history") or [], "log_history", log_builder)


def load_log_json(path: Path) -> Any:
    """The content of a JSON file. Raises DataError."""
    try:
        return read_json(path, LOG)
    except InputLimitError as error:
        raise DataError(f"{path}: {error}, so it is no log that can be read") from None
    except ValueError as error:
        raise DataError(
            f"{path}: it is no JSON ({error}); is it cut off? Take the file of an older checkpoint"
        ) from None


def _record_without_envelope(record: dict[str, Any]) -> dict[str, Any]:
    """The figures of a record with its step: verl's logger of files writes `{"step": 3, "data": {...}}`."""
    figures = record.get("data")
    if record.keys() == {"step", "data"} and isinstance(figures, dict):
        return {**figures, "step": record["step"]}
    return record


def _is_table_of_curves(content: Any) -> bool:
    """Is it one object of curves by name, each of values by step? NeMo-RL's tools write metrics.json so."""
    if not isinstance(content, dict) or not content:
        return False
    return all(
        isinstance(curve, dict) and curve and all(step.isdecimal() for step in curve)
        for curve in content.values()
    )


def _add_table_of_curves(content: dict[str, dict[str, Any]], log_builder: RunLogBuilder) -> None:
    """Add the curves of such an object, step by step."""
    by_step: dict[int, dict[str, Any]] = {}
    for name, curve in content.items():
        for step, value in curve.items():
            by_step.setdefault(int(step), {})[name] = value
    for number in sorted(by_step):
        log_builder.add_record({**by_step[number], "step": number})


def _add_list_of_records(records: Any, name: str, log_builder: RunLogBuilder) -> None:
    """Adds a list of records, and notes entries that are none. Raises DataError where it is no list."""
    if not isinstance(records, list):
        raise DataError(
            f"{log_builder.path}: {name} is {type(records).__name__}; a list of records was expected"
        )
    for record in records:
        if isinstance(record, dict):
            log_builder.add_record(record)
        else:
            log_builder.note_skipped(f"{name}: entries that are no records")


def _lines_within_limit(path: Path, log_builder: RunLogBuilder) -> Iterator[str]:
    """The lines of a log that can be read; a note says of the others what is left out."""
    blank = others = 0
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        while line := file.readline(MAX_LINE_CHARACTERS):
            if len(line) == MAX_LINE_CHARACTERS and not line.endswith("\n"):
                log_builder.note_skipped(
                    f"{path.name}: lines longer than {MAX_LINE_CHARACTERS:,} characters"
                )
                # the rest of the line is read in parts and dropped: whole, it may not fit into memory
                while line and not line.endswith("\n"):
                    line = file.readline(MAX_LINE_CHARACTERS)
                continue
            # disks that fill up, and hosts that crash, leave null bytes in the last block of a file
            if "\0" in line:
                log_builder.note_skipped(f"{path.name}: lines with null bytes")
                line = line.replace("\0", "")
            if line.isspace():
                blank += 1
            else:
                others += 1
            try:
                refuse_mostly_blank_lines(blank, others)
            except InputLimitError as error:
                log_builder.note_skipped(f"{path.name}: the rest is left out ({error})")
                return
            if "\ufffd" in line:
                log_builder.note_skipped(f"{path.name}: lines that are no UTF-8")
            yield line


def _metrics_of_header(columns: list[str], stem: str) -> list[str]:
    """The metric of each column; empty for columns that hold none.

    Args:
        columns: the header of a table.
        stem: the name of its file, which names the curve of an export of TensorBoard.
    """
    if columns == list(TENSORBOARD_COLUMNS):
        return ["wall_time", "step", _metric_of_file_name(stem)]
    # Evaluators of sentence-transformers write one row for each evaluation.
    if columns[: len(EVALUATOR_COLUMNS)] == list(EVALUATOR_COLUMNS):
        return ["epoch", "step", *(f"eval_{name}" for name in columns[len(EVALUATOR_COLUMNS) :])]
    return [_metric_of_csv_column(name) for name in columns]


def _metric_of_file_name(stem: str) -> str:
    """The metric that the name of an export ends in: `run-sft-tag-train_loss` -> `train_loss`; else the name."""
    tagged = stem.rpartition("tag-")[2]
    known = [
        name for name in KNOWN_CURVES if re.search(rf"(?:^|[^a-z]){re.escape(name)}$", tagged, re.I)
    ]
    return max(known, key=len) if known else tagged


def _metric_of_csv_column(name: str) -> str:
    """The metric in a CSV column's name (`run-7 - train/loss` -> `train/loss`); empty for W&B's
    columns of minima and maxima.
    """
    name = name.strip().rpartition(" - ")[2]
    return "" if name.endswith(("__MIN", "__MAX")) else name
