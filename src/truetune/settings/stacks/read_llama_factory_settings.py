"""Reads the YAML or JSON settings of LLaMA-Factory.

Most keys are those of transformers' TrainingArguments and are taken as they are (`draft.take_keys_of_same_name`); the
tables hold those of LLaMA-Factory's own. Its templates are not the tokenizer's: prompts are never judged by the
tokenizer's template as if they were (`own_prompt`), and a note says so.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from truetune.settings.config import Config
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks.config_draft import (
    ConfigDraft,
    draft_of_document,
    is_switched_on,
    list_of_names,
)
from truetune.settings.stacks.known_keys import load_known_keys
from truetune.settings.stacks.read_llama_factory_datasets import read_llama_factory_datasets
from truetune.settings.stacks.read_shared_stack_arguments import read_sharding

FIELD_KEYS = {
    "beta": "pref_beta", "reference": "ref_model", "desirable_weight": "kto_chosen_weight",
    "undesirable_weight": "kto_rejected_weight", "resize_vocab": "resize_vocab", "prepared_path": "tokenized_path",
    "val_size": "val_size", "train_on_inputs": "train_on_prompt", "use_reentrant": "use_reentrant_gc",
}  # fmt: skip
"""Field of Training -> LLaMA-Factory's key, where the value is the same"""
LORA_KEYS = {
    "r": "lora_rank",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "use_rslora": "use_rslora",
    "use_dora": "use_dora",
}
METHOD_OF_STAGE = {
    "pt": "pretrain",
    "sft": "sft",
    "rm": "reward",
    "ppo": "ppo",
    "dpo": "dpo",
    "kto": "kto",
}
METHOD_OF_LOSS = {"orpo": "orpo", "simpo": "cpo"}
"""Losses of the stage dpo that are methods of their own"""
MEGATRON_KEYS = frozenset(
    ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")
)
ATTENTION_NAMES = {
    "disabled": "eager",
    "sdpa": "sdpa",
    "fa2": "flash_attention_2",
    "fa3": "flash_attention_3",
}


@cache
def llama_factory_keys() -> frozenset[str]:
    """All keys that a LLaMA-Factory file may hold."""
    return frozenset(
        key for keys in load_known_keys("llama-factory").classes.values() for key in keys
    )


def read_llama_factory_config(document: LocatedDocument) -> Config:
    """The settings in a LLaMA-Factory YAML or JSON as a Config."""
    known = {
        key: value
        for keys in load_known_keys("llama-factory").classes.values()
        for key, value in keys.items()
    }
    draft = draft_of_document(
        document, "llama-factory", load_known_keys("llama-factory").release, known
    )
    draft.take_keys_of_same_name()
    for field, key in FIELD_KEYS.items():
        draft.take(f"training.{field}", key)
    _read_training_method(draft)
    _read_model_and_template(draft)
    kind = draft.get("finetuning_type")
    if kind == "lora":
        _read_lora(draft)
    elif kind != "full":
        draft.notes.append(f"finetuning_type: {kind} is read as if all weights were trained")
    _read_added_tokens(draft)
    _read_packing_shuffling_and_evaluation(draft)
    read_sharding(draft)
    read_llama_factory_datasets(draft)
    # Without it, paths of pictures begin at the folder of the data, where they are looked for anyway.
    draft.take("media_dir", "media_dir")
    limit = draft.get("cutoff_len")
    if "cutoff_len" in draft.values:
        draft.put("max_length", limit, "cutoff_len")
    if MEGATRON_KEYS & draft.values.keys():
        draft.notes.append("Megatron's own keys (USE_MCA=1) are not checked")
        known |= dict.fromkeys(draft.values)
    return draft.make_config(
        known, limit if isinstance(limit, int) else None, ("transformers", "llama-factory")
    )


def _read_training_method(draft: ConfigDraft) -> None:
    """Read the method of training (`stage`)."""
    stage, loss = str(draft.get("stage")), str(draft.get("pref_loss"))
    method = METHOD_OF_STAGE.get(stage, "sft")
    if stage == "dpo":
        method = METHOD_OF_LOSS.get(loss, "dpo")
        draft.put("training.loss_type", loss, "pref_loss")
    draft.put("training.method", method, "stage", "pref_loss")
    if stage not in METHOD_OF_STAGE:
        draft.notes.append(f"stage: {stage} is none that LLaMA-Factory knows; read as sft")
    if is_switched_on(draft.get("train_on_prompt")):
        draft.put("learn", {"what": "all"}, "train_on_prompt")
    elif is_switched_on(draft.get("mask_history")):
        draft.put("learn", {"what": "last"}, "mask_history")
    elif stage == "pt":
        draft.put("learn", {"what": "all"}, "stage")
    draft.put("append_eos", stage == "pt" or None)
    draft.put("history", "single")


