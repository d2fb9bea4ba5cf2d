"""Each entry on known versions fires on a broken set of versions, and is silent on a clean one."""

from __future__ import annotations

import re

import pytest

from tests.checks.pages.environment import environment
from truetune.checks.environment.version_clashes import VERSION_CLASHES
from truetune.checks.environment.versions_known_to_clash import VersionsKnownToClash

SETS = [
    (
        "peft",
        {"peft": "0.17.1", "transformers": "5.20.0"},
        {"peft": "0.17.1", "transformers": "4.55.4"},
    ),
    (
        "accelerate",
        {"accelerate": "0.34.0", "transformers": "4.52.3"},
        {"accelerate": "1.3.0", "transformers": "4.52.3"},
    ),
    (
        "argument 'tokenizer'",
        {"trl": "0.11.4", "transformers": "5.20.0"},
        {"trl": "0.11.4", "transformers": "4.46.2"},
    ),
    (
        "dict",
        {"trl": "0.27.0", "transformers": "5.20.0"},
        {"trl": "0.29.0", "transformers": "5.20.0"},
    ),
    ("padding_free", {"trl": "0.19.1"}, {"trl": "0.29.0"}),
    ("bfd", {"trl": "0.28.0"}, {"trl": "0.29.0"}),
    ("multiplied", {"transformers": "4.46.1"}, {"transformers": "4.46.2"}),
    ("too large", {"transformers": "4.48.0"}, {"transformers": "4.48.1"}),
    ("bos_token_id", {"transformers": "5.17.0"}, {"transformers": "5.18.0"}),
    (
        "Numpy",
        {"numpy": "2.0.1", "torch": "2.2.2+cu121"},
        {"numpy": "2.0.1", "torch": "2.3.0+cu121"},
    ),
    (
        "LocalFileSystem",
        {"datasets": "2.14.5", "fsspec": "2023.10.0"},
        {"datasets": "2.14.6", "fsspec": "2023.10.0"},
    ),
]


@pytest.mark.parametrize(("word", "broken", "clean"), SETS, ids=[word for word, *_ in SETS])
def test_each_entry(word: str, broken: dict[str, str], clean: dict[str, str]) -> None:
    def said(packages: dict[str, str]) -> list[str]:
        found = VersionsKnownToClash(environment({"packages": packages})).findings()
        return [finding.message for finding in found if word in finding.message]

    assert len(said(broken)) == 1
    assert said(clean) == []


def test_all_entries_are_tested_and_cited() -> None:
    assert len(SETS) == len(VERSION_CLASHES)
    for clash in VERSION_CLASHES:
        assert clash.threads
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread) for thread in clash.threads)


def test_a_version_of_its_own_spelling_is_no_crash() -> None:
    assert not list(
        VersionsKnownToClash(environment({"packages": {"trl": "main", "torch": "??"}})).findings()
    )
