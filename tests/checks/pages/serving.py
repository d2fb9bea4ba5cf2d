"""Blocks that are what a server was seen to do: YAML with the parts of Service. Or an adapter, by its tensors and
settings, for a release of an engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from truetune.checkpoint.engine_adapter_loaders.predict_adapter_loading import (
    PredictedLoading,
    predict_adapter_loading,
)
from truetune.checkpoint.engine_adapter_loaders.read_engine_loaders import read_engine_loader
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
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
    block = yaml.safe_load(text)
    if "engine" in block:
        return tuple(rule(adapter_loading(block)).findings())
    return tuple(rule(service(block)).findings())


def adapter_loading(example: dict[str, Any]) -> PredictedLoading:
    """What an engine makes of the adapter that a block describes."""
    loader = read_engine_loader(example["engine"], str(example["engine-version"]))
    assert loader is not None
    tensors = {
        name: StoredTensor(name, "F32", tuple(shape), Path("adapter_model.safetensors"), 0, 0)
        for name, shape in example["tensors"].items()
    }
    return predict_adapter_loading(
        loader, loader.architectures[example["architecture"]], tensors, example["adapter"]
    )


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