def _read_model_and_template(draft: ConfigDraft) -> None:
    """Read the model, its template, and how it is loaded."""
    model = draft.local_folder_or_name(draft.get("model_name_or_path"))
    draft.put("model", model, "model_name_or_path")
    draft.put("tokenizer", model, "model_name_or_path")
    draft.take(
        "training.adapter",
        "adapter_name_or_path",
        made=lambda value: ",".join(list_of_names(value)) or None,
    )
    bits = draft.get("quantization_bit")
    draft.put("training.load_in", bits if bits in (4, 8) else None, "quantization_bit")
    attention = draft.get("flash_attn")
    draft.put("training.attn_implementation", ATTENTION_NAMES.get(str(attention)), "flash_attn")
    off = is_switched_on(draft.get("disable_gradient_checkpointing"))
    draft.put("training.gradient_checkpointing", not off, "disable_gradient_checkpointing")
    draft.put(
        "training.use_liger_kernel",
        is_switched_on(draft.get("enable_liger_kernel")),
        "enable_liger_kernel",
    )
    half = is_switched_on(draft.get("bf16")) or is_switched_on(draft.get("pure_bf16"))
    dtype = "bfloat16" if half else "float16" if is_switched_on(draft.get("fp16")) else None
    draft.put("training.dtype", dtype, "pure_bf16", "bf16", "fp16")
    own = draft.get("template")
    draft.own_prompt = draft.get("stage") != "pt"
    if own is not None:
        draft.notes.append(
            f"template: {own} is LLaMA-Factory's own; truetune looks at the tokenizer's template"
            " instead"
        )
    draft.used -= {"template"}
    thinking = draft.get("enable_thinking")
    if "enable_thinking" in draft.values and thinking is not None:
        draft.put("template_kwargs", {"enable_thinking": thinking}, "enable_thinking")


def _read_lora(draft: ConfigDraft) -> None:
    """Read the settings of LoRA."""
    draft.put("training.lora", {}, "finetuning_type")
    for field, key in LORA_KEYS.items():
        draft.take(f"training.lora.{field}", key)
    rank = draft.get("lora_rank")
    if draft.get("lora_alpha") is None and isinstance(rank, int):
        draft.put("training.lora.lora_alpha", 2 * rank, "lora_rank")
    draft.take("training.lora.target_modules", "lora_target", made=_target_module_names)
    draft.take("training.lora.modules_to_save", "additional_target", made=list_of_names)
    if is_switched_on(draft.get("pissa_init")):
        draft.put("training.lora.init_lora_weights", "pissa", "pissa_init")


def _target_module_names(value: Any) -> Any:
    """The names of target modules as a list; `all-linear` for `all`."""
    found = list_of_names(value)
    return "all-linear" if found == ["all"] else found


def _read_added_tokens(draft: ConfigDraft) -> None:
    """Read the added tokens."""
    added = [
        *list_of_names(draft.get("add_tokens")),
        *list_of_names(draft.get("add_special_tokens")),
    ]
    draft.put("training.added_tokens", added or None, "add_special_tokens", "add_tokens")


def _read_packing_shuffling_and_evaluation(draft: ConfigDraft) -> None:
    """Read packing, shuffling, and when it evaluates."""
    draft.put("training.remove_unused_columns", False)
    draft.put(
        "training.shuffle", not is_switched_on(draft.get("disable_shuffling")), "disable_shuffling"
    )
    neat, packing = is_switched_on(draft.get("neat_packing")), draft.get("packing")
    packed = neat or (draft.get("stage") == "pt" if packing is None else is_switched_on(packing))
    draft.put("training.packing", packed, *(("neat_packing",) if neat else ()), "packing")
    draft.put("training.eval_packing", packed, "packing")
    if packed:
        draft.put(
            "training.packing_strategy", "neat" if neat else "greedy", "neat_packing", "packing"
        )
    draft.take("training.eval_strategy", "eval_strategy", "evaluation_strategy")
    if draft.fields.get("training.eval_strategy") == "steps" and draft.get("eval_steps") is None:
        draft.put("training.eval_steps", draft.get("logging_steps"))
