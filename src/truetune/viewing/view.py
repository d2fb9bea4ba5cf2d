"""Opens the view of data (conversations, a folder of encoded data, or rows of token ids) for
`truetune view` and `truetune.view`.

The three kinds are told apart here, once; behind it all are rows by number. A notebook gets a few rows in a page of
its own, and a browser a page whose rows come from a local server.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import groupby
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from truetune.checks.inspect_tokenized import is_tokenized
from truetune.checks.reports import Report
from truetune.data.find_data_files import find_data_files_of_paths
from truetune.errors import MAX_NAMED, DataError, UsageError
from truetune.package import __version__
from truetune.report.as_json import report_as_dict
from truetune.report.page.html_document import html_document, notebook_frame
from truetune.report.page.json_of_one_examples_tokens import TokenRow
from truetune.report.page.mark_cited_rows import Marks, rules_and_cases_that_cite_rows
from truetune.report.page.page_section import Result, Section
from truetune.report.page.tokens_section import token_view_section
from truetune.report.visible_text import escape_invisible_characters
from truetune.settings.read_truetune_settings import validate_settings
from truetune.settings.run_spec import RunSpec
from truetune.tokenized.open_token_cache import open_token_cache
from truetune.viewing.filter_and_sort_rows import ANY_FINDING
from truetune.viewing.local_server import ViewServer
from truetune.viewing.row_index import RowIndex
from truetune.viewing.row_service import MAX_ROWS, RowService
from truetune.viewing.token_rows_of_conversations import ConversationRows

# As many as the page asks for at once (rows.js): the first answer is drawn while the browser
# still loads.
PREFETCH_ROWS = 20
"""Rows that the page asks for at once"""
KEPT_ENCODED_ROWS = 16
"""Encoded rows that are held: they are long"""


def make_row_service(spec: RunSpec) -> RowService:
    """The row service of the data of `spec`, which is not read yet. Raises SpecError, DataError,
    TokenizerError or TemplateError.
    """
    # Encoded data has a manifest; a folder of data files has none.
    folder = Path(spec.data[0]) if len(spec.data) == 1 else None
    if folder is not None and (folder / "manifest.json").is_file():
        from truetune.viewing.token_rows_of_encoded_folder import EncodedRows, shard_sources

        packs = EncodedRows(folder, spec)
        sources = shard_sources(folder, packs.manifest)
        return RowService(lambda: RowIndex(sources, kept=KEPT_ENCODED_ROWS), packs, packs.notice)
    if len(spec.data) == 1 and is_tokenized(spec.data[0], spec):
        from truetune.viewing.token_rows_of_token_ids import TokenIdRows

        cache = open_token_cache(spec.data[0])
        return RowService(
            lambda: RowIndex(cache.sources, kept=KEPT_ENCODED_ROWS), TokenIdRows(spec)
        )
    # Resolved once before anything is shown, so that a name that is not there is an error and
    # no empty page.
    find_data_files_of_paths(spec.data)
    return RowService(lambda: RowIndex(find_data_files_of_paths(spec.data)), ConversationRows(spec))


def start_view_server(
    spec: RunSpec, *, port: int = 0, row: int = 0, result: Result | None = None
) -> ViewServer:
    """A server of the token view over the data, its rows being found, those around `row` being drawn.

    Args:
        spec: the data and the settings under which it is drawn.
        port: 0 is one that is free.
        row: the row that the page begins with.
        result: the JSON of a report on the same data: the rows that its findings cite are marked.

    Raises:
        TruetuneError: as `make_row_service`; UsageError also where the report is on other data.
    """
    marks = {} if result is None else {"marks": marks_of_report_for_data(spec, result)}
    row_service = make_row_service(spec)
    if marks:
        row_service.rows_by_finding = rows_by_finding(marks["marks"])
    server = ViewServer(
        view_page_html(spec, {"remote": "rows", **marks}, connect=True), row_service, port
    )
    row_service.start()
    threading.Thread(
        target=row_service.rows, args=(row - row % PREFETCH_ROWS, PREFETCH_ROWS), daemon=True
    ).start()
    return server


def view_page_html(spec: RunSpec, rows: dict[str, Any], *, connect: bool = False) -> str:
    """The HTML of the page with the token view alone."""
    name = ", ".join(spec.data)
    tokens = token_view_section(rows)
    section = Section(tokens.id, escape_invisible_characters(name), tokens.html, tokens.data)
    return html_document(
        f"truetune view: {name}", [section], {"truetune": __version__}, connect=connect
    )


def marks_of_report_for_data(spec: RunSpec, result: Result) -> Marks:
    """The marks of a report on the data of `spec`, its files called as `spec` calls them.

    Rows are counted over all files, so that the report must be on the same files in the same order. Raises UsageError
    where it is not, DataError where the data is not there.
    """
    # The result may be older than the files it names.
    reported_names = [str(name) for name in (result.get("spec") or {}).get("data") or ()]
    named = {
        os.path.realpath(str(source.path)): str(source.path)
        for source in find_data_files_of_paths(spec.data)
    }
    try:
        reported = [
            os.path.realpath(str(source.path))
            for source in find_data_files_of_paths(reported_names)
        ]
    except DataError:
        reported = []
    # Rows are marked by number over all files: of other files, or in another order, marks would
    # stand at other rows.
    if reported != list(named):
        raise UsageError(
            f"the report is on {_paths_in_one_line(reported_names)}, and not on"
            f" {_paths_in_one_line(spec.data)}: rows are counted over all files, so name"
            " the same files"
            " in the same order, from the folder where the check ran"
        )
    marks = rules_and_cases_that_cite_rows(result, in_page=False)
    cases = [(named.get(os.path.realpath(file)), *rest) for file, *rest in marks["cases"]]
    # A finding on evaluation rows names rows of files that are not shown, by numbers of their own.
    return {**marks, "cases": [list(case) for case in cases if case[0] is not None]}


def rows_by_finding(marks: Marks) -> dict[str, list[int]]:
    """The numbers of the rows that each finding names, and those that any of them names."""
    rows: dict[str, list[int]] = {rule["name"]: [] for rule in marks["rules"]}
    for _, row, rule, *_ in marks["cases"]:
        rows[marks["rules"][rule]["name"]].append(row)
    return rows | {ANY_FINDING: [case[1] for case in marks["cases"]]}


def _paths_in_one_line(names: Sequence[str]) -> str:
    """Paths in one line, whole: what distinguishes two of them may be at their end."""
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}" if names else "no data"


def view(
    data: str | PathLike[str] | Sequence[str | PathLike[str]],
    tokenizer: str | PathLike[str] | None = None,
    *,
    rows: int | Iterable[int] = 20,
    report: Report | None = None,
    **settings: Any,
) -> View:
    """Some rows of data as the model sees them, token by token, for a notebook: the first `rows`, or those numbers.

    `data` and `settings` are those of `check`, or `data` is a folder that `encode` wrote. The rows that findings of
    `report`, a report on the same data, cite are marked. Raises a `truetune.errors.TruetuneError`.
    """
    named = [fspath(path) for path in ([data] if isinstance(data, str | PathLike) else data)]
    values = {"data": named, "tokenizer": tokenizer, **settings}
    spec = validate_settings(
        {name: value for name, value in values.items() if value is not None}, "truetune.view"
    )
    marks = None if report is None else marks_of_report_for_data(spec, report_as_dict(report))
    return View(spec, range(rows) if isinstance(rows, int) else rows, marks)


class View:
    """Some rows of data, token by token; a notebook draws them."""

    def __init__(self, spec: RunSpec, rows: Iterable[int], marks: Marks | None = None) -> None:
        """Raises as `make_row_service`; a row that can't be read or rendered says why."""
        self.spec = spec
        self.marks: Marks = marks or {"rules": [], "cases": []}
        """See `truetune.report.page.mark_cited_rows`"""
        self.rows: list[TokenRow] = []
        """See `truetune.report.page.json_of_one_examples_tokens`"""
        row_service = make_row_service(spec)
        wanted = sorted({row for row in rows if row >= 0})
        # A notebook needs no rows beyond these: index and files are let go.
        with closing(row_service):
            row_service.start()
            # Without a limit: whoever asks for row 10,000,000 waits for it.
            row_service.row_index.wait(max(wanted, default=0), threading.TIMEOUT_MAX)
            # Numbers that follow each other have the same difference to their place: such a run
            # is one request.
            for _, run in groupby(enumerate(wanted), lambda pair: pair[1] - pair[0]):
                numbers = [row for _, row in run]
                while numbers:
                    part = row_service.rows(numbers[0], min(len(numbers), MAX_ROWS))["rows"]
                    if not part:
                        break
                    self.rows += part
                    # An answer may end early where its rows are long: continue behind the last one.
                    numbers = [row for row in numbers if row > part[-1]["row"]]

    def __repr__(self) -> str:
        return (
            f"View({', '.join(self.spec.data)}; rows shown:"
            f" {len({row['row'] for row in self.rows}):,})"
        )

    def _repr_html_(self) -> str:
        """The HTML by which a notebook draws the view."""
        return notebook_frame(
            view_page_html(self.spec, {"rows": self.rows, "marks": self.marks}),
            "truetune token view",
        )
