"""The experts of the model of a run, by its config.json or its published name, and what its adapter reaches of them.

What was measured depends on the releases of transformers and peft, so the files around the settings are asked for them;
where none says it, the newest are taken. Unsloth chooses the parameters by code of its own, and is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from truetune.checks.config.evidence.facts_from_model_folder import model_config
from truetune.checks.config.evidence.match_module_names_like_peft import (
    PATTERN_SIGN,
    names_that_pattern_fits,
)
from truetune.memory.published_model_shapes import published_config
from truetune.settings.config import Config
from truetune.trainers.experts_of_model_types import (
    FIRST_PEFT_RENAMING_ALL_LINEAR,
    FIRST_PEFT_RENAMING_LISTS,
    FIRST_TRANSFORMERS_WITH_FUSED_EXPERTS,
    ExpertsOfModelType,
    LoraReach,
    Part,
    experts_of_model_type,
    last_names_of_linear_layers,
    names_for_pattern,
    reach_of_lora,
)

SETTINGS_OF_SHARED_EXPERTS = (
    "n_shared_experts",
    "num_shared_experts",
    "num_shared_expert",
    "moe_num_shared_experts",
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
)
SETTINGS_OF_DENSE_LAYERS = ("first_k_dense_replace", "num_dense_layers", "mlp_only_layers")
"""0 or empty: there are none"""
SETTINGS_OF_OTHER_CODE = (
    "use_kt",
    "kt_config",
    "use_mca",
    "expert_model_parallel_size",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
)
"""Settings of LLaMA-Factory with which KTransformers or Megatron runs the model"""
STACKS_OF_PEFT = ("trl", "transformers", "axolotl", "llama-factory", "ms-swift", "truetune")
"""Stacks whose target_modules reach peft"""
STACKS_NAMING_LINEAR_LAYERS = ("axolotl", "llama-factory", "ms-swift")
"""Those that make a list of the names of linear layers of `all`, before peft sees it"""


def config_of_run_model(config: Config) -> Mapping[str, Any]:
    """The decoder's fields of config.json, from its folder or by its published name; empty where neither is known."""
    values = model_config(config) or published_config(config.spec.model or "") or {}
    inner = values.get("text_config")
    return {**values, **inner} if isinstance(inner, Mapping) else values


def experts_of_run_model(config: Config) -> ExpertsOfModelType | None:
    """Where the model has its experts, with the releases that run; None where it has none, or was not measured."""
    values = config_of_run_model(config)
    model_type = values.get("model_type")
    if not isinstance(model_type, str) or has_own_experts(config):
        return None
    is_old = config.pins.is_release_surely_before(
        "transformers", FIRST_TRANSFORMERS_WITH_FUSED_EXPERTS
    )
    facts = experts_of_model_type(model_type, has_fused_experts=not is_old)
    return facts if facts is not None and expert_count(facts, values) > 1 else None


def expert_count(facts: ExpertsOfModelType, values: Mapping[str, Any]) -> int:
    """How many experts config.json gives each layer; the class's default counts as several."""
    names = (facts.count_setting or "", "num_local_experts", "num_experts", "n_routed_experts")
    count = next((values[name] for name in names if name in values), 2)
    return count if isinstance(count, int) else 2


def has_part(values: Mapping[str, Any], part: Part) -> bool:
    """Has the model of this config.json shared experts, or dense layers, as its type may have?"""
    if part == "shared":
        names: tuple[str, ...] = SETTINGS_OF_SHARED_EXPERTS
    elif part == "dense":
        names = SETTINGS_OF_DENSE_LAYERS
    else:
        return True
    return any(values.get(name) not in (None, 0, [], False) for name in names)


def reach_of_adapter(config: Config, facts: ExpertsOfModelType) -> LoraReach | None:
    """What the run's adapter reaches; None without one, and where its targets are chosen by code or by a pattern."""
    lora = config.spec.training.lora
    if lora is None or config.stack not in STACKS_OF_PEFT or uses_unsloth(config):
        return None
    renames_all = not config.pins.is_release_surely_before("peft", FIRST_PEFT_RENAMING_ALL_LINEAR)
    targets = _targets_as_peft_gets_them(config, facts, renames_all)
    if targets is None:
        return None
    return reach_of_lora(
        facts,
        targets,
        lora.target_parameters,
        renames_lists=not config.pins.is_release_surely_before("peft", FIRST_PEFT_RENAMING_LISTS),
        renames_all_linear=renames_all,
    )


def _targets_as_peft_gets_them(
    config: Config, facts: ExpertsOfModelType, renames_patterns: bool
) -> str | Sequence[str] | None:
    """`all-linear`, or names; None where they are chosen by code, or a pattern can't be tried.

    `renames_patterns`: does peft try a pattern on former names of experts too?
    """
    lora = config.spec.training.lora
    targets = lora.target_modules if lora is not None else None
    if targets is None:
        return None
    if targets == "all-linear":
        names_them = config.stack in STACKS_NAMING_LINEAR_LAYERS
        return last_names_of_linear_layers(facts) if names_them else targets
    if isinstance(targets, str):
        return _names_for_pattern(targets, facts, renames_patterns)
    has_pattern = any(PATTERN_SIGN.search(name.replace("*", "")) for name in targets)
    return None if has_pattern else targets


def _names_for_pattern(
    pattern: str, facts: ExpertsOfModelType, renames_patterns: bool
) -> list[str] | None:
    """The layers that a pattern fits, inside of a layer; None where it can't be tried."""
    candidates = names_for_pattern(facts)
    matched = names_that_pattern_fits(pattern, candidates)
    if matched is None:
        return None
    names = sorted({candidates[name] for name in matched})
    return [name for name in names if renames_patterns or name in facts.linear]


def has_own_experts(config: Config) -> bool:
    """Does other code than that of transformers hold the experts: KTransformers, or Megatron?"""
    return any(config.raw.get(key) for key in SETTINGS_OF_OTHER_CODE)


def uses_unsloth(config: Config) -> bool:
    """Does Unsloth make the model? It chooses the parameters of experts itself."""
    return bool(config.raw.get("use_unsloth")) or "unsloth" in config.text
