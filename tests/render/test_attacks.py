"""Templates come with any downloaded tokenizer: whatever one does, it ends soon, small, and in one error or a text.

TRUETUNE_ATTACKS=all runs every attack (minutes: many use up all of their second); else every SAMPLE-th of each family,
and all that try to leave the sandbox.
"""

from __future__ import annotations

import os

import pytest

from tests.render.attacks import ATTACKS, FAMILIES
from tests.render.run_attacks import run

SAMPLE = 10
PYTHON_SHOWS = (
    "<class",
    "<function",
    "<module",
    "<built-in",
    "<bound",
    "<code",
    "<frame",
    " at 0x",
    "__",
    "Meter",
)
"""What the text of an attack that got out of the sandbox would hold."""


def chosen(family: str) -> list[str]:
    """The names of the attacks of a family that this run tries."""
    names = [f"{family}: {name}" for name in FAMILIES[family]]
    return (
        names
        if family == "escapes" or os.environ.get("TRUETUNE_ATTACKS") == "all"
        else names[::SAMPLE]
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_attacks_end_within_the_limits(family: str) -> None:
    results = list(run(chosen(family)))
    assert [result.name for result in results] == chosen(family)
    faults = [(result.faults, result) for result in results if result.faults]
    assert not faults, "\n".join(map(str, faults))
    if family == "escapes":
        shown = [
            result for result in results if result.ending == "text" and _shows_python(result.text)
        ]
        assert not shown, shown


def _shows_python(text: str) -> bool:
    return any(word in text for word in PYTHON_SHOWS)


def test_there_are_many_attacks() -> None:
    assert len(ATTACKS) == len(set(ATTACKS.values())) >= 160
