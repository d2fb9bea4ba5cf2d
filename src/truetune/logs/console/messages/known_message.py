"""KnownMessage: one message that a program prints when something is wrong, with its cause and what
to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from truetune.settings.run_spec import Severity

Shown = Literal["exception", "notice", "end"]
"""`exception`: an exception's type and text. `notice`: at the beginning of a line, and the run continues. `end`: at the
beginning of a line, written by what ended the program (the shell, the launcher, the scheduler, the CUDA runtime)."""


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """How a message reads, what causes it, and what to do next."""

    name: str
    """kebab-case; `truetune explain NAME` shows it"""
    title: str
    """What it means, in one line"""
    pattern: re.Pattern[str]
    cause: str
    """Why it is printed, in order of likelihood"""
    advice: str
    """What to do next: a command that runs, or an edit. `{gpu}` stands for the GPU's memory, as `--gpu` takes it"""
    sources: tuple[str, ...]
    """Public threads, or the file of the library that prints it"""
    shown: Shown = "exception"
    severity: Severity = "error"
    is_consequence: bool = False
    """Another process or an earlier exception is the cause, and this one only reports that it failed"""
    refined_by: tuple[str, ...] = ()
    """Messages of other lines that say more exactly what this exception means, where they were printed too"""
    least: int = 1
    """Of a notice: how often it must be printed to name a fault, where a few are normal"""
    least_share_of_steps: float = 0.0
    """Of a notice: at what share of the steps of a training it must be printed to name a fault"""


def define_message(
    name: str,
    title: str,
    pattern: str,
    cause: str,
    advice: str,
    *sources: str,
    shown: Shown = "exception",
    severity: Severity = "error",
    is_consequence: bool = False,
    refined_by: tuple[str, ...] = (),
    least: int = 1,
    least_share_of_steps: float = 0.0,
) -> KnownMessage:
    """Make a known message of the table from its pattern, cause and advice. The pattern is
    case-sensitive, and a dot does not match the end of a line.
    """
    return KnownMessage(
        name,
        title,
        re.compile(pattern),
        cause,
        advice,
        sources,
        shown,
        severity,
        is_consequence,
        refined_by,
        least,
        least_share_of_steps,
    )
