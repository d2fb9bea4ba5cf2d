"""Serves findings to editors over the Language Server Protocol on stdin and stdout; needs the extra `truetune[lsp]`.

A file is checked when it is opened and when it is saved, by the function of `truetune check FILE`, which reads the
file on the disk. Checks run in one thread of their own, one after the other, so that a long one never holds up the
protocol; a check whose file was saved again meanwhile is not shown. The trade-off: what is typed and not saved is not
checked, and edits are offered only while the text in the editor is the one that was checked.

Stdout carries the protocol alone: whatever else is printed goes to stderr.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from truetune.checks.findings import Case, Edit, Finding
from truetune.checks.reports import Report
from truetune.errors import TruetuneError, UsageError
from truetune.package import __version__
from truetune.report.visible_text import escape_invisible_characters
from truetune.settings.run_spec import Severity
from truetune.source.decode_source_and_convert_positions import LineIndex

CheckFile = Callable[[str], Report]
"""Checks the file at a path as `truetune check FILE` does. It may raise a TruetuneError."""

SEVERITIES: dict[Severity, types.DiagnosticSeverity] = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}
MAX_PLACES = 500
"""Places at which one finding is shown. Chosen, not measured: with the 20,000 places of a file of 1 MB an editor gets a
message of many megabytes, and the finding's own line says how many rows there are."""


@dataclass(frozen=True, slots=True)
class FileDiagnostic:
    """What is shown at one place of a file, and the edits that end it."""

    diagnostic: types.Diagnostic
    remedy: str
    edits: tuple[Edit, ...] = ()
    """Of the file as it was checked; empty where the finding has none in this file"""
    is_safe: bool = False


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """The result of one check of a file, and the text that was checked."""

    lines: LineIndex
    """The text by lines, which the protocol counts as Python does"""
    diagnostics: tuple[FileDiagnostic, ...]
    log_lines: tuple[str, ...] = ()
    """What the editor writes to its log: why a file or a part of it was not judged"""


