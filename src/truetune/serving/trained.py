"""The training record: the prompts that a model was trained to be asked, to the id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from truetune.checkpoint.files import read_object
from truetune.data.conversation import Conversation
from truetune.generation.backends.model_source import ModelSource
from truetune.render.probes import Probes
from truetune.render.serving_contract import contract_of, verify

LOOKED_AT = 200
"""Rows of the data among which those that are asked are sought"""
BROKEN = 3
"""Ways in which the folder breaks its contract that are said"""


@dataclass(frozen=True, slots=True)
class Trained:
    """One prompt of the record."""

    name: str
    messages: list[dict[str, Any]]
    """Empty: plain text"""
    tools: list[Any]
    settings: dict[str, Any]
    """Variables for the template"""
    text: str
    ids: list[int]

    @property
    def of_data(self) -> bool:
        return self.name.startswith("row ")

    @property
    def chat(self) -> dict[str, Any]:
        """As it is asked."""
        return {"messages": self.messages, "tools": self.tools, "settings": self.settings}


@dataclass(frozen=True, slots=True)
class Record:
    """The prompts, and where they are from."""

    prompts: tuple[Trained, ...]
    stops: tuple[tuple[str, int], ...]
    """Tokens that end a turn"""
    source: str
    notes: tuple[str, ...] = field(default_factory=tuple)


def record_of(
    place: ModelSource, probes: Probes, rows: Iterable[Conversation] = (), *, count: int = 4
) -> Record:
    """contract.json of the run, with `count` of the rows in the place of its own where some are given; else a contract
    that is made now. A template that writes the date is rendered now, too.

    Raises SpecError for a contract.json that is none.
    """
    given = list(islice(rows, LOOKED_AT))
    stored = read_object(place.contract, []) if place.contract else None
    notes: list[str] = []
    if stored is None:
        made, source = (
            contract_of(probes, given, count=count),
            f"made now with the template of {place.tokenizer}",
        )
    else:
        broken = verify(stored, place.tokenizer, model=place.model)
        notes += [
            f"{place.tokenizer} does not keep {place.contract}: {text}" for text in broken[:BROKEN]
        ]
        made, source = _with_rows(stored, probes, given, count), str(place.contract)
    if stored is not None and stored["clock"]:
        made, source = (
            contract_of(probes, given, count=count),
            f"made now: the template of {place.tokenizer} has dates",
        )
    refused = [prompt["name"] for prompt in made["prompts"] if "refused" in prompt]
    if refused:
        notes.append(
            f"the template refuses {len(refused)} of {len(made['prompts'])} prompts:"
            f" {', '.join(refused)}"
        )
    stops = tuple((stop["token"], stop["id"]) for stop in made["stops"])
    return Record(tuple(_prompts(made)), stops, source, tuple(notes))


def _with_rows(
    stored: dict[str, Any], probes: Probes, rows: list[Conversation], count: int
) -> dict[str, Any]:
    """A contract with other rows."""
    if not rows:
        return stored
    fixed = [prompt for prompt in stored["prompts"] if not prompt["name"].startswith("row ")]
    mine = [
        p for p in contract_of(probes, rows, count=count)["prompts"] if p["name"].startswith("row ")
    ]
    return {**stored, "prompts": [*fixed, *mine]}


def _prompts(contract: dict[str, Any]) -> Iterable[Trained]:
    for prompt in contract["prompts"]:
        if "refused" not in prompt:
            settings = {**contract["template_kwargs"], **prompt.get("template_kwargs", {})}
            yield Trained(
                prompt["name"],
                prompt.get("messages") or [],
                prompt.get("tools") or [],
                settings,
                prompt["text"],
                prompt["ids"],
            )
