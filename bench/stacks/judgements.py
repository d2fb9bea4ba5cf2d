"""Whether what a stack printed names the bug: judgements.yaml, judged by hand from the lines of the results."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

from bench.stacks.run_cases import StackResult


class Judgement(BaseModel):
    """What is held of the lines that a stack printed of a broken copy alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    names_the_bug: bool
    because: str
    line: str = ""
    """Part of the line that names the bug"""
    comparable: bool = True
    """False where the broken copy ended for a reason of this machine"""


@cache
def judgements() -> dict[tuple[str, str], Judgement]:
    """(stack, case) -> its judgement.

    Raises:
        pydantic.ValidationError: The file has an entry of another form.
    """
    text = Path(__file__).with_name("judgements.yaml").read_text(encoding="utf-8")
    stacks: dict[str, dict[str, dict[str, object]]] = yaml.safe_load(text)
    return {
        (stack, case): Judgement.model_validate(entry)
        for stack, entries in stacks.items()
        for case, entry in entries.items()
    }


def names_the_bug(result: StackResult) -> bool:
    """Whether the stack found the bug.

    Args:
        result: What it printed.

    Returns:
        True where it was judged so; False where it printed nothing of the broken copy alone.

    Raises:
        KeyError: It printed something that nobody has judged.
    """
    return bool(result.messages) and judgements()[result.stack, result.case].names_the_bug


def is_comparable(result: StackResult) -> bool:
    """Whether the difference between the two copies says something about the stack.

    Args:
        result: What it printed.

    Returns:
        False where the clean copy did not run through, or it was judged so.
    """
    judgement = judgements().get((result.stack, result.case))
    return result.clean_exit_code == 0 and (judgement is None or judgement.comparable)


def line_that_names_the_bug(result: StackResult) -> str:
    """The line by which a stack found the bug.

    Args:
        result: One with a judgement that it names the bug.

    Returns:
        The line as it was printed.

    Raises:
        ValueError: The judgement quotes a line that was not printed.
    """
    part = judgements()[result.stack, result.case].line
    for message in result.messages:
        if part in message:
            return message
    raise ValueError(f"{result.stack}, {result.case}: no line has {part!r}")
