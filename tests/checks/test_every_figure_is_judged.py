"""The table of docs/verdicts.md: each fact that a report writes stands in it, and each rule that it names is one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import truetune
from truetune.checks.rule_catalogue import all_rules

ROOT = Path(truetune.__file__).parent
DOC = Path(__file__).parents[2] / "docs" / "verdicts.md"
WRITERS = {
    "checks/diagnose_log.py": ("_log_facts",),
    "checks/inspect_checkpoint.py": ("checkpoint_facts",),
    "checks/check_environment.py": ("_environment_facts",),
    "checks/judge_answers.py": ("report_on_answers",),
    "evaluation/evaluate_losses_and_answers.py": ("_describe_subject",),
    "evaluation/summarize_training_run_in_words.py": (
        "_facts_of_record",
        "_facts_of_log",
        "_facts_of_watcher",
    ),
    "evaluation/sample_model.py": ("describe_subject",),
    "serving/check_server.py": ("_describe_server",),
}
"""Functions that write the facts of a subject, by name"""
COMMANDS = {"serve-check"}


def table() -> list[list[str]]:
    """Cells of the table of figures: command, figure, judged by."""
    section = DOC.read_text(encoding="utf-8").partition("## Figures, and what judges them")[2]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def written(path: str, functions: tuple[str, ...]) -> Iterator[str]:
    """Names of the facts that these functions write."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for name in functions:
        for node in ast.walk(found[name]):
            if isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
                yield from _texts([node.value.elts[0]])
            elif isinstance(node, ast.Dict):
                yield from _texts(node.keys)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                yield from _texts([node.targets[0].slice])


def _texts(nodes: list[ast.expr] | list[ast.expr | None]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("path", WRITERS)
def test_each_fact_stands_in_the_table(path: str) -> None:
    names = set(written(path, WRITERS[path]))
    known = {name for row in table() for name in quoted(row[1])}
    assert names
    assert not names - known, "enter what judges it into the table of docs/verdicts.md"


def test_each_rule_of_the_table_is_one() -> None:
    known = {rule.name() for rule in all_rules()}
    named = {
        name
        for row in table()
        for name in quoted(row[2])
        if re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name)
    }
    assert len(named) > 40
    assert not named - known - COMMANDS
