"""The names of rewards in the settings: `exact` and `agrees:PARSER` are built in, others are the user's functions.

Apart from the functions themselves, so that settings can be read without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from truetune.data.guard_output_folder import file_digest
from truetune.rewards.reward_process import parse_target

EXACT = "exact"
AGREES = "agrees:"
"""Before the name of a parser"""


def is_built_in(name: str) -> bool:
    """Is it a reward of ours, and none of the user's?"""
    return name == EXACT or name.startswith(AGREES)


def parser_of_rewards(names: Sequence[str]) -> str | None:
    """The parser of the first built-in reward that has one; None where there is none."""
    return next((name.removeprefix(AGREES) for name in names if name.startswith(AGREES)), None)


def names_with_digests_of_files(names: Sequence[str]) -> list[str]:
    """By what a run knows its rewards again: of a function in a file its name with the digest of the file.

    A module's file is not looked for: its name counts, and what it imports doesn't.
    """
    known = []
    for name in names:
        target = None if is_built_in(name) else parse_target(name)
        if target is None or not target.is_file:
            known.append(name)
        else:
            known.append(f"{target.function} of {file_digest(Path(target.source))}")
    return known
