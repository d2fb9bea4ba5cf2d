"""Each rule's page is whole, fires on its example, and is silent on the corrected one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.checks.pages import HEADINGS, block, run, sections
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import all_rules, rule_page, station_of_rule

RULES = all_rules()
REAL_RUNS = ("batch", "recitation")
"""Stations whose healthy example must have a figure here; that of the others is asserted in `test_figures*.py`"""
OTHER_SUBJECT = {
    "loss-mask-dropped": "it is about masks",
    "new-token-rows-not-trained": "this run trains theirs",
    "unknown-tokens-supervised": "the tokenizer has none",
}
"""Rules whose healthy example is a run to which they do not apply, with a part of the reason that they give"""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name())
def test_page(rule: type[Rule[Any]], tmp_path: Path) -> None:
    found = sections(rule)
    assert tuple(found) == HEADINGS
    assert all(found.values())
    assert rule_page(rule).partition("\n")[0].endswith(".")
    broken = run(rule, found["Example"], tmp_path / "broken")
    assert [f.code for f in broken][:1] == [rule.code]
    if station_of_rule(rule) in REAL_RUNS:
        assert_is_examined(rule, found["Use instead"])
    else:
        assert run(rule, found["Use instead"], tmp_path / "corrected") == ()


def assert_is_examined(rule: type[Rule[Any]], section: str) -> None:
    """The rule finds nothing in a healthy run, and says what it measured there. A real trainer starts once for both."""
    made = importlib.import_module(f"tests.checks.pages.{station_of_rule(rule)}").audited(
        rule, block(section)
    )
    assert made.findings == ()
    if rule.name() in OTHER_SUBJECT:
        assert OTHER_SUBJECT[rule.name()] in made.not_judged[0].reason
        return
    assert not made.not_judged, made.not_judged
    (examined,) = made.examined
    assert any(letter.isdigit() for letter in examined.figure), examined.figure


def test_codes_and_names_are_unique() -> None:
    assert len({rule.code for rule in RULES}) == len({rule.name() for rule in RULES}) == len(RULES)
