"""Blocks that are what is known of a finished model.

The blocks are YAML: `look` and `base` are looks as in the blocks on answers, without a step; the rest are the fields of
ModelEvidence, tokens by their text alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.checks.pages.answers import look
from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.generation.answer_samples import SampledRun
from truetune.generation.backends.backend import GenerationSpeed
from truetune.generation.evidence_on_causes_of_answers import (
    ControlToken,
    DivergentAnswer,
    ModelEvidence,
    PromptGain,
    StopEstimate,
    TrainingEffect,
)

PARTS: dict[str, Any] = {
    "stopping": StopEstimate,
    "base_stopping": StopEstimate,
    "effect": TrainingEffect,
    "prompt_gain": PromptGain,
    "speed": GenerationSpeed,
}


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at what a block describes with this rule alone."""
    return tuple(rule(inquest(yaml.safe_load(text))).findings())


def inquest(example: dict[str, Any]) -> ModelEvidence:
    """What a block describes."""
    known = {
        name: value for name, value in example.items() if name not in ("look", "base", "greedy")
    }
    for name, kind in PARTS.items():
        if name in known:
            known[name] = kind(**({"references": 8} if kind is StopEstimate else {}) | known[name])
    for name in ("trained", "served"):
        known[name] = tuple(map(_token, known.get(name, ())))
    known["pad"] = _token(known["pad"]) if "pad" in known else None
    known["divergent_answers"] = tuple(
        DivergentAnswer(**one) for one in known.get("divergent_answers", ())
    )
    known["prompts"] = tuple(known.get("prompts", ()))
    asked: dict[str, Any] = {
        name: _watched(example[name]) for name in ("base", "greedy") if name in example
    }
    return ModelEvidence(_watched(example.get("look", {})), **asked, **known)


def _watched(described: dict[str, Any]) -> SampledRun:
    return SampledRun((look(0, **{"stopped": 8} | described),), finished=True)


def _token(text: str) -> ControlToken:
    return ControlToken(text, 100 + sum(map(ord, text)))
