"""The families of rules as the site shows them: their titles, who finds what, and their rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import STATIONS, all_rules, rule_page
from truetune.checks.rule_families import STATION_BY_LETTERS

AnyRule = type[Rule[Any]]
TITLES: Mapping[str, tuple[str, str]] = {
    "tokenizer": ("The tokenizer", "`truetune check` of a tokenizer, or of data with one"),
    "template": ("The chat template", "`truetune check` of a tokenizer, or of data with one"),
    "rows": ("Rows", "`truetune check` of data with a tokenizer"),
    "tokens": ("Tokens and labels", "`truetune check` of data with a tokenizer"),
    "pairs": ("Preference pairs", "`truetune check` of pairs with a tokenizer"),
    "config": (
        "Settings",
        "`truetune check` of a truetune, Axolotl, LLaMA-Factory or TRL configuration",
    ),
    "tokenized": ("Token ids in files", "`truetune check` of rows that are tokenized already"),
    "retrieval": (
        "Rows of embedding models and rerankers",
        "`truetune check` of rows with a query and texts that fit it",
    ),
    "devices": ("Devices and processes", "`truetune train`, where the run starts"),
    "source": ("Python sources and notebooks", "`truetune lint`, `truetune check` of a script"),
    "commands": (
        "Shell scripts, job files, Dockerfiles",
        "`truetune lint` and `truetune check` of one",
    ),
    "modelfile": ("Ollama's Modelfile", "`truetune check` of one"),
    "log": ("The log of a run", "`truetune diagnose`, `truetune check` of a run's folder"),
    "checkpoint": ("Saved weights", "`truetune check` of an adapter or a model"),
    "batch": ("Batches", "`truetune run`, `truetune.audit`, `truetune rehearse`"),
    "law": ("Laws", "`truetune run`, `truetune.audit`, `truetune rehearse`"),
    "recitation": ("Recitation", "`truetune rehearse`"),
    "rollout": ("Rollouts", "`truetune run`, `truetune.audit_rollout`"),
    "answers": ("Answers", "`truetune train` while it trains, `truetune sample`"),
    "cause": ("Causes of bad answers", "`truetune sample`"),
    "evaluation": ("Evaluation", "`truetune evaluate`"),
    "serving": ("Serving", "`truetune serve-check`"),
    "reward": ("Reward functions", "`truetune reward`"),
    "environment": ("The environment", "`truetune doctor`"),
}
"""By station: the title of its rules, and which commands find them"""


@dataclass(frozen=True, slots=True)
class Family:
    """The rules whose codes begin with the same letters."""

    letters: str
    station: str
    title: str
    found_by: str
    """The commands that run them, in Markdown"""
    rules: tuple[AnyRule, ...]


def families_of_rules() -> tuple[Family, ...]:
    """All families, in the order in which a run passes them."""
    letters = {station: name for name, station in STATION_BY_LETTERS.items()}
    return tuple(
        Family(letters[station], station, *TITLES[station], all_rules(station))
        for station in STATIONS
    )


def summary_of_rule(rule: AnyRule) -> str:
    """The first paragraph of a rule's page, on one line."""
    return " ".join(rule_page(rule).split("\n\n", 1)[0].split())
