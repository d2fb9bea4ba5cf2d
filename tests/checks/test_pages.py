"""Each rule's page is whole, fires on its example, and is silent on the corrected one."""

from __future__ import annotations

import contextlib
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.pages import HEADINGS, block, run, sections
from tests.rule_findings import is_as_kept, printed_finding
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import DATA, all_rules, rule_page, station_of_rule
from truetune.report.rule_pages.read_example import examples_of_rule

RULES = all_rules()
REAL_RUNS = ("batch", "recitation")
"""Stations whose healthy example must have a figure here; that of the others is asserted in `test_figures*.py`"""
LAID_OUT_AS_FILES = (*DATA, "config", "source", "commands", "modelfile", "checkpoint")
"""Stations whose examples are laid out as files; of a log the figures are shown rounded"""
MADE_FOR_READERS = ("truetune.yaml",)
"""Settings that a test gives without a file"""
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
    printed = printed_finding(broken, tmp_path / "broken")
    assert is_as_kept(rule, printed), f"run `python -m tests.rule_findings {station_of_rule(rule)}`"
    assert_shown_files_are_judged(rule, tmp_path / "broken")
    if station_of_rule(rule) in REAL_RUNS:
        assert_is_examined(rule, found["Use instead"])
    else:
        assert run(rule, found["Use instead"], tmp_path / "corrected") == ()


def assert_shown_files_are_judged(rule: type[Rule[Any]], folder: Path) -> None:
    """The files that readers of the page see are those that the rule has just judged."""
    examples = examples_of_rule(rule)
    assert examples is not None
    if station_of_rule(rule) not in LAID_OUT_AS_FILES:
        return
    for file in examples[0].files:
        if file.is_measured or file.name in MADE_FOR_READERS:
            continue
        path = folder / file.name
        text = path.read_text(encoding="utf-8").replace(f"{folder}/", "")
        if file.is_edit and path.suffix == ".json":
            assert json.loads(file.text).items() <= json.loads(text).items(), file.name
        else:
            assert parsed(file.name, text) == parsed(file.name, file.text), file.name


def parsed(name: str, text: str) -> Any:
    """What a file says, whatever its white space."""
    if name.endswith(".json"):
        # Some examples are of a broken file.
        with contextlib.suppress(json.JSONDecodeError):
            return json.loads(text)
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    return yaml.safe_load(text) if name.endswith((".yaml", ".yml")) else text.strip()


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
