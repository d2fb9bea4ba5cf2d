"""Compares texts of rows: white space, case and the prefix of a role aside."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from truetune.checks.findings import Case
from truetune.checks.rule import MAX_CASES
from truetune.data.retrieval_rows import RetrievalRow

MAX_SHOWN_CHARACTERS = 60
"""Characters of a text that a case shows"""
INSTRUCTION = re.compile(
    r"Instruct: [^\n]{1,300}\n ?Query: ?|(?:[Qq]uery|[Pp]assage|[Dd]ocument|search_query|search_document): "
)
"""What models of E5, GTE, Qwen3-Embedding and Nomic have before a text to say its role"""


def plain_text(text: str) -> str:
    """A text in lower case, each run of white space one space, without the prefix of its role."""
    return " ".join(INSTRUCTION.sub("", text, count=1).lower().split())


def cases_of_rows(rows: Iterable[tuple[RetrievalRow, str]]) -> list[Case]:
    """The places of rows, each with the text that shows what is wrong."""
    return [Case(repr(shorten(text)), row.origin) for row, text in islice(rows, MAX_CASES)]


def shorten(text: str) -> str:
    """The beginning of a text, on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_SHOWN_CHARACTERS else f"{flat[: MAX_SHOWN_CHARACTERS - 4]} ..."
