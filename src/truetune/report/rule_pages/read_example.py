"""Reads the example of a rule's page: which reader understands the blocks of which station.

A rule's page holds its example as its first test needs it. What a block means is up to the station;
here it becomes the files that people write, and the tests lay out the same files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import DATA, OWN_PACKAGE, rule_page, station_of_rule
from truetune.parsing.parse_yaml_within_limits import parse_yaml
from truetune.report.rule_pages import (
    examples_of_code,
    examples_of_measurements,
    examples_of_rows,
    examples_of_settings,
    examples_of_training_results,
)
from truetune.report.rule_pages.example_files import Example

BEFORE, AFTER = "Example", "Use instead"
"""The headings of the two blocks of a page"""
READERS_OF_TEXT: Mapping[str, Callable[[str], Example]] = {
    "source": examples_of_code.example_of_script,
    "commands": examples_of_code.example_of_commands,
    "modelfile": examples_of_code.example_of_modelfile,
    "batch": examples_of_code.example_of_run,
    "law": examples_of_code.example_of_run,
    "recitation": examples_of_code.example_of_run,
    "rollout": examples_of_code.example_of_run,
}
"""By station: blocks that are a file's own text"""
READERS_OF_YAML: Mapping[str, Callable[[Mapping[str, Any]], Example]] = {
    **dict.fromkeys(DATA, examples_of_rows.example_of_rows),
    "tokenized": examples_of_rows.example_of_stored_rows,
    "retrieval": examples_of_rows.example_of_retrieval_rows,
    "config": examples_of_settings.example_of_settings,
    "devices": examples_of_settings.example_of_devices,
    "log": examples_of_training_results.example_of_log,
    "checkpoint": examples_of_training_results.example_of_checkpoint,
    "answers": examples_of_measurements.example_of_answers,
    "cause": examples_of_measurements.example_of_cause,
    "evaluation": examples_of_measurements.example_of_evaluation,
    "serving": examples_of_measurements.example_of_serving,
    "reward": examples_of_measurements.example_of_reward,
    "environment": examples_of_measurements.example_of_environment,
}
"""By station: blocks that describe files, in YAML"""
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"```\w+\n(?P<text>.*)```", re.DOTALL)


def sections_of_page(markdown: str) -> dict[str, str]:
    """The sections of a rule's page by their headings; what stands before the first one is left
    out.
    """
    parts = _HEADING.split(markdown)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def examples_of_rule(rule: type[Rule[Any]]) -> tuple[Example, Example] | None:
    """The two examples of a rule's page, as files.

    Args:
        rule: any rule.

    Returns:
        What the rule finds, and what to use instead. None for a rule of a plug-in, whose blocks may
        mean anything.
    """
    if not rule.__module__.startswith(f"{OWN_PACKAGE}."):
        return None
    sections = sections_of_page(rule_page(rule))
    station = station_of_rule(rule)
    return (
        _read_block(station, _text_of_block(sections[BEFORE])),
        _read_block(station, _text_of_block(sections[AFTER])),
    )


def _text_of_block(section: str) -> str:
    found = _BLOCK.fullmatch(section)
    # tests/checks/test_pages.py holds every page to one block a section.
    assert found is not None, section
    return found["text"]


def _read_block(station: str, block: str) -> Example:
    if station in READERS_OF_TEXT:
        return READERS_OF_TEXT[station](block)
    return READERS_OF_YAML[station](parse_yaml(block).value)
