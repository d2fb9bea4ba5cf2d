"""Reads the training log in the outputs of a notebook's cells, and in the JSON log that Kaggle
writes.

Both are turned back into the lines that a console would show, and read by `printed_records`: one parser of printed
records serves logs, notebooks and Kaggle. The price is that the tables and bars which the Trainer draws as HTML must be
written as the text that a console prints instead of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truetune.errors import DataError
from truetune.logs.parse_printed_records import read_console_pieces
from truetune.logs.run_log_builder import RunLogBuilder
from truetune.parsing.input_limits import LOG, InputLimitError
from truetune.parsing.parse_json_within_limits import read_json

TRAINING_LOSS = "Training Loss"
NO_LOSS_YET = "No log"
"""What stands for the training loss of an evaluation before the first record"""
NOTEBOOK_PROGRESS = re.compile(
    r"\[ {0,4}(?P<done>\d{1,9})/(?P<total>\d{1,9}) (?P<time>[\d:]{4,12})"
)
"""`[60/60 07:48, Epoch 0/1]`: what stands below the bar that the Trainer draws in a notebook"""
RESULTS_OVER_LINES = re.compile(r"(?<=,)\s{0,4}\n\s{0,40}(?=')")
"""Line ends in a dictionary that a cell shows"""


def read_notebook_output(path: Path, log_builder: RunLogBuilder) -> None:
    """Read the records in what a notebook's cells printed. Raises DataError if it is no notebook."""
    try:
        content = read_json(path, LOG)
    except InputLimitError as error:
        raise DataError(f"{path}: {error}") from None
    except ValueError as error:
        raise DataError(f"{path}: it is no notebook ({error})") from None
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        raise DataError(f"{path}: it has no cells; a notebook was expected")
    read_console_pieces(_numbered_lines(_output_texts_of_cells(cells)), path.name, log_builder)


def _output_texts_of_cells(cells: list[Any]) -> Iterator[str]:
    """What the cells show as text, in their order; whatever is no cell or no output is passed over."""
    for cell in cells:
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        if not isinstance(outputs, list):
            continue
        for output in outputs:
            if isinstance(output, dict):
                yield from _texts_of_output(output)


def is_kaggle_log(records: Any) -> bool:
    """Is this the log that Kaggle writes: a list of parts of a stream?"""
    first = records[0] if isinstance(records, list) and records else None
    return isinstance(first, dict) and {"stream_name", "data"} <= first.keys()


def read_kaggle_log(records: list[Any], name: str, log_builder: RunLogBuilder) -> None:
    """Read the records in the parts of a Kaggle log."""
    read_console_pieces(
        _numbered_lines(str(part.get("data") or "") for part in records if isinstance(part, dict)),
        name,
        log_builder,
    )


def _texts_of_output(output: dict[str, Any]) -> Iterator[str]:
    """The texts that one output of a cell shows."""
    if output.get("output_type") == "error":
        traceback = output.get("traceback")
        yield "\n".join(map(str, traceback)) + "\n" if isinstance(traceback, list) else ""
        return
    data = output.get("data") or {}
    shown = output.get("text") or data.get("text/plain") or ""
    plain = _text_or_joined_lines(shown)
    # A cell that shows trainer.train() as its value breaks the results over lines, and a record is one line.
    yield RESULTS_OVER_LINES.sub(" ", plain) if "'train_runtime'" in plain else plain
    yield "\n"
    page = _text_or_joined_lines(data.get("text/html") or "")
    if TRAINING_LOSS in page and len(page) < LOG.max_bytes:
        yield from _html_table_as_console_text(page)


def _text_or_joined_lines(text: Any) -> str:
    """The text of an output, which notebooks write as a string or as a list of lines."""
    return "".join(map(str, text)) if isinstance(text, list) else str(text)


def _html_table_as_console_text(page: str) -> Iterator[str]:
    """The table and the progress that the Trainer draws as HTML, as the text that a console would
    show.
    """
    for row in re.findall(r"<tr\b.*?(?=<tr\b|\Z)", page, re.DOTALL):
        cells = re.findall(r"<t[hd][^>]{0,200}>([^<]{0,200})<", row)
        # an evaluation before the first record has no training loss, and would be a record without one
        if cells and NO_LOSS_YET not in cells:
            yield "\t".join(cell.strip() for cell in cells) + "\n"
    yield "\n"
    progress = NOTEBOOK_PROGRESS.search(page)
    if progress is not None:
        done, total = int(progress["done"]), int(progress["total"])
        share = 100 * done // total if total else 0
        yield f"{share}%|#| {done}/{total} [{progress['time']}<00:00]\n"


def _numbered_lines(texts: Iterator[str]) -> Iterator[tuple[str, int]]:
    """The texts' lines, each with its number in the text as it is printed."""
    number, rest = 1, ""
    for text in texts:
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            for piece in line.split("\r"):
                yield piece, number
            number += 1
    yield rest, number
