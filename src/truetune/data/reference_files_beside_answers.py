"""Finds the text files of references and questions that belong to a file of one answer a line
beside them.

Scripts on translations and summaries write `hyps.txt` beside `refs.txt`, or `test.pred.txt` beside `test.gold.txt` and
`test.src.txt`. Names and numbers of lines prove together what belongs to what: a file counts whose name differs by the
word for its role alone, that has as many lines, and that is the only one of its role.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from truetune.errors import DataError
from truetune.parsing.read_files_within_limits import lines_within_limit

WORDS_OF_ROLE = {
    "prediction": frozenset(
        (
            "hyp",
            "hypo",
            "hypothesis",
            "hypotheses",
            "pred",
            "prediction",
            "output",
            "answer",
            "generated",
            "generation",
        )
    ),
    "reference": frozenset(
        ("ref", "reference", "gold", "golden", "target", "tgt", "label", "expected")
    ),
    "prompt": frozenset(("prompt", "question", "query", "src", "source", "input")),
}
MAX_FILES = 1_000
"""Files of a folder that are looked at. Chosen, not measured"""


def find_reference_and_prompt_files(path: Path, lines: int) -> dict[str, Path]:
    """The files of references and of prompts that belong to a file of answers: role -> file, if
    there is just one of the role.

    Args:
        path: the file of answers, one a line.
        lines: how many it has.
    """
    role, rest = _role_and_other_words_of_name(path)
    if role != "prediction":
        return {}
    candidates: dict[str, list[Path]] = {"reference": [], "prompt": []}
    try:
        siblings = sorted(path.parent.glob(f"*{path.suffix}"))[:MAX_FILES]
    except OSError:
        return {}
    for sibling in siblings:
        its_role, its_rest = _role_and_other_words_of_name(sibling)
        if its_role in candidates and its_rest == rest and sibling.is_file():
            candidates[its_role].append(sibling)
    return {
        role: files[0]
        for role, files in candidates.items()
        if len(files) == 1 and len(read_text_lines(files[0])) == lines
    }


def read_text_lines(path: Path) -> Sequence[str]:
    """The lines of a text file without their ends; empty if it is not UTF-8, or a line is too long."""
    try:
        with path.open("rb") as file:
            return [
                line.decode().removeprefix("\ufeff").rstrip("\r\n")
                for line, _ in lines_within_limit(file)
            ]
    except (OSError, ValueError, DataError):
        return []


def _role_and_other_words_of_name(path: Path) -> tuple[str, tuple[str, ...]]:
    """The role that a file's name says (empty if it says none), and the name's other words."""
    words = [word for word in re.split(r"[\W_]+", path.stem.lower()) if word]
    for role, names in WORDS_OF_ROLE.items():
        named = [word for word in words if word in names or word.removesuffix("s") in names]
        if named:
            words.remove(named[0])
            return role, tuple(words)
    return "", tuple(words)
