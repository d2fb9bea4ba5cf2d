"""Splits the files of a project into statements, which patterns are searched in, whatever wrote the
file.

A call over several lines is one statement of Python, and a command with a backslash at the end of its lines is one of a
shell; of all other files a statement is a line. Comments and docstrings are left out. Nothing is run or parsed: Python
is split by its tokens, so that a script with an error later on has its statements too. The trade-off: where not even
tokens can be told (a template of a script), a statement is a line.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from truetune.troubleshooting.project_words import ProjectText, TextLine

# Chosen, not measured: a line beyond is data or a minified file. It also bounds the patterns.
MAX_LINE_CHARACTERS = 400
MAX_STATEMENT_CHARACTERS = 2_000
"""A call with forty arguments has about 1,500"""
MAX_CONTINUED_LINES = 60
"""Lines that one command of a shell may span, so that a file that only continues is no single
statement"""
COMMENT = re.compile(r"(^|\s)#(?!\s*(SBATCH|PBS|SUB)\b).*$")
PYTHON_SUFFIXES = frozenset((".py", ".ipynb"))
NUMBER = re.compile(r"\d[\d.,:]*(?:e[-+]?\d+)?")
MAX_OF_A_SHAPE = 3
"""Of lines that differ in their numbers alone. Chosen: signs of ten logs of 6,000 records take 26 s without it"""
OPENING, CLOSING = frozenset("([{"), frozenset(")]},")
NO_CODE = frozenset((tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT))


class Statement(NamedTuple):
    """One statement, and the lines that it spans."""

    text: str
    """On one line, without comments"""
    lines: tuple[TextLine, ...]

    @property
    def file(self) -> str:
        """The file that it is in."""
        return self.lines[0].file

    def line_that_matches(self, pattern: re.Pattern[str]) -> TextLine:
        """The line that matches; the first where only several together do."""
        shown = (line for line in self.lines if pattern.search(line.text))
        return next(shown, self.lines[0])


def list_statements(texts: Iterable[ProjectText]) -> list[Statement]:
    """The statements of all texts, in their order."""
    return [statement for text in texts for statement in _statements_of_text(text)]


def _statements_of_text(text: ProjectText) -> Iterator[Statement]:
    """The statements of one file."""
    lines = list(text.lines_unless_prose())
    if text.path.suffix.lower() not in PYTHON_SUFFIXES:
        yield from _statements_without_log_records(_shell_statements(lines))
        return
    for part in _lines_of_file_or_each_cell(lines):
        yield from _python_statements(part)


def _statements_without_log_records(statements: Iterable[Statement]) -> Iterator[Statement]:
    """The statements, without those that differ from several earlier ones in their numbers alone:
    records of a log.
    """
    times: Counter[str] = Counter()
    for statement in statements:
        shape = NUMBER.sub("0", statement.text)
        times[shape] += 1
        if times[shape] <= MAX_OF_A_SHAPE:
            yield statement


def _lines_of_file_or_each_cell(lines: list[TextLine]) -> Iterator[list[TextLine]]:
    """The lines of a file, or of each cell of a notebook: `tune.ipynb:cell 3, line 2`."""
    cells: dict[str, list[TextLine]] = {}
    for line in lines:
        cells.setdefault(line.place.rpartition(", line ")[0], []).append(line)
    yield from cells.values()


def _shell_statements(lines: Iterable[TextLine]) -> Iterator[Statement]:
    """Statements of a shell: lines without their comments; those that end with a backslash with the
    ones that follow.
    """
    open_lines: list[TextLine] = []
    for line in lines:
        code = COMMENT.sub("", line.text[:MAX_LINE_CHARACTERS]).strip()
        if not code:
            continue
        open_lines.append(TextLine(line.place, code, line.file))
        if not code.endswith("\\") or len(open_lines) == MAX_CONTINUED_LINES:
            yield _join_shell_lines(open_lines)
            open_lines = []
    if open_lines:
        yield _join_shell_lines(open_lines)


def _join_shell_lines(lines: list[TextLine]) -> Statement:
    """One statement of lines that a shell reads as one."""
    text = " ".join(line.text.removesuffix("\\").strip() for line in lines)
    return Statement(text[:MAX_STATEMENT_CHARACTERS], tuple(lines))


def _python_statements(lines: list[TextLine]) -> Iterator[Statement]:
    """Statements of Python: its logical lines; the lines themselves from where it can't be
    tokenized.
    """
    source = "".join(f"{line.text}\n" for line in lines)
    tokens: list[tokenize.TokenInfo] = []
    told = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in NO_CODE:
                continue
            if token.type not in (tokenize.NEWLINE, tokenize.ENDMARKER):
                tokens.append(token)
                continue
            told = token.end[0]
            if tokens and not _is_bare_string(tokens):
                yield _statement_of_tokens(tokens, lines)
            tokens = []
    except (tokenize.TokenError, SyntaxError):
        yield from _shell_statements(lines[told:])


def _is_bare_string(tokens: list[tokenize.TokenInfo]) -> bool:
    """Are the tokens of a statement a string and nothing else?"""
    return all(token.type == tokenize.STRING for token in tokens)


def _statement_of_tokens(tokens: list[tokenize.TokenInfo], lines: list[TextLine]) -> Statement:
    """A statement from its tokens: as it is written, on one line."""
    parts: list[str] = []
    last: tokenize.TokenInfo | None = None
    for token in tokens:
        if last is not None and _has_space_between(last, token):
            parts.append(" ")
        parts.append(token.string)
        last = token
    first, end = tokens[0].start[0] - 1, tokens[-1].end[0]
    whole = [
        TextLine(line.place, code, line.file)
        for line in lines[first:end]
        if (code := COMMENT.sub("", line.text[:MAX_LINE_CHARACTERS]).strip())
    ]
    text = " ".join("".join(parts).split("\n"))
    return Statement(text[:MAX_STATEMENT_CHARACTERS], tuple(whole) or (lines[first],))


def _has_space_between(last: tokenize.TokenInfo, token: tokenize.TokenInfo) -> bool:
    """Does a space stand between two tokens? Lines that brackets join are written as a formatter joins them."""
    if last.end[0] == token.start[0]:
        return last.end[1] < token.start[1]
    return last.string not in OPENING and token.string not in CLOSING
