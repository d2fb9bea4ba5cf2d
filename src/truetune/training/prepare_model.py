"""Loads the tokenizer and the model of a run, and makes them fit each other and the data.

One function holds the order of the steps, each of which stands in a module of its own and returns what it has chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.settings.run_spec import RunSpec
from truetune.settings.training_settings import Training
from truetune.training.align_special_ids import align_special_ids
from truetune.training.choose_collator import Collate, choose_collator_by_attention
from truetune.training.does_attention_keep_documents_apart import (
    ModelAttention,
    probe_packing_attention,
)
from truetune.training.enlarge_embeddings import fit_embedding_to_ids
from truetune.training.load_base_model import load_base_model
from truetune.training.make_or_load_adapter import load_starting_adapter, make_lora_config
from truetune.training.prepare_tokenizer import prepare_tokenizer
from truetune.training.supervised_token_losses import use_fused_head_where_it_computes
from truetune.training.training_recipe import Choice


@dataclass(frozen=True)
class PreparedModel:
    """The tokenizer and the model that a trainer is given, and what was chosen for them."""

    model: Any
    """With its adapter where training continues from one"""
    tokenizer: Any
    probes: Probes
    """Of the tokenizer as it was on disk"""
    stops: frozenset[int]
    """Ids that end an answer: those that are trained, and those of generation_config"""
    peft: Any
    """peft's config of a new adapter; None where there is none, and where training continues from one"""
    attention: ModelAttention
    collate: Collate
    """For supervised rows"""
    choices: tuple[Choice, ...]
    """What was changed or chosen, and why"""


def prepare_model(spec: RunSpec, training: Training, *, highest: int = 0) -> PreparedModel:
    """Load tokenizer and model, and make them fit each other and the data.

    Args:
        spec: the settings of the run.
        training: its filled part.
        highest: the highest id of the data.

    Raises:
        UsageError, TokenizerError, TemplateError, DataError: what the user can correct.
    """
    # The order below matters. The tokenizer comes first, for its pad may be a new id; then the
    # embedding, which needs a row for it; then attention, tried on the finished model; the adapter
    # last, for peft wraps what is there.
    spec = spec.model_copy(update={"training": training})
    probes = load_tokenizer_and_template_of_run(spec)
    tokenizer, choices = prepare_tokenizer(probes, spec)
    model, more = load_base_model(probes.tokenizer, training)
    choices += more
    new, more = fit_embedding_to_ids(model, tokenizer, probes, spec, highest)
    choices += more
    stops = frozenset(stop.id for stop in probes.stops)
    choices += align_special_ids(model, tokenizer, stops)
    attention = probe_packing_attention(model)
    choices.append(Choice("attention", attention.implementation, attention.why))
    if not attention.packs and spec.encode.packing != "none":
        choices.append(
            Choice(
                "encode.packing",
                "none",
                "packs are taken apart: this model would mix their documents",
            )
        )
    choices += _use_liger_and_fused_head(model, training)
    if training.adapter is not None:
        model, more = load_starting_adapter(model, training, new)
        choices += more
    config = None if training.adapter is not None else make_lora_config(training.lora, model, new)
    if new and config is not None:
        choices.append(
            Choice("trainable rows", len(new), "of new tokens: trained, and saved with the adapter")
        )
    if training.gradient_checkpointing and (config is not None or training.adapter is not None):
        # The embedding is frozen, and a checkpointed segment whose inputs need no gradient computes
        # none: the loss would stay where it is, with a warning at most.
        model.enable_input_require_grads()
    collate = choose_collator_by_attention(attention, tokenizer, model)
    return PreparedModel(
        model, tokenizer, probes, stops, config, attention, collate, tuple(choices)
    )


def _use_liger_and_fused_head(model: Any, training: Training) -> list[Choice]:
    """Use faster code on a GPU: Liger's layers where they are installed, and a head that never
    holds all logits.
    """
    if not torch.cuda.is_available():
        return []
    from transformers.integrations.liger import apply_liger_kernel
    from transformers.utils.import_utils import is_liger_kernel_available

    choices = []
    if training.use_liger_kernel is not False and is_liger_kernel_available():
        # Its fused loss is left off: ours needs the losses token by token, which that kernel never
        # makes.
        apply_liger_kernel(  # type: ignore[no-untyped-call]
            model, {"fused_linear_cross_entropy": False, "cross_entropy": False}
        )
        choices.append(
            Choice("use_liger_kernel", True, "its kernels for norms, rotations and MLPs")
        )
    # The trainers on preferences have losses of their own, which this head is not for.
    if training.method == "sft" and use_fused_head_where_it_computes(model):
        choices.append(
            Choice("head", "fused", "never holds all logits; its losses are the model's own")
        )
    return choices
