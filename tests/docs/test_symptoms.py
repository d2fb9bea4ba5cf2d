"""The guides on symptoms have one form, and name rules that there are."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT, blocks
from truetune.checks.explaining.guides import GUIDES
from truetune.checks.explaining.search_rules_messages_guides_commands import (
    list_topics,
    search_topics,
)
from truetune.checks.rule_catalogue import all_rules
from truetune.probe.laws import law_modules

SYMPTOMS = (
    "garbage-output",
    "loss-does-not-fall",
    "nothing-is-learned",
    "out-of-memory",
    "several-gpus",
    "odd-metrics",
    "slow-training",
    "slow-generation",
    "dpo-without-effect",
    "reward-does-not-rise",
    "reward-rises-model-is-worse",
)
FORM = (
    "What you see", "One command, and what it prints", "Causes, most likely first", "The fix",
    "Check that it is fixed", "How to prevent it",
)  # fmt: skip
GUIDE = {guide.name: guide for guide in GUIDES}


@pytest.mark.parametrize("name", SYMPTOMS)
def test_a_symptom_has_the_form_of_all(name: str) -> None:
    page = f"docs/{GUIDE[name].page}"
    text = (ROOT / page).read_text(encoding="utf-8")
    assert tuple(re.findall(r"^## (.*)$", text, re.M)) == FORM
    sections = dict(zip(FORM, re.split(r"^## .*$", text, flags=re.M)[1:], strict=True))
    assert "$ truetune" in sections["One command, and what it prints"]
    assert "$ truetune" in sections["Check that it is fixed"]
    assert sections["Causes, most likely first"].count("\n| ") >= 5
    assert any(block.page == page and block.language == "console" for block in blocks())


@pytest.mark.parametrize("name", SYMPTOMS)
def test_the_causes_are_proved_by_rules_that_there_are(name: str) -> None:
    text = (ROOT / "docs" / GUIDE[name].page).read_text(encoding="utf-8")
    causes = text.partition("## Causes")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", causes))
    assert named - {rule.name() for rule in all_rules()} <= set(law_modules())
    assert named or name == "out-of-memory"


@pytest.mark.parametrize("name", SYMPTOMS)
def test_the_words_of_users_lead_to_the_guide(name: str) -> None:
    known = tuple(list_topics())
    for words in GUIDE[name].asked:
        assert name in [hit.topic.name for hit in search_topics(words, known)], words


def test_the_index_leads_to_every_symptom() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert [name for name in SYMPTOMS if f"]({GUIDE[name].page})" not in index] == []
