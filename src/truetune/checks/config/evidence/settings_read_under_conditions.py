"""Settings that a stack reads only where another setting has certain values, by the stacks' own code.

Each row of the table names the keys, the setting that decides (the switch), and the values of it with which the keys
are read. A key whose switch says otherwise is taken, checked by no one, and has no effect. Rows are taken from the
sources of TRL 1.16, transformers 5.23, Axolotl 0.21, LLaMA-Factory 0.9.5, torchtune 0.6, ms-swift 3.0 to 4.5, verl
0.8 and OpenRLHF 0.8 to 0.11; combinations that these programs stop at are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from truetune.checks.config.evidence.facts_from_model_folder import model_config
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    value_at_dotted_key,
)
from truetune.checks.config.evidence.settings_read_by_another_program import keeps_stack_defaults
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import holds_unknown_value, is_switched_on
from truetune.settings.stacks.read_nested_rl_settings import ACTOR, MODEL
from truetune.settings.stacks.read_trainer_arguments import METHOD_OF_CLASS, class_defaults

ON = frozenset(("on",))
"""Instead of values: anything that switches on"""


@dataclass(frozen=True, slots=True)
class Condition:
    """Keys that are read only where the switch has one of these values."""

    keys: tuple[str, ...]
    """As the file spells them; a dot leads into a table"""
    switch: str
    values: frozenset[str] = ON
    """In small letters"""
    default: str = "false"
    """The switch where the file does not set it, in small letters"""
    methods: tuple[str, ...] = ()
    """Training methods whose settings they are; empty: all"""
    values_before: tuple[str, str] | None = None
    """A release of the stack, and a further value with which the releases before it read the keys"""
    needs_written_switch: bool = False
    """Judged only where the file sets the switch: its default differs between releases, or elsewhere it is no fault"""
    or_switch: str = ""
    """Another setting that has the keys read where it is on"""
    unread_if_switch_differs: bool = False
    """It is no fault where key and switch have one value"""
    model_key: str = ""
    """A key of the model's own config.json that switches the keys on where the file does not"""
    is_off_in_examples: bool = False
    """The stack's own example files write the switch as off: that it is off says nothing of what its user wants"""


def _row(keys: str, switch: str, *values: str, default: str = "false", **rest: Any) -> Condition:
    """A row of the table; `keys` with spaces in between."""
    return Condition(
        tuple(keys.split()), switch, frozenset(values) if values else ON, default, **rest
    )


