"""What rules on an engine's loading of an adapter say alike: tensors as cases, and where the engine's code says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from truetune.checkpoint.engine_adapter_loaders.predict_adapter_loading import (
    SETTING_OF_PROPERTY,
    PredictedLoading,
    TensorFate,
)
from truetune.checks.findings import Case

WHY: dict[str, str] = {
    "unknown_name": "no module of the engine's class has that name",
    "unknown_place": "a module of that name is elsewhere in the engine's class",
    "other_part": "this part of the model takes no adapter",
    "whole_tensors": "it is no factor of a LoRA",
    "base_copies": "it is a copy of a tensor of the base",
    "missing_layers": "not each layer has one of this kind",
    "names_without_prefix": "its name does not begin with base_model.model.",
    "missing_partner": "it is stacked with a module that the adapter does not have",
    "tied_head": "the base has no lm_head of its own, as it is its embedding",
    "module": "the engine cannot place it",
}
"""Reason of a fate -> in words"""
MERGE = "merge it (truetune merge) and serve the merged model"


def cases_of_fates(fates: Iterable[TensorFate]) -> list[Case]:
    """A case for each tensor, with the reason."""
    return [
        Case(
            f"{fate.tensor.tensor.name}: {WHY.get(fate.reason, fate.reason)}",
            file=fate.tensor.tensor.file.name,
        )
        for fate in fates
    ]


def evidence_of_fates(loading: PredictedLoading, fates: Iterable[TensorFate]) -> list[str]:
    """How many tensors have each reason, and where the engine's code says it."""
    counts = Counter(fate.reason for fate in fates)
    return [
        f"{count:,} tensors: {WHY.get(reason, reason)} ({_source_of_reason(loading, reason)})"
        for reason, count in counts.most_common()
    ]


def _source_of_reason(loading: PredictedLoading, reason: str) -> str:
    """Where the engine says what it does for a reason: a line of its loader, or its class of models."""
    if reason in loading.loader.facts:
        return loading.loader.source(reason)
    return f"{loading.engine_name}, {loading.architecture.source}"


def describe_setting(loading: PredictedLoading, name: str) -> str:
    """A property with its value in adapter_config.json."""
    setting = SETTING_OF_PROPERTY[name]
    return f"{setting}={loading.config.get(setting)!r}"
