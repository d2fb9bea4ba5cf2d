"""Finds the statements of a project that show what a cause needs, where no trait of
`recognise_project_traits_behind_causes` does.

A row of a table names causes by words of their text, and says how a statement shows them: `eval_steps: 10` for an
evaluation too often, `use_fast=False` for rows that are tokenized on one core. What another statement sets may speak
against it, or has to be there beside it. Such a line makes a cause likelier and gives a reader a place to look at; it
proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, islice

from truetune.troubleshooting.project_words import ProjectText, TextLine
from truetune.troubleshooting.signs import (
    flat_losses,
    garbage_or_endless_answers,
    memory_running_out,
    nothing_learned,
    odd_metrics,
    preference_training_without_effect,
    several_gpus,
    slow_training_or_generation,
)
from truetune.troubleshooting.signs.literals_required_by_sign_patterns import (
    literals_of_which_one_is_required,
)
from truetune.troubleshooting.signs.sign_as_statement_patterns import Sign
from truetune.troubleshooting.split_files_into_statements import Statement, list_statements

MAX_LINES_OF_SIGN = 2
"""Lines that a sign keeps, as many as a cause shows"""
MAX_CHARACTERS = 250_000
"""Of all statements: about three seconds. Projects of users have some 20,000; one of more is a checkout of a library"""
SIGNS: tuple[Sign, ...] = (
    *garbage_or_endless_answers.SIGNS,
    *flat_losses.SIGNS,
    *nothing_learned.SIGNS,
    *memory_running_out.SIGNS,
    *odd_metrics.SIGNS,
    *preference_training_without_effect.SIGNS,
    *several_gpus.SIGNS,
    *slow_training_or_generation.SIGNS,
)


def find_signs(texts: Iterable[ProjectText]) -> Mapping[Sign, tuple[TextLine, ...]]:
    """The signs that a project shows, each with its first lines."""
    statements = _statements_within_limit(list_statements(texts))
    files = [_File(tuple(of_file)) for _, of_file in groupby(statements, key=lambda one: one.file)]
    lines_by_sign: dict[Sign, tuple[TextLine, ...]] = {}
    for sign in SIGNS:
        # The cheapest question first: most signs are shown by no file.
        showing = [
            file
            for file in files
            if file.has_matching_statement(sign.shown_by) and _does_file_allow_sign(sign, file)
        ]
        if showing and _does_project_allow_sign(sign, files):
            lines = (line for file in showing for line in file.lines_of_sign(sign))
            if first_lines := tuple(islice(lines, MAX_LINES_OF_SIGN)):
                lines_by_sign[sign] = first_lines
    return lines_by_sign


def _statements_within_limit(statements: Sequence[Statement]) -> Iterator[Statement]:
    """The statements, up to MAX_CHARACTERS of them."""
    left = MAX_CHARACTERS
    for statement in statements:
        left -= len(statement.text)
        if left < 0:
            return
        yield statement


class _File:
    """The statements of one file, which signs are searched in."""

    def __init__(self, statements: tuple[Statement, ...]) -> None:
        self.statements = statements
        # One search over all is much quicker than one for each; a match over two statements is sorted out afterwards.
        self.text = "\n".join(one.text for one in statements)
        self._small_letters = self.text.lower()

    def has_matching_statement(self, pattern: str) -> bool:
        """Does a statement match a pattern?"""
        literals = literals_of_which_one_is_required(pattern)
        if literals and not any(literal in self._small_letters for literal in literals):
            return False
        return any(True for _ in self.lines_of_matching_statements(pattern))

    def lines_of_matching_statements(self, pattern: str) -> Iterator[TextLine]:
        """A line of each statement that matches a pattern."""
        compiled = _compile_cached(pattern)
        if compiled.search(self.text):
            for statement in self.statements:
                if compiled.search(statement.text):
                    yield statement.line_that_matches(compiled)

    def lines_of_sign(self, sign: Sign) -> Iterator[TextLine]:
        """The lines of a sign: one line of each statement that shows it and stands where it has to."""
        first = self._index_of_first_match(sign.preceded_by) if sign.preceded_by else -1
        last = (
            self._index_of_last_match(sign.followed_by)
            if sign.followed_by
            else len(self.statements)
        )
        shown_by = _compile_cached(sign.shown_by)
        for statement in self.statements[first + 1 : max(last, 0)]:
            if shown_by.search(statement.text):
                yield statement.line_that_matches(shown_by)

    def _index_of_first_match(self, pattern: str) -> int:
        """The number of the first statement that matches; the number of all where none does."""
        compiled = _compile_cached(pattern)
        shown = (i for i, one in enumerate(self.statements) if compiled.search(one.text))
        return next(shown, len(self.statements))

    def _index_of_last_match(self, pattern: str) -> int:
        """The number of the last statement that matches; -1 where none does."""
        compiled = _compile_cached(pattern)
        return max(
            (i for i, one in enumerate(self.statements) if compiled.search(one.text)), default=-1
        )


@cache
def _compile_cached(pattern: str) -> re.Pattern[str]:
    """The compiled pattern, compiled once."""
    # `^` and `$` are those of a statement. Kept here: the cache of `re` holds 512 patterns, and there are more.
    return re.compile(pattern, re.MULTILINE)


def _does_file_allow_sign(sign: Sign, file: _File) -> bool:
    """Does no statement of a file speak against a sign there, and is what it needs there?"""
    if sign.unless_in_file and file.has_matching_statement(sign.unless_in_file):
        return False
    return not sign.beside_in_file or file.has_matching_statement(sign.beside_in_file)


def _does_project_allow_sign(sign: Sign, files: Sequence[_File]) -> bool:
    """Does no statement speak against a sign, and is what it needs there?"""
    if sign.unless and any(file.has_matching_statement(sign.unless) for file in files):
        return False
    return not sign.beside or any(file.has_matching_statement(sign.beside) for file in files)


@cache
def signs_belonging_to_cause_text(text: str) -> tuple[Sign, ...]:
    """The signs of a cause, by its text."""
    return tuple(sign for sign in SIGNS if _compile_cached(sign.words).search(text))