OF_TRANSFORMERS = (
    _row("optim_target_modules", "optim", "galore_adamw", "galore_adamw_8bit", "galore_adafactor",
         "galore_adamw_layerwise", "galore_adamw_8bit_layerwise", "galore_adafactor_layerwise", "apollo_adamw",
         "apollo_adamw_layerwise", default="adamw_torch_fused"),
    # With a launch by accelerate these are not read either: it has a file of its own.
    _row("fsdp_config.transformer_layer_cls_to_wrap fsdp_config.fsdp_transformer_layer_cls_to_wrap"
         " fsdp_config.auto_wrap_policy fsdp_config.fsdp_auto_wrap_policy fsdp_config.reshard_after_forward"
         " fsdp_config.min_num_params fsdp_config.fsdp_min_num_params fsdp_config.state_dict_type", "fsdp"),
)  # fmt: skip
OF_TRL = (
    _row("ref_model_mixup_alpha ref_model_sync_steps", "sync_ref_model", methods=("dpo", "grpo")),
    _row("label_smoothing", "loss_type", "robust", "exo_pair", "aot", "aot_unpaired", default="sigmoid",
         methods=("dpo",), values_before=("0.29.0", "sigmoid")),
    _row("f_alpha_divergence_coef", "f_divergence_type", "alpha_divergence", default="reverse_kl", methods=("dpo",)),
    _row("discopop_tau", "loss_type", "discopop", default="sigmoid", methods=("dpo",)),
    _row("precompute_ref_batch_size", "precompute_ref_log_probs", methods=("dpo", "kto")),
    _row("vllm_mode vllm_server_base_url vllm_server_host vllm_server_port vllm_gpu_memory_utilization"
         " vllm_tensor_parallel_size vllm_max_model_length vllm_enable_sleep_mode vllm_importance_sampling_mode"
         " vllm_importance_sampling_clip_max", "use_vllm", methods=("grpo",)),
    _row("vllm_server_base_url vllm_server_host vllm_server_port", "vllm_mode", "server", default="colocate",
         methods=("grpo",), needs_written_switch=True),
    _row("vllm_gpu_memory_utilization vllm_tensor_parallel_size vllm_max_model_length vllm_enable_sleep_mode",
         "vllm_mode", "colocate", default="colocate", methods=("grpo",), needs_written_switch=True),
    _row("sapo_temperature_neg sapo_temperature_pos", "loss_type", "sapo", default="dapo", methods=("grpo",)),
    _row("vespo_k_pos vespo_lambda_pos vespo_k_neg vespo_lambda_neg", "loss_type", "vespo", default="dapo",
         methods=("grpo",)),
    _row("delta", "loss_type", "grpo", "bnpo", "dr_grpo", "dapo", "luspo", default="dapo", methods=("grpo",)),
    _row("entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target", "use_adaptive_entropy",
         methods=("grpo",)),
    _row("num_completions_to_print", "log_completions", methods=("grpo",)),
    _row("packing_strategy", "packing", methods=("sft",)),
    _row("bnb_4bit_quant_type use_bnb_nested_quant bnb_4bit_quant_storage", "load_in_4bit"),
    _row("model_init_kwargs.router_aux_loss_coef", "model_init_kwargs.output_router_logits",
         model_key="output_router_logits"),
)  # fmt: skip
OF_AXOLOTL = (
    _row("cosine_min_lr_ratio lr_quadratic_warmup", "lr_scheduler", "cosine", "rex", default="cosine"),
    _row("cosine_constant_lr_ratio", "cosine_min_lr_ratio"),
    _row("cosine_constant_lr_ratio", "lr_scheduler", "cosine", default="cosine"),
    _row("lisa_n_layers", "lisa_step_interval"),
    _row("lisa_step_interval", "lisa_n_layers"),
    _row("relora_prune_ratio relora_prune_method", "relora"),
    _row("eaft_alpha eaft_k", "use_eaft"),
    _row("simpo_gamma cpo_alpha", "rl", "simpo", needs_written_switch=True),
    _row("kto_desirable_weight kto_undesirable_weight", "rl", "kto", needs_written_switch=True),
    _row("dpo_label_smoothing dpo_use_weighting", "rl", "dpo", needs_written_switch=True),
    _row("sample_packing_bin_size sample_packing_group_size sample_packing_sequentially", "sample_packing"),
    _row("gradient_checkpointing_kwargs", "gradient_checkpointing"),
    _row("chat_template_jinja", "chat_template", "jinja", needs_written_switch=True),
    _row("loraplus_lr_embedding", "loraplus_lr_ratio"),
    # Models of transformers add the load-balancing loss of their experts only where they return the router's logits.
    _row("overrides_of_model_config.router_aux_loss_coef", "overrides_of_model_config.output_router_logits",
         model_key="output_router_logits"),
    _row("model_config.router_aux_loss_coef", "model_config.output_router_logits", model_key="output_router_logits"),
    _row("trl.vllm_gpu_memory_utilization trl.vllm_max_model_len trl.vllm_server_host trl.vllm_server_port"
         " trl.vllm_mode trl.vllm_server_timeout", "trl.use_vllm", methods=("grpo",)),
)  # fmt: skip
OF_LLAMA_FACTORY = (
    _row("simpo_gamma", "pref_loss", "simpo", default="sigmoid", methods=("dpo", "cpo", "orpo")),
    _row("ref_model ref_model_adapters", "pref_loss", "sigmoid", "hinge", "ipo", "kto_pair", default="sigmoid",
         methods=("dpo", "cpo", "orpo")),
    _row("pref_loss", "stage", "dpo", default="sft", needs_written_switch=True),
    _row("kto_chosen_weight kto_rejected_weight", "stage", "kto", default="sft", needs_written_switch=True),
    _row("asft_alpha", "use_asft_loss"),
    _row("eaft_alpha", "use_eaft_loss"),
    _row("galore_target galore_rank galore_update_interval galore_scale galore_layerwise", "use_galore"),
    _row("apollo_target apollo_rank apollo_update_interval apollo_scale apollo_layerwise", "use_apollo"),
    _row("badam_mode badam_start_block badam_switch_mode badam_switch_interval badam_update_ratio", "use_badam"),
    _row("pissa_iter pissa_convert", "pissa_init"),
    _row("freeze_trainable_layers freeze_trainable_modules freeze_extra_modules", "finetuning_type", "freeze",
         default="lora", or_switch="use_llama_pro"),
    _row("oft_rank oft_block_size oft_target", "finetuning_type", "oft", default="lora"),
    _row("loraplus_lr_embedding", "loraplus_lr_ratio"),
    _row("double_quantization quantization_type", "quantization_bit"),
    _row("buffer_size", "streaming"),
)  # fmt: skip
OF_TORCHTUNE = (
    _row("checkpointer.recipe_checkpoint checkpointer.adapter_checkpoint", "resume_from_checkpoint",
         is_off_in_examples=True),
    _row("dataset_val", "run_val_every_n_steps"),
)  # fmt: skip
OF_SWIFT = (
    _row("quant_bits", "quant_method"),
    _row("bnb_4bit_quant_type bnb_4bit_use_double_quant bnb_4bit_compute_dtype", "quant_method", "bnb",
         default="none"),
    _row("vllm_mode vllm_gpu_memory_utilization vllm_tensor_parallel_size vllm_max_model_len vllm_server_host"
         " vllm_server_port", "use_vllm", methods=("grpo",)),
)  # fmt: skip
OF_VERL = (
    # Scripts write both coefficients beside the one switch that is on: what is asked for is a KL, and there is one.
    _row(f"{ACTOR}.kl_loss_coef {ACTOR}.kl_loss_type", f"{ACTOR}.use_kl_loss", or_switch="algorithm.use_kl_in_reward"),
    _row("algorithm.kl_ctrl.kl_coef", "algorithm.use_kl_in_reward", or_switch=f"{ACTOR}.use_kl_loss"),
    _row(f"{ACTOR}.clip_ratio", f"{ACTOR}.clip_ratio_low", "none", "null", default="0.2",
         unread_if_switch_differs=True),
    _row(f"{ACTOR}.optim.lr_warmup_steps_ratio", f"{ACTOR}.optim.lr_warmup_steps", "-1", "none", default="-1",
         is_off_in_examples=True),
    _row("critic.optim.lr critic.model.path", "algorithm.adv_estimator", "gae", default="gae",
         or_switch="critic.enable"),
    _row(f"{MODEL}.lora_alpha {MODEL}.target_modules", f"{MODEL}.lora_rank", default="0"),
    _row("model.lora_alpha model.target_modules", "model.lora_rank", default="0"),
)  # fmt: skip
OF_OPENRLHF = (
    _row("lora_alpha lora_dropout target_modules", "lora_rank", default="0"),
    _row("critic_learning_rate", "advantage_estimator", "gae", default="gae", methods=("grpo",)),
    _row("dynamic_filtering_reward_range", "dynamic_filtering"),
)  # fmt: skip
CONDITIONS: Mapping[str, tuple[Condition, ...]] = {
    "transformers": OF_TRANSFORMERS,
    "trl": (*OF_TRANSFORMERS, *OF_TRL),
    "axolotl": OF_AXOLOTL,
    "llama-factory": (*OF_TRANSFORMERS, *OF_LLAMA_FACTORY),
    "torchtune": OF_TORCHTUNE,
    "ms-swift": OF_SWIFT,
    "verl": OF_VERL,
    "openrlhf": OF_OPENRLHF,
}
"""Stack -> its rows"""
OFF_WORDS = ("false", "no", "none", "0", "null")
"""Values of a switch that is off"""
DUMPED_DEFAULTS = 40
"""Keys of a file that a program wrote with all of its settings; people write half as many. Chosen, not measured"""


