"""Each rule's page is whole, fires on its example, and is silent on the mended one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.checks.pages import HEADINGS, run, sections
from truetune.checks.catalogue import page, rules
from truetune.checks.rule import Rule

RULES = rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name())
def test_page(rule: type[Rule[Any]], tmp_path: Path) -> None:
    found = sections(rule)
    assert tuple(found) == HEADINGS
    assert all(found.values())
    assert page(rule).partition("\n")[0].endswith(".")
    broken = run(rule, found["Example"], tmp_path / "broken")
    assert [f.code for f in broken][:1] == [rule.code]
    assert run(rule, found["Use instead"], tmp_path / "mended") == ()


def test_codes_and_names_are_unique() -> None:
    assert len({rule.code for rule in RULES}) == len({rule.name() for rule in RULES}) == len(RULES)


def test_a_rule_is_short() -> None:
    import inspect

    for rule in RULES:
        source = inspect.getsourcefile(rule)
        assert source is not None
        assert len(Path(source).read_text(encoding="utf-8").splitlines()) < 150, source
