"""The table of facts: each stands in the release that it names, the page shows it, and rules follow it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

import pytest

from truetune.trainers import TRAINER_NAMES, TRAINERS, TrainerFacts
from truetune.trainers.facts_page import FACT_TITLES, render_facts_page
from truetune.trainers.trainer_fact_types import Fact, TrainerName

PAGE = Path(__file__).parents[2] / "docs" / "trainers-facts.md"
READ = [
    (name, fact, value)
    for name, facts in TRAINERS.items()
    for fact, value in facts.facts().items()
    if facts.proof != "none"
]


def test_there_is_one_table_for_each_trainer() -> None:
    assert tuple(sorted(TRAINERS)) == tuple(sorted(TRAINER_NAMES))


def test_the_page_shows_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.endswith(render_facts_page().rstrip() + "\n")
    assert set(FACT_TITLES) == {fact for _, fact, _ in READ}


def names_in(source: str) -> set[str]:
    """Every class, function, assigned name and keyword of a file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, (ast.keyword, ast.arg)):
            found.add(str(node.arg))
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def symbols(fact: Fact[object]) -> Iterator[str]:
    """The names that a fact says it was read at."""
    for part in re.split(r"[,;()]", fact.symbol):
        yield from (
            name
            for name in re.findall(r"[A-Za-z_][A-Za-z0-9_.]*", part.partition(":")[0])
            if "." in name
        )


def package_of(facts: TrainerFacts, file: str) -> Path:
    """The file in the installed package; skips where it, or its release, is another one."""
    top = file.partition("/")[0]
    if util.find_spec(top) is None:
        pytest.skip(
            f"{facts.package} is not installed: read from the source of release {facts.release}"
        )
    if facts.package != "truetune" and metadata.version(facts.package) != facts.release:
        pytest.skip(
            f"{facts.package} {metadata.version(facts.package)} is installed; facts are of"
            f" {facts.release}"
        )
    spec = util.find_spec(top)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parents[1] / file


@pytest.mark.parametrize(
    ("name", "fact", "value"), READ, ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_fact_names_a_place_that_is_there(
    name: TrainerName, fact: str, value: Fact[object]
) -> None:
    path = package_of(TRAINERS[name], value.file)
    there = names_in(path.read_text(encoding="utf-8"))
    for symbol in symbols(value):
        assert set(symbol.split(".")) <= there, f"{fact}: {symbol} is not in {value.file}"
    assert value.symbol