@dataclass(frozen=True, slots=True)
class UnreadSettings:
    """Settings of a file that have no effect, and the setting that decides."""

    keys: tuple[str, ...]
    condition: Condition
    switch_value: str
    """In small letters; the default where the file does not set it"""
    is_switch_written: bool
    needed: tuple[str, ...]
    """The values of the switch with which the keys are read; empty: anything that switches it on"""

    @property
    def is_off_on_purpose(self) -> bool:
        """Does the file say in so many words that the switch is off?"""
        is_off = self.is_switch_written and self.switch_value in OFF_WORDS
        return is_off and not self.condition.is_off_in_examples


def unread_settings(config: Config) -> Iterator[UnreadSettings]:
    """The settings of a file that have no effect, by the table."""
    for condition in CONDITIONS.get(config.stack, ()):
        if condition.methods and config.spec.training.method not in condition.methods:
            continue
        settings_of_condition = _settings_unread_by_condition(config, condition)
        if settings_of_condition is not None:
            yield settings_of_condition


def _settings_unread_by_condition(config: Config, condition: Condition) -> UnreadSettings | None:
    """What of the file one row makes ineffective; None if nothing."""
    written = value_at_dotted_key(config.raw, condition.switch)
    if not _is_switch_known(config, condition, written):
        return None
    is_written = written is not None
    if not is_written and condition.model_key and model_config(config).get(condition.model_key):
        return None
    switch = written if is_written else condition.default
    if _does_switch_value_activate_keys(config, condition, switch):
        return None
    keys = tuple(
        key
        for key in _keys_asked_for(config, condition, is_written)
        if not condition.unread_if_switch_differs
        or _lowercase_text(value_at_dotted_key(config.raw, key)) != _lowercase_text(switch)
    )
    if not keys:
        return None
    needed = () if condition.values == ON else tuple(sorted(condition.values))
    return UnreadSettings(keys, condition, _lowercase_text(switch), is_written, needed)


