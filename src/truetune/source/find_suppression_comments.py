"""Finds the comments that suppress findings: `# truetune: ignore` and `# truetune: ignore[SRC006,
rule-name]`.

A comment covers the statement that its line belongs to, so it may stand on any line of a call that is spread over
many; of a block it covers the head alone, else one comment would silence a whole function. Tokens are read instead of
lines, because the same words in a string are no comment.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import NamedTuple

from truetune.source.parsed_source_file import Module

IGNORE_COMMENT = re.compile(r"#\s*truetune:\s*ignore(?:\[(?P<rules>[^\]]*)\])?")


class IgnoreComment(NamedTuple):
    """What such a comment covers: its line, and the statement that is on it (of a block, only its head)."""

    start: int
    """Character of the file"""
    end: int
    rules: frozenset[str]
    """Names and codes; empty: all"""

    def suppresses_rule_at_offset(self, offset: int, *names: str) -> bool:
        """Does the comment suppress a finding of a rule with these names at this character of the
        file?
        """
        if not self.start <= offset < self.end:
            return False
        return not self.rules or not self.rules.isdisjoint(names)


def find_ignore_comments(module: Module) -> tuple[IgnoreComment, ...]:
    """The comments of a module."""
    if not IGNORE_COMMENT.search(module.text):
        return ()
    comments = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
            match = IGNORE_COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if match:
                comments.append(
                    _ignore_comment_on_line(module, token.start[0], match["rules"] or "")
                )
    except (tokenize.TokenError, SyntaxError):
        return tuple(
            comments
        )  # what does not parse is a finding of its own; those before the error hold
    return tuple(comments)


def _ignore_comment_on_line(module: Module, line: int, rules: str) -> IgnoreComment:
    """What a comment on this line covers, with the rules between its brackets."""
    names = frozenset(part.strip() for part in rules.split(",") if part.strip())
    first, last = _first_and_last_line_of_statement(module, line)
    start, end = module.lines.starts[first - 1], module.lines.starts[last - 1]
    end += len(module.lines.line(last).rstrip("\r\n"))
    return IgnoreComment(module.offset_in_file(start), module.offset_in_file(end) + 1, names)


def _first_and_last_line_of_statement(module: Module, line: int) -> tuple[int, int]:
    """First and last line of the innermost statement, or head of a block, that a line belongs to."""
    best = (line, line)
    for node in module.nodes(ast.stmt):
        body = getattr(node, "body", None)
        last = (
            body[0].lineno - 1
            if isinstance(body, list) and body
            else node.end_lineno or node.lineno
        )
        if node.lineno <= line <= last:
            best = (node.lineno, last)
    return best