class FindingsServer(LanguageServer):
    """A language server that publishes the findings of files."""

    def __init__(self, check_file: CheckFile) -> None:
        super().__init__("truetune", __version__)
        self._check_file = check_file
        self._one_at_a_time = ThreadPoolExecutor(max_workers=1)
        self._checks_begun: Counter[str] = Counter()
        """Checks of each file since the server began; the last one is the one that counts"""
        self._checked: dict[str, CheckedFile] = {}
        """The last result of each open file, by address"""

    async def check_document(self, uri: str) -> None:
        """Check the file at an address and publish its diagnostics, unless another check of it began meanwhile.

        Args:
            uri: the address of an open file; one that is not on this disk is passed over.
        """
        path = to_fs_path(uri)
        if not uri.startswith("file:") or path is None:
            return
        self._checks_begun[uri] += 1
        number = self._checks_begun[uri]
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(
            self._one_at_a_time, self._check_unless_outdated, uri, path, number
        )
        if result is None or number != self._checks_begun[uri]:
            return
        self._checked[uri] = result
        self._publish(uri, [one.diagnostic for one in result.diagnostics])
        for line in result.log_lines:
            self.window_log_message(types.LogMessageParams(types.MessageType.Info, line))

    def forget_document(self, uri: str) -> None:
        """Clear the diagnostics of a closed file; a check of it that still runs is not shown."""
        self._checks_begun[uri] += 1
        self._checked.pop(uri, None)
        self._publish(uri, [])

    def quick_fixes(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """The edits that end the findings in a range.

        Args:
            params: the file and the range.

        Returns:
            One action for each finding with edits; none where the text was changed since it was checked, or is not
            UTF-8.
        """
        uri = params.text_document.uri
        checked = self._checked.get(uri)
        if checked is None or self.workspace.get_text_document(uri).source != checked.lines.text:
            return []
        # Edits count the characters of the file's own encoding, which is none that editors and
        # this server agree on.
        if "\N{REPLACEMENT CHARACTER}" in checked.lines.text:
            return []
        # A finding has the same edits at each of its places: one action ends it at all of them.
        shown_by_edits: dict[tuple[Edit, ...], list[FileDiagnostic]] = {}
        for shown in checked.diagnostics:
            if shown.edits and _do_ranges_share_a_line(shown.diagnostic.range, params.range):
                shown_by_edits.setdefault(shown.edits, []).append(shown)
        return [
            self._make_quick_fix(uri, checked.lines, places) for places in shown_by_edits.values()
        ]

    def _check_unless_outdated(self, uri: str, path: str, number: int) -> CheckedFile | None:
        """Check a file; None where another check of it waits already. Runs in the thread of checks."""
        if number != self._checks_begun[uri]:
            return None
        try:
            lines = LineIndex(_read_text(path))
            checked = self._check_lines(path, lines)
            is_unchanged = _read_text(path) == lines.text
        except OSError as error:
            return CheckedFile(LineIndex(""), (), (f"{path}: {error.strerror}",))
        if is_unchanged:
            return checked
        # The findings are of one of two texts, and their edits would be made in the other.
        why = f"{path}: changed while it was checked; save it to check it again"
        return CheckedFile(LineIndex(""), (), (why,))

    def _check_lines(self, path: str, lines: LineIndex) -> CheckedFile:
        """Check a file whose text was read just now."""
        try:
            report = self._check_file(path)
        except UsageError as error:
            # No kind of file that truetune judges: an editor opens many such files.
            return CheckedFile(lines, (), (str(error),))
        except TruetuneError as error:
            return CheckedFile(lines, (self._diagnose_unreadable_file(error, path, lines),))
        except Exception as error:
            # A defect of ours in one file must not end the server.
            return CheckedFile(lines, (), (f"{path}: {error!r}; please report it",))
        diagnostics = tuple(
            self._diagnose_finding(finding, case, path, lines)
            for finding in report.findings
            for case in _cases_in_file(finding, path)
        )
        not_judged = [f"{path}: not judged: {part}" for part in report.requested_not_judged()]
        return CheckedFile(lines, diagnostics, tuple(not_judged))

    def _diagnose_finding(
        self, finding: Finding, case: Case | None, path: str, lines: LineIndex
    ) -> FileDiagnostic:
        """A finding at one of its cases; at the first line where it has none in this file."""
        detail = [finding.message, *finding.evidence, f"help: {finding.remedy}"]
        if case is not None:
            detail.insert(1, case.text)
        elif finding.cases:
            detail.insert(1, _evidence_after_place(finding.cases[0]))
        line, column = _line_and_column(case) if case is not None else (1, 1)
        diagnostic = types.Diagnostic(
            range=self._range_at(lines, line, column),
            message=escape_invisible_characters("\n".join(filter(None, detail))),
            severity=SEVERITIES[finding.severity],
            code=finding.rule,
            source="truetune",
        )
        fix = finding.fix
        if fix is None or not _is_same_file(fix.file, path):
            return FileDiagnostic(diagnostic, finding.remedy)
        return FileDiagnostic(diagnostic, finding.remedy, fix.edits, fix.safe)

    def _diagnose_unreadable_file(
        self, error: TruetuneError, path: str, lines: LineIndex
    ) -> FileDiagnostic:
        """A file that can't be read as what it is, at the line that the error names."""
        named = re.search(re.escape(path) + r":(\d+)", str(error))
        diagnostic = types.Diagnostic(
            range=self._range_at(lines, int(named[1]) if named else 1, 1),
            message=escape_invisible_characters(str(error)),
            severity=types.DiagnosticSeverity.Error,
            source="truetune",
        )
        return FileDiagnostic(diagnostic, "")

    def _make_quick_fix(
        self, uri: str, lines: LineIndex, places: Sequence[FileDiagnostic]
    ) -> types.CodeAction:
        """The edits of one finding as an action of the editor."""
        finding = places[0]
        edits = []
        for edit in finding.edits:
            span = types.Range(self._position(lines, edit.start), self._position(lines, edit.end))
            edits.append(types.TextEdit(span, edit.text))
        return types.CodeAction(
            title=finding.remedy + ("" if finding.is_safe else " (may change what it means)"),
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[place.diagnostic for place in places],
            is_preferred=finding.is_safe,
            edit=types.WorkspaceEdit(changes={uri: edits}),
        )

    def _range_at(self, lines: LineIndex, line: int, column: int) -> types.Range:
        """From a place to the end of its line; `line` and `column` count from 1."""
        line = min(line, len(lines))
        content = lines.line(line).rstrip("\r\n")
        begin = column - 1 if column > 1 else len(content) - len(content.lstrip())
        return types.Range(
            types.Position(line - 1, self._text_length_in_client_units(content[:begin])),
            types.Position(line - 1, self._text_length_in_client_units(content)),
        )

    def _position(self, lines: LineIndex, character: int) -> types.Position:
        """The place of a character of a text."""
        line, column = lines.place(character)
        return types.Position(
            line - 1, self._text_length_in_client_units(lines.line(line)[: column - 1])
        )

    def _text_length_in_client_units(self, text: str) -> int:
        """The length of a text as the client counts it: UTF-16 code units, unless both agreed on others."""
        return int(self.workspace.position_codec.client_num_units(text))

    def _publish(self, uri: str, diagnostics: list[types.Diagnostic]) -> None:
        """Show these diagnostics of a file instead of earlier ones."""
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics))


