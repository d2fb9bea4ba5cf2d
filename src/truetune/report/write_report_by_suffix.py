"""A report in a file, in the form that the file's name asks for; whole or not at all.

Which file may be replaced is decided in `data.guard_output_file`, by the signatures of
`recognise_files_truetune_may_replace`: a user's own file never is. The text is made before the file is opened, so that
a drawing that fails leaves the older report alone.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from truetune.checks.reports import Report
from truetune.data.guard_output_file import write_output_file
from truetune.errors import UsageError
from truetune.report.as_json import to_json
from truetune.report.page import html_page_of_report
from truetune.report.recognise_files_truetune_may_replace import FILE_SIGNATURES
from truetune.report.sarif import report_as_sarif

WRITERS_BY_SUFFIX: dict[str, Callable[[Report], str]] = {
    ".html": html_page_of_report,
    ".json": to_json,
    ".sarif": report_as_sarif,
}


def write_report_whole_or_not_at_all(report: Report, path: str | PathLike[str]) -> None:
    """Whole or not at all.

    Raises UsageError for another suffix, a file that truetune did not write, or one that can't be written.
    """
    suffix = Path(path).suffix.lower()
    writer = WRITERS_BY_SUFFIX.get(suffix)
    if writer is None:
        raise UsageError(
            f"{path}: a report is saved as {', '.join(WRITERS_BY_SUFFIX)}; name the file so"
        )
    # Rows may hold lone surrogates, which are no UTF-8; written as escapes, the report still
    # arrives.
    body = writer(report).encode("utf-8", "backslashreplace")
    write_output_file(Path(path), body, FILE_SIGNATURES[suffix.removeprefix(".")])
