"""The tokenizer and the model of a run, made ready once. docs/prepare.md says what is done, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from truetune.render.probes import Probes, prepared
from truetune.spec.run import RunSpec
from truetune.spec.training import Training
from truetune.training.adapter import adapter_of, going_on
from truetune.training.attention import Attention, attention_of
from truetune.training.base import load
from truetune.training.collators import Collate, collator_of
from truetune.training.embeddings import fitted
from truetune.training.head import fuse
from truetune.training.recipe import Choice
from truetune.training.special import aligned
from truetune.training.tokens import tokenizer_of


@dataclass(frozen=True)
class Prepared:
    """What a trainer is given."""

    model: Any
    """With its adapter where training goes on from one"""
    tokenizer: Any
    probes: Probes
    """Of the tokenizer as it was on disk"""
    stops: frozenset[int]
    """Ids that end an answer: those that are trained, and those of generation_config"""
    peft: Any
    """peft's config of a new adapter; None where there is none, and where training goes on from one"""
    attention: Attention
    collate: Collate
    """For supervised rows"""
    choices: tuple[Choice, ...]
    """What was changed or chosen, and why"""


def prepare(spec: RunSpec, training: Training, *, highest: int = 0) -> Prepared:
    """Load tokenizer and model; `highest` is the highest id of the data.

    Raises UsageError, TokenizerError, TemplateError or DataError.
    """
    spec = spec.model_copy(update={"training": training})
    probes = prepared(spec)
    tokenizer, choices = tokenizer_of(probes, spec)
    model, more = load(probes.tokenizer, training)
    choices += more
    new, more = fitted(model, tokenizer, probes, spec, highest)
    choices += more
    stops = frozenset(stop.id for stop in probes.stops)
    choices += aligned(model, tokenizer, stops)
    attention = attention_of(model)
    choices.append(Choice("attention", attention.implementation, attention.why))
    if not attention.packs and spec.encode.packing != "none":
        choices.append(
            Choice(
                "encode.packing",
                "none",
                "packs are taken apart: this model would mix their documents",
            )
        )
    choices += _kernels(model, training)
    if training.adapter is not None:
        model, more = going_on(model, training, new)
        choices += more
    config = None if training.adapter is not None else adapter_of(training.lora, model, new)
    if new and config is not None:
        choices.append(
            Choice("trainable rows", len(new), "of new tokens: trained, and saved with the adapter")
        )
    if training.gradient_checkpointing and (config is not None or training.adapter is not None):
        model.enable_input_require_grads()
    collate = collator_of(attention, tokenizer, model)
    return Prepared(model, tokenizer, probes, stops, config, attention, collate, tuple(choices))


def _kernels(model: Any, training: Training) -> list[Choice]:
    """What a GPU runs faster: Liger's layers where they are installed, and a head that never holds all logits."""
    if not torch.cuda.is_available():
        return []
    from transformers.integrations.liger import apply_liger_kernel
    from transformers.utils.import_utils import is_liger_kernel_available

    choices = []
    if training.use_liger_kernel is not False and is_liger_kernel_available():
        apply_liger_kernel(  # type: ignore[no-untyped-call]
            model, {"fused_linear_cross_entropy": False, "cross_entropy": False}
        )
        choices.append(
            Choice("use_liger_kernel", True, "its kernels for norms, rotations and MLPs")
        )
    if training.method == "sft" and fuse(model):
        choices.append(
            Choice("head", "fused", "never holds all logits; its losses are the model's own")
        )
    return choices
