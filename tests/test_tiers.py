"""Each test is of one tier, and the fast one is collected and run without torch and without fetched parts."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests import parts, tiers

ROOT = Path(__file__).parents[1]
COLLECT_WITHOUT_HEAVY = """
import sys
import pytest
from tests.tiers import HEAVY
sys.modules.update(dict.fromkeys(HEAVY))
sys.exit(pytest.main(["-m", "fast", "--collect-only", "-q", "-p", "no:cacheprovider"]))
"""
FEWEST = 3000
"""Fast tests. A third less than there are: fewer mean that the list of modules has lost a folder."""


def test_the_fast_tier_is_collected_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECT_WITHOUT_HEAVY],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    counts = (
        line.rpartition(": ") for line in done.stdout.splitlines() if line.startswith("tests/")
    )
    assert sum(int(count) for _, _, count in counts) > FEWEST


@pytest.mark.parametrize("name", tiers.HEAVY)
def test_a_fast_test_cannot_import_heavy_packages(name: str) -> None:
    with pytest.raises(ImportError):
        importlib.import_module(name)


def test_a_fast_test_cannot_ask_for_parts() -> None:
    with pytest.raises(AssertionError, match="a test of the fast tier asks for parts"):
        parts.folder("qwen3")


def test_the_extra_of_the_fast_tier_installs_nothing_heavy() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    assert not {Requirement(line).name for line in needed} & {*tiers.HEAVY, "truetune"}


def test_what_is_listed_as_fast_exists() -> None:
    assert [name for name in tiers.FAST if not (tiers.TESTS / name).exists()] == []
    assert sorted(tiers.FAST) == list(tiers.FAST)


def test_every_test_is_of_one_tier(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        names = {mark.name for mark in item.iter_markers()} & {"fast", "real", "slow"}
        assert len(names) == 1, item.nodeid
