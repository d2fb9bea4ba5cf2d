"""Which optimizer steps a run takes, as far as its learning rate goes."""

from __future__ import annotations

from truetune.checks.config.evidence.setting_places import is_value_unknown
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


def has_special_optimizer(config: Config) -> bool:
    """Does something other than `optim` decide?"""
    return any(config.raw.get(switch) for switch in OPTIMIZER_SWITCHES)


def has_usual_adamw_rates(config: Config) -> bool:
    """Do the published learning rates hold, those of AdamW on all weights or on LoRA?

    Of transformers' own arguments it is not known what they train.
    """
    if config.stack == "transformers" or is_value_unknown(config, "optim"):
        return False
    if config.stack == "llama-factory" and config.raw.get("finetuning_type", "lora") not in (
        "lora",
        "full",
    ):
        return False
    if config.stack == "axolotl" and config.raw.get("adapter") not in (None, "", "lora", "qlora"):
        return False
    name = str(config.spec.training.optim or "adamw").lower()
    return "adamw" in name and "schedule_free" not in name and not has_special_optimizer(config)
