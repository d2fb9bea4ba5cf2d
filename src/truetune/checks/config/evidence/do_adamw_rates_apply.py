"""Tells whether published learning rates, which are those of AdamW, apply to the optimizer of a run."""

from __future__ import annotations

import re

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    is_value_unknown,
)
from truetune.settings.config import Config

OPTIMIZER_SWITCHES = (
    "use_galore",
    "use_apollo",
    "use_badam",
    "use_muon",
    "use_adam_mini",
    "loraplus_lr_ratio",
)
"""Switches of LLaMA-Factory under which a rate means something else"""
LOADS_CAUSAL_MODEL = re.compile(r"\bAutoModelForCausalLM\.from_pretrained\(")
TRAINS_A_PART = re.compile(
    r"requires_grad\b|prompt_?(?:tuning|encoder)|prefix_?tuning|soft_?prompt|ia3|lm_head|optimizers=|create_optimizer"
    r"|modules_to_save|embed_tokens|\.from_config\(",
    re.I,
)
"""In a program: it may train a head, embeddings or a soft prompt, or by an optimizer of its own"""


def is_optimizer_decided_beside_optim(config: Config) -> bool:
    """Does something other than the setting `optim` decide the optimizer?"""
    return any(config.raw.get(switch) for switch in OPTIMIZER_SWITCHES)


def published_adamw_rates_apply(config: Config) -> bool:
    """Do the published learning rates hold, those of AdamW on all weights or on LoRA?

    Of transformers' own arguments it is known only where the program loads a causal model and names nothing that
    trains another part of it.
    """
    if is_value_unknown(config, "optim"):
        return False
    if config.stack == "transformers" and not _trains_a_causal_model(config):
        return False
    if config.stack == "llama-factory" and config.raw.get("finetuning_type", "lora") not in (
        "lora",
        "full",
    ):
        return False
    if config.stack == "axolotl" and config.raw.get("adapter") not in (None, "", "lora", "qlora"):
        return False
    name = str(config.spec.training.optim or "adamw").lower()
    return (
        "adamw" in name
        and "schedule_free" not in name
        and not is_optimizer_decided_beside_optim(config)
    )


def _trains_a_causal_model(config: Config) -> bool:
    """Does a program with arguments of transformers train a causal language model, whole or by LoRA?"""
    loads = (
        is_config_of_python_program(config) and LOADS_CAUSAL_MODEL.search(config.text) is not None
    )
    return loads and TRAINS_A_PART.search(config.text) is None
