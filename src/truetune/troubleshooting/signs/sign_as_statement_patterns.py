"""The record of a sign: patterns of statements that show some causes."""

from __future__ import annotations

from typing import NamedTuple

SET = r"['\"]?\s*[=: ]\s*['\"]?"
"""Between the name of a setting and its value: `a=1`, `"a": 1`, `--a 1`"""
GIVEN = (
    rf"(?:{SET}|['\"]?\s*:\s*[\w\[\]|. ]{{1,30}}=\s*(?:field\(\s*default\s*=\s*)?['\"]?"
    r"|['\"],\s*['\"]|['\"],[^)]{0,60}?\bdefault\s*=\s*['\"]?)"
)
"""As `SET`, and in a dataclass (`a: int = 1`), a list of arguments (`"--a", "1"`) and argparse (`"--a", default=1`)"""


class Sign(NamedTuple):
    """What shows some causes: patterns that are searched in statements (`list_statements`)."""

    words: str
    """In the text of the causes"""
    shown_by: str
    """In a statement"""
    unless: str = ""
    """In any statement: it speaks against them"""
    beside: str = ""
    """In any statement: has to be there as well"""
    unless_in_file: str = ""
    """In a statement of the same file: it speaks against them there"""
    beside_in_file: str = ""
    """In a statement of the same file: has to be there as well"""
    preceded_by: str = ""
    """In an earlier statement of the same file: has to be there"""
    followed_by: str = ""
    """In a later statement of the same file: has to be there"""
