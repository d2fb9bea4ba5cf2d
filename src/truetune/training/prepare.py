"""The tokenizer and the model of a run, made ready once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers

from truetune.errors import UsageError
from truetune.render.pads import good_pad
from truetune.render.probes import Probes, prepared
from truetune.spec.run import RunSpec
from truetune.spec.training import Lora, Training
from truetune.training.recipe import Choice


@dataclass(frozen=True)
class Prepared:
    """What a trainer is given."""

    model: Any
    tokenizer: Any
    probes: Probes
    """Of the tokenizer as it was on disk"""
    stops: frozenset[int]
    """Ids that end an answer: those that are trained, and those of generation_config"""
    peft: Any
    """peft's config for a trainer that wraps the model itself (TRL's); None where there is none"""
    choices: tuple[Choice, ...]
    """What was changed or chosen, and why"""


def prepare(spec: RunSpec, training: Training) -> Prepared:
    """Load tokenizer and model. Raises UsageError, TokenizerError or TemplateError."""
    probes = prepared(spec)
    folder = str(probes.tokenizer.folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    choices = []
    pad, why = good_pad(probes.tokenizer, probes.stops)
    if pad is not None:
        tokenizer.pad_token = pad.token
        choices.append(Choice("pad_token", pad.token, why))
    dtype = getattr(torch, training.dtype) if training.dtype and training.dtype != "auto" else "auto"
    name = spec.model or spec.tokenizer
    if name is None:
        raise UsageError("no model is named; set model")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        name, dtype=dtype, attn_implementation=training.attn_implementation
    )
    stops = frozenset(stop.id for stop in probes.stops)
    model.generation_config.eos_token_id = sorted(stops)
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    return Prepared(model, tokenizer, probes, stops, adapter_of(training.lora), tuple(choices))


def adapter_of(lora: Lora | None) -> Any:
    """peft's LoraConfig; None without LoRA."""
    if lora is None:
        return None
    import peft

    given = {name: list(value) if isinstance(value, tuple) else value for name, value in lora.model_dump().items()}
    return peft.LoraConfig(task_type="CAUSAL_LM", **{name: value for name, value in given.items() if value != []})
