"""Reads the number of training rows from what a notebook's cells printed, where no file of rows is
here.

Two things print them: the banner of the trainer (`Num examples = 9,812`, which is exact), and a
data set that a cell shows (`num_rows: 9812`). Of the second, one number has to stand for all that
is shown, and no step of the code may leave rows out behind it: a count that is not certain is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.parsing.input_limits import NOTEBOOK
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.source.parsed_source_file import Module

COUNTED = re.compile(r"\bNum(?:ber of)? examples ?= ?(\d[\d,]{0,12})")
SHOWN = re.compile(r"\bnum_rows: ?(\d{1,12})")
HELD_OUT = re.compile(r"\b(?:test|validation|valid|val|eval): ?Dataset\(\{.{0,2000}?\}\)", re.S)
"""Parts of a DatasetDict that are not trained on"""
LEAVES_ROWS_OUT = (".select(", ".filter(", ".take(", ".sample(", ".head(", ".shard(", "[:")
"""Signs that less is trained on than was shown"""


def printed_training_rows(module: Module) -> int | None:
    """The training rows of an epoch, as a notebook's output counts them; None for a script, and
    where the output does not say them for certain.
    """
    if not module.cells or ("Num " not in module.file_text and "num_rows" not in module.file_text):
        return None
    text = "\n".join(_printed_texts(module))
    counted = COUNTED.search(text)
    # The Trainer's own count is exact; shapes of data sets may be those before a filter.
    if counted is not None:
        return int(counted[1].replace(",", ""))
    row_counts = {int(number) for number in SHOWN.findall(HELD_OUT.sub("", text))}
    if len(row_counts) != 1 or module.mentions(*LEAVES_ROWS_OUT):
        return None
    return row_counts.pop()


def _printed_texts(module: Module) -> Iterator[str]:
    """The texts that the cells of a notebook printed or showed, in their order."""
    try:
        whole = parse_json(module.file_text, NOTEBOOK)
    except ValueError:
        return
    cells = whole.get("cells") if isinstance(whole, dict) else None
    for cell in cells if isinstance(cells, list) else ():
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else ():
            if isinstance(output, dict):
                data = output.get("data")
                text = data.get("text/plain") if isinstance(data, dict) else None
                yield _join_text(output.get("text") or text)


def _join_text(text: object) -> str:
    """The text of an output in a notebook's JSON, which is written as a string or as a list of
    lines.
    """
    if isinstance(text, list):
        return "".join(part for part in text if isinstance(part, str))
    return text if isinstance(text, str) else ""
