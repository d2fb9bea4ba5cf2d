"""Spells what a remedy changes as lines for the configuration file of each stack.

A remedy names a field of `MemorySettings`; here stand the lines to paste, for each stack. The trade-off: a table by
hand, which a stack's next release may outdate; a test reads Axolotl's lines as its file is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truetune.settings.config import Stack

Lines = Mapping[Stack, tuple[str, ...]]


def _lines_by_stack(*lines: str, **other: tuple[str, ...]) -> Lines:
    """Lines of transformers and TRL, and of the others where theirs differ; ms-swift takes options."""
    return {
        "transformers": lines,
        "trl": lines,
        "llama-factory": other.get("llama_factory", lines),
        "axolotl": other.get("axolotl", lines),
        "truetune": other.get("truetune", tuple(f"training.{line}" for line in lines)),
        "torchtune": other.get("torchtune", lines),
        "ms-swift": other.get("swift", tuple(f"--{line.replace(':', '')}" for line in lines)),
    }


SPELLINGS: Mapping[str, Lines] = {
    "batch": _lines_by_stack(
        "per_device_train_batch_size: {0}", axolotl=("micro_batch_size: {0}",), torchtune=("batch_size: {0}",),
    ),
    "eval_batch": _lines_by_stack("per_device_eval_batch_size: {0}", axolotl=("eval_batch_size: {0}",)),
    "accumulation": _lines_by_stack("gradient_accumulation_steps: {0}"),
    "checkpointing": _lines_by_stack(
        "gradient_checkpointing: true", llama_factory=("disable_gradient_checkpointing: false",),
        torchtune=("enable_activation_checkpointing: True",),
    ),
    "autocast": _lines_by_stack("bf16: true", torchtune=("dtype: bf16",)),
    "base": _lines_by_stack(
        "dtype: bfloat16", axolotl=("bf16: true",), llama_factory=("bf16: true",), torchtune=("dtype: bf16",),
        swift=("--torch_dtype bfloat16",),
    ),
    "attention": _lines_by_stack(
        "attn_implementation: sdpa", axolotl=("sdp_attention: true",), llama_factory=("flash_attn: sdpa",),
        swift=("--attn_impl flash_attn",),
    ),
    "head": _lines_by_stack(
        "use_liger_kernel: true",
        axolotl=(
            "plugins: [axolotl.integrations.liger.LigerPlugin]",
            "liger_fused_linear_cross_entropy: true",
        ),
        llama_factory=("enable_liger_kernel: true",),
    ),
    "optimizer": _lines_by_stack(
        "optim: {0}", axolotl=("optimizer: {0}",),
        torchtune=("optimizer: {{_component_: bitsandbytes.optim.PagedAdamW8bit}}",),
    ),
    "length": _lines_by_stack(
        "max_length: {0}", axolotl=("sequence_len: {0}",), llama_factory=("cutoff_len: {0}",),
        truetune=("max_length: {0}",), torchtune=("tokenizer.max_seq_len: {0}",),
    ),
    "lora": {
        "transformers": ("LoraConfig(r={0.r}, lora_alpha={0.lora_alpha:g}, target_modules='all-linear')",),
        "trl": ("use_peft: true", "lora_r: {0.r}", "lora_alpha: {0.lora_alpha:g}", "lora_target_modules: all-linear"),
        "axolotl": ("adapter: lora", "lora_r: {0.r}", "lora_alpha: {0.lora_alpha:g}", "lora_target_linear: true"),
        "llama-factory": (
            "finetuning_type: lora", "lora_rank: {0.r}", "lora_alpha: {0.lora_alpha:g}", "lora_target: all"
        ),
        "torchtune": (
            "tune run lora_finetune_single_device, and the lora_ builder of the model", "model.lora_rank: {0.r}"
        ),
        "ms-swift": ("--train_type lora --lora_rank {0.r} --lora_alpha {0.lora_alpha:g}",),
        "truetune": ("training.lora: {{r: {0.r}, lora_alpha: {0.lora_alpha:g}, target_modules: all-linear}}",),
    },
    "load_in": {
        "transformers": ("BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True, "
                         "bnb_4bit_compute_dtype=torch.bfloat16)",),
        "trl": ("load_in_4bit: true", "use_bnb_nested_quant: true"),
        "axolotl": ("adapter: qlora", "load_in_4bit: true"),
        "llama-factory": ("quantization_bit: 4", "double_quantization: true"),
        "torchtune": ("the qlora_ builder of the model",),
        "ms-swift": ("--quant_method bnb --quant_bits 4",),
        "truetune": ("training.load_in: 4",),
    },
    "sharding": {
        "transformers": ("fsdp: full_shard auto_wrap",),
        "trl": ("accelerate launch --use_fsdp --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP",),
        "axolotl": ("fsdp_version: 2", "fsdp_config: {{auto_wrap_policy: TRANSFORMER_BASED_WRAP}}"),
        "llama-factory": ("deepspeed: examples/deepspeed/ds_z3_config.json",),
        "torchtune": ("tune run --nproc_per_node N, and the recipe that ends in _distributed",),
        "ms-swift": ("NPROC_PER_NODE=N, --deepspeed zero3",),
        "truetune": ("training.fsdp: true",),
    },
    "offload": {
        "transformers": ("fsdp: full_shard auto_wrap offload",),
        "trl": ("accelerate launch --use_fsdp --fsdp_offload_params true",),
        "axolotl": ("fsdp_config: {{offload_params: true}}",),
        "llama-factory": ("deepspeed: examples/deepspeed/ds_z3_offload_config.json",),
        "torchtune": ("fsdp_cpu_offload: True",),
        "ms-swift": ("--deepspeed zero3_offload",),
        "truetune": ("training.other: {{fsdp_offload_params: true}}",),
    },
}  # fmt: skip
"""Field of Settings -> stack -> lines; what no file sets is not in here."""


IN_PROGRAMS: Mapping[str, Lines] = {
    "lora": {
        "trl": (
            "peft_config=LoraConfig(r={0.r}, lora_alpha={0.lora_alpha:g}, target_modules='all-linear')",
        ),
        "transformers": (
            "model = get_peft_model(model, LoraConfig(r={0.r}, lora_alpha={0.lora_alpha:g},"
            " target_modules='all-linear'))",
        ),
    },
    "load_in": {"trl": SPELLINGS["load_in"]["transformers"]},
}
"""As SPELLINGS, where a script's own arguments are others than the settings of the stack's command line"""


def setting_lines_of_changes(
    stack: Stack, changes: Mapping[str, Any], *, is_program: bool = False
) -> tuple[str, ...]:
    """The lines of these changes in the file of a stack, or in a script that uses it."""
    return tuple(
        line.format(value)
        for name, value in changes.items()
        if name in SPELLINGS
        for line in _lines_of_change(name, stack, is_program)
    )


def _lines_of_change(name: str, stack: Stack, is_program: bool) -> tuple[str, ...]:
    """The lines of one change."""
    in_program = IN_PROGRAMS.get(name, {}).get(stack) if is_program else None
    lines = SPELLINGS[name]
    return in_program or lines.get(stack, lines["transformers"])
