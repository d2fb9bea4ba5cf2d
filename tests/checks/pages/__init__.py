"""A rule's page, run: its Example and its Use instead become files that are looked at.

What the blocks mean is up to the rule's station: `findings` of the module named like it (`data` for all that look at
rows).
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import DATA, rule_page, station_of_rule

HEADINGS = ("What it does", "Why it is bad", "Example", "Use instead", "Fix safety", "References")


def sections(rule: type[Rule[Any]]) -> dict[str, str]:
    """The page's sections by heading."""
    parts = re.split(r"^## (.+)$", rule_page(rule), flags=re.M)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def block(section: str) -> str:
    """The one block of a section, without its fences."""
    match = re.fullmatch(r"```\w+\n(.*)```", section, flags=re.S)
    assert match is not None, "expected one block"
    return match[1]


def run(rule: type[Rule[Any]], section: str, folder: Path) -> tuple[Finding, ...]:
    """What this rule alone finds in what a section's block describes, laid out in `folder`."""
    name = "data" if station_of_rule(rule) in DATA else station_of_rule(rule)
    folder.mkdir()
    found: tuple[Finding, ...] = importlib.import_module(f"{__name__}.{name}").findings(
        rule, block(section), folder
    )
    return found
