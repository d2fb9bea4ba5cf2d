"""A rule that says "it is about ..." something else has found nothing.

Findings are read before the reason why a rule can't judge: a rule that counts on its reason alone reports a fault that
the trainer does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.pages import block, sections
from tests.checks.pages.data import write_data
from truetune.checks.check_data import check
from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import all_rules, station_of_rule
from truetune.trainers.trainer_fact_types import TRAINER_NAMES

STATIONS = ("rows", "pairs", "tokenizer", "template", "tokens")
RULES = [rule for rule in all_rules() if station_of_rule(rule) in STATIONS]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name())
def test_no_finding_where_the_rule_is_about_something_else(
    rule: type[Rule[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On its own example, under each trainer."""
    contradictions: list[str] = []
    findings_of_rule = rule.findings

    def compare_with_reason(self: Rule[Any]) -> Iterator[Finding]:
        found = list(findings_of_rule(self))
        unmet = self.unmet() if found else None
        if unmet is not None and unmet.reason.startswith("it is about"):
            contradictions.append(f"{unmet.reason}, and yet: {found[0].message}")
        yield from found

    monkeypatch.setattr(rule, "findings", compare_with_reason)
    example = yaml.safe_load(block(sections(rule)["Example"]))
    for trainer in TRAINER_NAMES:
        folder = tmp_path / trainer
        folder.mkdir()
        spec = write_data(yaml.safe_dump({**example, "spec": _under(example, trainer)}), folder)
        check(spec.model_copy(update={"select": (rule.name(),)}))
    assert contradictions == []


def _under(example: dict[str, Any], trainer: str) -> dict[str, Any]:
    """The settings of an example under another trainer."""
    return {**(example.get("spec") or {}), "trained_by": trainer}