def _is_switch_known(config: Config, condition: Condition, written: Any) -> bool:
    """Is it known what the switch is, by the file or by a default?"""
    if written is not None:
        return not holds_unknown_value(written)
    # `run_val_every_n_steps: null` of an example file: whoever keeps it says neither yes nor no.
    if condition.switch in config.raw or condition.needs_written_switch:
        return False
    return _do_unset_keys_have_defaults(config)


def _keys_asked_for(
    config: Config, condition: Condition, is_switch_written: bool
) -> tuple[str, ...]:
    """The keys of a row with which the file asks for something."""
    return tuple(
        key
        for key in condition.keys
        if _does_value_ask_for_something(value_at_dotted_key(config.raw, key))
        and _is_key_set_beyond_default(config, key, is_switch_written)
    )


def _does_switch_value_activate_keys(config: Config, condition: Condition, switch: Any) -> bool:
    """Does the switch have a value with which the keys are read?"""
    if condition.or_switch and is_switched_on(value_at_dotted_key(config.raw, condition.or_switch)):
        return True
    if condition.values == ON:
        # A word says how: `gradient_checkpointing: offload`.
        return bool(switch) and _lowercase_text(switch) not in OFF_WORDS
    words = {
        _lowercase_text(one) for one in (switch if isinstance(switch, (list, tuple)) else [switch])
    }
    known = set(condition.values)
    if condition.values_before is not None:
        release, value = condition.values_before
        if not config.pins.of(config.stack) or config.pins.is_release_surely_before(
            config.stack, release
        ):
            known.add(value)
    return bool(words & known)


def _lowercase_text(value: Any) -> str:
    """A value in small letters, as a file may spell it."""
    return str(value).lower()


def _does_value_ask_for_something(value: Any) -> bool:
    """Does the file ask for something?"""
    return not holds_unknown_value(value) and value not in (None, False, "", [], {}, ())


def _is_key_set_beyond_default(config: Config, key: str, is_switch_written: bool) -> bool:
    """Is the value more than the stack's default, or written by hand without the switch?"""
    if not is_switch_written and len(config.raw) < DUMPED_DEFAULTS:
        return True
    return bool(value_at_dotted_key(config.raw, key) != _trl_argument_defaults(config).get(key))


def _trl_argument_defaults(config: Config) -> Mapping[str, Any]:
    """The defaults of the class of arguments that the run's method has in TRL."""
    method = config.spec.training.method
    name = next((one for one, kind in METHOD_OF_CLASS.items() if kind == method), None)
    if config.stack == "trl" and method == "sft":
        name = "SFTConfig"
    return class_defaults(name) if name and config.stack in ("trl", "transformers") else {}


def _do_unset_keys_have_defaults(config: Config) -> bool:
    """Is what the file leaves out known to have its default? `**kwargs` of a call may set it."""
    if is_config_of_python_program(config):
        # Where a call takes `**kwargs`, no default is filled in, that of the epochs neither.
        return config.spec.training.num_train_epochs is not None
    return keeps_stack_defaults(config)