def make_server(check_file: CheckFile) -> FindingsServer:
    """Make the server. It reads nothing before a file is opened.

    Args:
        check_file: checks one file.
    """
    server = FindingsServer(check_file)

    # Handlers that are coroutines run as tasks of the loop, so that the next message is read at once.
    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def check_opened_file(params: types.DidOpenTextDocumentParams) -> None:
        await server.check_document(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def check_saved_file(params: types.DidSaveTextDocumentParams) -> None:
        await server.check_document(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def forget_closed_file(params: types.DidCloseTextDocumentParams) -> None:
        server.forget_document(params.text_document.uri)

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix]),
    )
    def offer_quick_fixes(params: types.CodeActionParams) -> list[types.CodeAction]:
        return server.quick_fixes(params)

    return server


def serve_over_stdio(check_file: CheckFile) -> None:
    """Serve until the editor says that it exits, or stdin ends.

    Args:
        check_file: checks one file.
    """
    protocol_output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # A print anywhere, of a library or of a process that a check starts, would break a message.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    make_server(check_file).start_io(stdout=protocol_output)


def _read_text(path: str) -> str:
    """The text of a file, without a byte order mark, as editors have it. Raises OSError."""
    return Path(path).read_bytes().decode("utf-8-sig", "replace")


def _cases_in_file(finding: Finding, path: str) -> Sequence[Case | None]:
    """The first cases of a finding in this file; None once where it has none there."""
    here = [case for case in finding.cases if _is_same_file(_file_of_case(case), path)]
    return here[:MAX_PLACES] or [None]


def _file_of_case(case: Case) -> str | None:
    """The file that a case is in, where it has one."""
    return case.origin.file if case.origin is not None else case.file


def _line_and_column(case: Case) -> tuple[int, int]:
    """The line and the column of a case, from 1; 1 where none is known."""
    if case.origin is not None:
        return case.origin.line, 1
    return case.line or 1, case.column or 1


def _evidence_after_place(case: Case) -> str:
    """The evidence at a case in another file, behind its place."""
    return f"{_file_of_case(case) or 'elsewhere'}:{_line_and_column(case)[0]}: {case.text}"


def _is_same_file(name: str | None, path: str) -> bool:
    """Do both name one file? Names in a report may be relative to the current folder."""
    return name is not None and os.path.realpath(name) == os.path.realpath(path)


def _do_ranges_share_a_line(one: types.Range, other: types.Range) -> bool:
    """Have two ranges a line in common?"""
    return one.start.line <= other.end.line and other.start.line <= one.end.line
