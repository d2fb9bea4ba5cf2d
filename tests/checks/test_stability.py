"""What a rule says of itself: the first release with it, and whether bench, real material and source back it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.bugs.case import Case, cases
from tests.tiers import FAST
from truetune.checks.former_rule_codes import FORMER_CODES
from truetune.checks.rule import UNRELEASED, Rule
from truetune.checks.rule_catalogue import all_rules, rule_page, select_rules
from truetune.cli import truetune_group

ROOT = Path(__file__).parents[2]
STABLE = [rule for rule in all_rules() if rule.stability == "stable"]
SOURCE = re.compile(
    r"[\w.-]+/[\w.-]+#\d+|https?://|arXiv|doi:|documentation|[\w-]+/[\w-]+|\.(org|ai|com|io)\b"
)
"""A thread, a page, a paper, documentation or a repository"""
RELEASE = re.compile(r"^## (\d+\.\d+\.\d+)\b", re.MULTILINE)


@cache
def bench_cases() -> dict[str, list[Case]]:
    """The cases of the bug bench, by the rules that are right about them."""
    found: dict[str, list[Case]] = {}
    for case in cases():
        for name in case.rules:
            found.setdefault(name, []).append(case)
    return found


def uses_real_material(case: Case) -> bool:
    """Is it tried with a real tokenizer, a real trainer, or a real server?"""
    return (
        bool(case.families)
        or case.runs
        or "{endpoint}" in case.command
        or "{engine}" in case.command
    )


@cache
def texts_of_real_tests() -> tuple[str, ...]:
    """The tests beyond the rules' pages that are no fast ones: they have real tokenizers, models or trainers."""
    fast = {f"tests/{name}" for name in FAST}
    paths = (path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py"))
    about_pages = ("tests/checks/pages/", "tests/checks/test_pages.py", "tests/test_outputs.py")
    chosen = (path for path in paths if path not in fast and not path.startswith(about_pages))
    return tuple((ROOT / path).read_text(encoding="utf-8") for path in chosen)


def is_in_a_real_test(rule: type[Rule[Any]]) -> bool:
    """Does one of them name the rule, or its class?"""
    named = re.compile(rf"(?<![\w-]){re.escape(rule.name())}(?![\w-])|\b{rule.__name__}\b")
    return any(named.search(text) for text in texts_of_real_tests())


@pytest.mark.parametrize("rule", STABLE, ids=lambda rule: rule.name())
def test_a_stable_rule_has_bench_case_real_material_and_source(rule: type[Rule[Any]]) -> None:
    of_bench = bench_cases().get(rule.name(), [])
    assert of_bench, "no case of the bug bench names it"
    assert any(map(uses_real_material, of_bench)) or is_in_a_real_test(rule), "no real material"
    assert SOURCE.search(rule_page(rule).partition("## References\n")[2]), (
        "its page names no public source"
    )


def test_each_rule_says_a_release_that_there_is() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = set(RELEASE.findall(changes))
    assert released
    assert {rule.since for rule in all_rules()} <= released | {UNRELEASED}
    if "## Unreleased" not in changes:
        assert not [rule.name() for rule in all_rules() if rule.since == UNRELEASED]


def test_released_rules_had_a_code_of_that_release() -> None:
    # 0.1.0 knew only codes without letters: a rule that never had one is newer.
    first = {rule.code for rule in all_rules() if rule.since == "0.1.0"}
    assert len(first) == 333
    assert first <= set(FORMER_CODES.values())


def test_stability_selects_rules() -> None:
    stable, preview = (
        {rule.code for rule in select_rules((word,), ())} for word in ("stable", "preview")
    )
    assert stable == {rule.code for rule in STABLE}
    assert stable | preview == {rule.code for rule in all_rules()}
    assert not stable & preview
    assert {rule.code for rule in select_rules((), ("preview",))} == stable
    assert {rule.code for rule in select_rules(("stable",), (), "log")} == stable & {
        rule.code for rule in all_rules("log")
    }


def test_rules_are_listed_with_both() -> None:
    shown = CliRunner().invoke(truetune_group, ["rules", "stable", "--json"], standalone_mode=False)
    listed = json.loads(shown.stdout)["rules"]
    assert {one["stability"] for one in listed} == {"stable"}
    assert {one["since"] for one in listed} <= {"0.1.0", UNRELEASED}
    shown = CliRunner().invoke(truetune_group, ["rules", "TOK001"], standalone_mode=False)
    _heading, line = shown.stdout.splitlines()
    assert line.split()[:5] == ["TOK001", "pad-is-stop-token", "error", "stable", "0.1.0"]
