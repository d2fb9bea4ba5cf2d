"""Finds the line of a script beside a file of pairs that orders the answers before one of them
becomes the chosen side.

The line is found by its words, not by a run: a script that names the file of pairs and both sides, and orders or
compares by the column of scores. It is shown as the place to read, never as proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit

MAX_SCRIPTS = 40
"""Scripts that are read. Chosen, not measured: projects have fewer"""
MAX_TEXT = 120
"""Characters of the line that evidence shows: one line of a terminal"""
ORDERS = re.compile(
    r"\b(?:max|min|sorted|nlargest|nsmallest)\(|\.sort\(|sort_values\(|\b(?:idx|arg)(?:max|min)\b|[^=\-]>[^=]|<[^=]"
)
SIDES = re.compile(r"chosen[\s\S]*rejected|rejected[\s\S]*chosen")
SCORES = r"scores?|ratings?|rewards?|grades?|stars|up_?votes?|likes?|ranks?|margin|votes?"
"""Columns that say what an answer is worth"""


class RankingLine(NamedTuple):
    """The line of a script that orders the answers of pairs."""

    place: str
    """`build_pairs.py:21`"""
    text: str


def find_ranking_line(pairs_file: str, column: str = "") -> RankingLine | None:
    """The first such line; None where no script beside names the file and orders by its scores.

    Args:
        pairs_file: the file of pairs.
        column: what its answers are ordered by; empty where only the pairs have scores.
    """
    path = Path(pairs_file)
    word = re.compile(rf"(?<![A-Za-z])(?:{re.escape(column) if column else SCORES})(?![A-Za-z])")
    for script in islice(_scripts_near_pairs_file(path), MAX_SCRIPTS):
        try:
            text = read_bytes_within_limit(script, SETTINGS).decode("utf-8", "replace")
        except (OSError, InputLimitError):
            continue
        if path.name not in text or not SIDES.search(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            code = line.partition("#")[0]
            if ORDERS.search(code) and word.search(code):
                return RankingLine(f"{script.name}:{number}", code.strip()[:MAX_TEXT])
    return None


def _scripts_near_pairs_file(path: Path) -> Iterator[Path]:
    """The scripts of the file's folder, of the one above, and of the folders beside it."""
    folder = path.absolute().parent
    try:
        yield from sorted(folder.glob("*.py"))
        # Rows mostly lie in data/ of the project.
        if folder.name in ("data", "datasets", "dataset"):
            yield from sorted(folder.parent.glob("*.py"))
            yield from sorted(folder.parent.glob("scripts/*.py"))
    except OSError:
        return
