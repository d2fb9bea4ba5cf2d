"""Tells by its content whether truetune wrote a file, for each form in which results are written;
only such a file may be replaced.

A result may be replaced by a newer one; a file of the user's never is. So each form has a sign that no other
program writes: it stands where the file begins or ends, or in the one place that the format has for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from truetune.data.guard_output_file import FileForm
from truetune.package import __version__
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json

MAX_SARIF_BYTES = 1 << 28
"""Bytes; larger files are not parsed, and so are none of ours."""
TEXT_SIGNATURE = "truetune {version}: report\n"
"""The last line of a report as text, so that programs that read its first ones need not know it"""
_PAGE_START = re.compile(
    rb'<!doctype html>\s*<html lang="en">\s*<head>\s*<meta charset="utf-8">\s*'
    rb'<meta name="generator" content="truetune [^"]*">'
)
_JSON_START = re.compile(rb'\s*\{\s*"schema":\s*"truetune\.[a-z-]+/\d+",\s*"truetune":\s*"')
_CITED_ROWS_START = re.compile(
    rb'\{"file": "(?:[^"\\]|\\.)*", "line": \d+, "row": \d+, "findings": \[\{"rule": "'
)
_TEXT_END = re.compile(rb"(.*\n)?truetune [0-9][^\n ]*: report\s*", re.DOTALL)


def add_truetune_signature_line(text: str) -> str:
    """A report as text for a file, signed: with a last line that says that truetune wrote it."""
    # The signature must be a line of its own, also behind a text that does not end its last
    # one.
    border = "" if not text or text.endswith("\n") else "\n"
    return text + border + TEXT_SIGNATURE.format(version=__version__)


def _make_test_of_file_beginning(pattern: re.Pattern[bytes]) -> Callable[[Path], bool]:
    """A test whether a file's first 1,024 bytes match a pattern."""

    def is_ours(path: Path) -> bool:
        with path.open("rb") as file:
            # 1,024 bytes hold the longest of these beginnings with room to spare; the file may
            # have gigabytes.
            return pattern.match(file.read(1024)) is not None

    return is_ours


def _is_signed_text(path: Path) -> bool:
    """Is the last line of a file the signature of a report as text?"""
    with path.open("rb") as file:
        # The signature stands last, and 200 bytes hold it whatever the version is called.
        file.seek(max(0, path.stat().st_size - 200))
        return _TEXT_END.fullmatch(file.read()) is not None


def _is_truetune_sarif(path: Path) -> bool:
    """Is a file SARIF with at least one run, and are all runs of truetune?"""
    # SARIF has no fixed beginning, so it is parsed whole; what is too large to parse is taken
    # for the user's.
    if path.stat().st_size > MAX_SARIF_BYTES:
        return False
    value = parse_json(path.read_bytes(), RESULT)
    runs = value.get("runs") if isinstance(value, dict) else None
    if not isinstance(runs, list) or not runs:
        return False
    try:
        # A log that another scanner has added its run to is not ours to replace.
        return all(run["tool"]["driver"]["name"] == "truetune" for run in runs)
    except (KeyError, TypeError):
        return False


FILE_SIGNATURES = {
    "rows": FileForm("rows that truetune wrote", _make_test_of_file_beginning(_CITED_ROWS_START)),
    "html": FileForm("a page that truetune wrote", _make_test_of_file_beginning(_PAGE_START)),
    "json": FileForm(
        "a result that truetune wrote as JSON", _make_test_of_file_beginning(_JSON_START)
    ),
    "sarif": FileForm("a SARIF log that truetune wrote", _is_truetune_sarif),
    "terminal": FileForm("a report that truetune wrote as text", _is_signed_text),
}
