"""Loads the training record (contract.json): the prompts that a model was trained to be asked, to the id.

A run leaves contract.json; where there is none, or where its prompts hold the date of another day, a contract is made
now with the template in the model's folder. The trade-off of the latter: a template that was swapped after the
training can't be told from the one of the training, so the record says where it is from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.data.conversation import Conversation
from truetune.generation.backends.model_source import ModelSource
from truetune.render.serving_contract import make_serving_contract, verify
from truetune.render.template_probes import Probes

# Chosen, not measured: rows of several kinds are among so many, and reading them takes no time to speak of.
MAX_ROWS_READ = 200
"""Rows of the data among which those that are asked are sought"""
MAX_SHOWN_BREACHES = 3
"""Ways in which the folder breaks its contract that are said"""


@dataclass(frozen=True, slots=True)
class TrainedPrompt:
    """One prompt of the training record."""

    name: str
    messages: list[dict[str, Any]]
    """Empty: plain text"""
    tools: list[Any]
    settings: dict[str, Any]
    """Variables for the template"""
    text: str
    ids: list[int]

    @property
    def is_from_data_row(self) -> bool:
        """Is the prompt from a row of the data?"""
        return self.name.startswith("row ")

    @property
    def as_chat_request_body(self) -> dict[str, Any]:
        """The prompt as the body of a chat request."""
        return {"messages": self.messages, "tools": self.tools, "settings": self.settings}


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """The prompts that a model was trained to be asked, and where they are from."""

    prompts: tuple[TrainedPrompt, ...]
    stops: tuple[tuple[str, int], ...]
    """Tokens that end a turn"""
    source: str
    notes: tuple[str, ...] = field(default_factory=tuple)


def load_training_record(
    source: ModelSource, probes: Probes, rows: Iterable[Conversation] = (), *, count: int = 4
) -> TrainingRecord:
    """Load the training record, or make it now. contract.json of the run, with `count` of the rows
    in the place of its own where some are given; else a contract that is made now. A template that
    writes the date is rendered now, too.

    Raises SpecError for a contract.json that is none.
    """
    first_rows = list(islice(rows, MAX_ROWS_READ))
    stored = read_json_object(source.contract, []) if source.contract else None
    notes: list[str] = []
    if stored is None:
        contract = make_serving_contract(probes, first_rows, count=count)
        origin = f"made now with the template of {source.tokenizer}"
    else:
        broken = verify(stored, source.tokenizer, model=source.model)
        notes += [
            f"{source.tokenizer} does not keep {source.contract}: {text}"
            for text in broken[:MAX_SHOWN_BREACHES]
        ]
        contract = _contract_with_rows_replaced(stored, probes, first_rows, count)
        origin = str(source.contract)
    # A date in the stored prompts is that of the training: a server of today would differ from it without a fault.
    if stored is not None and stored["clock"]:
        contract = make_serving_contract(probes, first_rows, count=count)
        origin = f"made now: the template of {source.tokenizer} has dates"
    # A template that refuses system messages or tools is no fault; the prompts are left out, and said.
    refused = [prompt["name"] for prompt in contract["prompts"] if "refused" in prompt]
    if refused:
        notes.append(
            f"the template raises on {len(refused)} of {len(contract['prompts'])} prompts:"
            f" {', '.join(refused)}"
        )
    stops = tuple((stop["token"], stop["id"]) for stop in contract["stops"])
    return TrainingRecord(
        tuple(_prompts_not_refused_by_template(contract)), stops, origin, tuple(notes)
    )


def _contract_with_rows_replaced(
    stored: dict[str, Any], probes: Probes, rows: list[Conversation], count: int
) -> dict[str, Any]:
    """A contract whose rows are replaced by others."""
    if not rows:
        return stored
    # The fixed conversations stay: they try turns, system messages and tools, which rows may lack.
    fixed = [prompt for prompt in stored["prompts"] if not prompt["name"].startswith("row ")]
    contract = make_serving_contract(probes, rows, count=count)
    row_prompts = [prompt for prompt in contract["prompts"] if prompt["name"].startswith("row ")]
    return {**stored, "prompts": [*fixed, *row_prompts]}


def _prompts_not_refused_by_template(contract: dict[str, Any]) -> Iterable[TrainedPrompt]:
    """The prompts of a contract, without those that the template refuses."""
    for prompt in contract["prompts"]:
        if "refused" not in prompt:
            settings = {**contract["template_kwargs"], **prompt.get("template_kwargs", {})}
            yield TrainedPrompt(
                prompt["name"],
                prompt.get("messages") or [],
                prompt.get("tools") or [],
                settings,
                prompt["text"],
                prompt["ids"],
            )
