"""Finds patterns of a script that stop at the end of a line, although the form that its prompt asks
for has several lines.

How it works: each pattern that the script searches with is tried on each text of several lines that
stands in the script. Where it finds something only when `.` may be a newline, and that something
has a newline in it, the pattern was written for this form and stops at the end of its first line.

The trade-off: only texts of the script are tried. Answers are not known yet, and a form on one line
proves nothing about them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.answer_reading_patterns import (
    SEARCH_METHODS,
    compiled_pattern_of_call,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

MAX_TEXT_CHARS = 20_000
"""Longer texts are data, no prompts. Chosen, not measured"""
MAX_TEXTS = 200
"""Texts that each pattern is tried on. Chosen, not measured: a script has a dozen prompts"""
ANCHORS = re.compile(r"^(?:\^|\\A|\\s[*+]|\\n|\n)+|(?:\$|\\Z|\\s[*+]|\\n|\n)+$")
"""What ties a pattern to the ends of an answer; the form stands inside a longer prompt"""
SHORT_MARK = 2
"""A mark of one character (`(`, `"`) stands in every text: what it finds was not meant"""


class StoppedPattern(NamedTuple):
    """A pattern, and a form of several lines that it would match if `.` were a newline too."""

    pattern: str
    search: ast.Call
    form: ast.Constant
    lines: int
    """Of the text that it should match"""


def regex_search_calls(module: Module) -> Iterator[Call]:
    """Calls that search by a pattern of `re`."""
    names = tuple(f"re.{name}" for name in SEARCH_METHODS)
    for call in module.all_calls:
        if call.named(*names) or (call.method in SEARCH_METHODS and call.receiver is not None):
            yield call


def patterns_stopping_at_first_line(module: Module) -> Iterator[StoppedPattern]:
    """The patterns of a file that stop at the first line of a form that the file asks for; each
    once.
    """
    if not module.mentions("re"):
        return
    forms = list(_multi_line_texts(module))
    done: set[str] = set()
    for call in regex_search_calls(module) if forms else ():
        pattern = compiled_pattern_of_call(module, call)
        if pattern is None or pattern.pattern in done or pattern.flags & re.DOTALL:
            continue
        done.add(pattern.pattern)
        stopped = _unmatched_form_and_line_count(pattern, forms)
        if stopped is not None:
            form, lines = stopped
            yield StoppedPattern(pattern.pattern, call.node, form, lines)


def _multi_line_texts(module: Module) -> Iterator[ast.Constant]:
    """The texts of several lines that stand in a file and are no documentation of it."""
    count = 0
    for node in module.nodes(ast.Constant):
        if not isinstance(node.value, str) or len(node.value) > MAX_TEXT_CHARS:
            continue
        parent = module.scopes.parent.get(node)
        if "\n" in node.value.strip() and not isinstance(parent, ast.Expr) and count < MAX_TEXTS:
            count += 1
            yield node


def _unmatched_form_and_line_count(
    pattern: re.Pattern[str], forms: list[ast.Constant]
) -> tuple[ast.Constant, int] | None:
    """The form that a pattern should match and does not, with its lines; None where it matches one
    or is about none.
    """
    core = ANCHORS.sub("", pattern.pattern)
    try:
        plain = re.compile(core, pattern.flags)
        over_lines = re.compile(core, pattern.flags | re.DOTALL)
    except re.error:
        return None
    if not _spans_between_marks(core):
        return None
    stopped: tuple[ast.Constant, int] | None = None
    for form in forms:
        text = str(form.value)
        match = over_lines.search(text)
        if match is None:
            continue
        if plain.search(text) is not None:
            # One form of the script fits: it was written for that one.
            return None
        stopped = stopped or (form, match.group().count("\n") + 1)
    return stopped


def _spans_between_marks(core: str) -> bool:
    """Does a pattern begin and end with a mark, such as a tag or a fence, and hold a `.` between
    them?
    """
    first, _, rest = core.partition(".")
    last = rest[1:].lstrip("*+?)")
    begins = re.match(r"\(?\\?[^\w\s()\\.]", first) is not None and len(first) > SHORT_MARK
    ends = re.search(r"[^\w\s()\\.]\)?$", last) is not None and len(last) > SHORT_MARK
    return begins and ends
