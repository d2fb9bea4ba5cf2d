"""A report in a file, in the form that the file's name asks for."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from truetune.checks.report import Report
from truetune.data.atomic import write
from truetune.errors import UsageError
from truetune.report.as_json import to_json
from truetune.report.page import page
from truetune.report.sarif import to_sarif

FORMS: dict[str, Callable[[Report], str]] = {".html": page, ".json": to_json, ".sarif": to_sarif}


def save(report: Report, path: str | PathLike[str]) -> None:
    """Whole or not at all. Raises UsageError for another suffix, OSError where it can't be written."""
    form = FORMS.get(Path(path).suffix.lower())
    if form is None:
        raise UsageError(f"{path}: a report is saved as {', '.join(FORMS)}; name the file so")
    write(Path(path), form(report).encode("utf-8", "backslashreplace"))
