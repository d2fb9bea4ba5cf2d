"""Blocks that are what a server was seen to do: YAML with the parts of Service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.generation.server_observations import (
    AdapterStrength,
    AnswerEnd,
    ContextLength,
    PromptComparison,
    RepeatedRequests,
    ServerObservations,
    ServerSampling,
    ServerStops,
)

PARTS: dict[str, Any] = {
    "sampling": ServerSampling,
    "repeats": RepeatedRequests,
    "context": ContextLength,
    "strength": AdapterStrength,
}


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at what a block describes with this rule alone."""
    return tuple(rule(service(yaml.safe_load(text))).findings())


def service(example: dict[str, Any]) -> ServerObservations:
    """What a block describes."""
    parts = {name: PARTS[name](**_tuples(example[name])) for name in PARTS if name in example}
    prompts = tuple(
        PromptComparison(**{"same": None, **prompt}) for prompt in example.get("prompts", ())
    )
    stopping = example.get("stopping")
    if stopping is not None:
        endings = tuple(AnswerEnd(**ending) for ending in stopping.get("endings", ()))
        parts["stopping"] = ServerStops(**{**_tuples(stopping), "endings": endings})
    return ServerObservations(
        "http://localhost:8000", prompts=prompts, ignored=tuple(example.get("ignored", ())), **parts
    )


def _tuples(given: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
