"""Recipes of torchtune and commands of ms-swift, read for what decides memory, steps and the rate."""

from __future__ import annotations

from pathlib import Path

from truetune.checks.plan_memory import config_with_changed_training
from truetune.memory.plan_memory import plan_memory
from truetune.settings.recognise_input_kind import recognise_kinds
from truetune.settings.stacks.read_config_of_any_stack import read_config

RECIPE = """
model:
  _component_: torchtune.models.llama3_1.{builder}
  lora_rank: 16
  lora_alpha: 32
  apply_lora_to_mlp: True
tokenizer: {{_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 2048}}
checkpointer: {{_component_: torchtune.training.FullModelHFCheckpointer, checkpoint_dir: /nn/Llama-3.1-8B-Instruct}}
dataset: {{_component_: torchtune.datasets.alpaca_dataset, packed: True}}
optimizer: {{_component_: bitsandbytes.optim.PagedAdamW8bit, lr: 2e-5}}
batch_size: 4
epochs: 3
gradient_accumulation_steps: 2
dtype: bf16
enable_activation_checkpointing: True
"""
SWIFT = """
NPROC_PER_NODE=2 swift {kind} --model Qwen/Qwen2.5-7B-Instruct --train_type {tuner} --dataset a.jsonl \\
    --torch_dtype bfloat16 --max_length 4096 --gradient_accumulation_steps 8 --deepspeed zero3 {more}
"""


def test_a_recipe_of_torchtune(tmp_path: Path) -> None:
    path = tmp_path / "8B.yaml"
    path.write_text(RECIPE.format(builder="qlora_llama3_1_8b"), encoding="utf-8")
    assert recognise_kinds(path) == ("torchtune",)
    spec = read_config(path).spec
    training = spec.training
    assert spec.model == "Llama-3.1-8B-Instruct"
    assert spec.max_length == 2048
    assert training.lora is not None
    assert training.lora.r == 16
    assert training.load_in == 4
    assert "gate_proj" in (training.lora.target_modules or ())
    assert (training.per_device_train_batch_size, training.gradient_accumulation_steps) == (4, 2)
    assert training.optim == "paged_adamw_8bit"
    assert training.learning_rate == 2e-5
    assert training.dtype == "bfloat16"
    assert training.gradient_checkpointing
    assert training.packing


def test_a_full_recipe_has_no_adapter(tmp_path: Path) -> None:
    path = tmp_path / "8B_full.yaml"
    path.write_text(RECIPE.format(builder="llama3_1_8b"), encoding="utf-8")
    config = read_config(path)
    assert config.spec.training.lora is None
    assert config.spec.training.load_in is None
    made = plan_memory(config, gpu_memory="24GB")
    assert made.verdict == "too large"
    assert any("batch_size: 1" in line for remedy in made.remedies for line in remedy.lines)


def test_a_command_of_swift(tmp_path: Path) -> None:
    path = tmp_path / "sft.sh"
    path.write_text(
        SWIFT.format(kind="sft", tuner="full", more="--learning_rate 1e-5"), encoding="utf-8"
    )
    spec = config_with_changed_training(path).spec
    training = spec.training
    assert spec.model == "Qwen/Qwen2.5-7B-Instruct"
    assert spec.max_length == 4096
    assert training.lora is None
    assert training.deepspeed_stage == 3
    assert training.bf16
    assert training.per_device_train_batch_size == 1
    assert training.gradient_checkpointing
    path.write_text(
        SWIFT.format(kind="rlhf", tuner="lora", more="--rlhf_type dpo --quant_bits 4"),
        encoding="utf-8",
    )
    training = config_with_changed_training(path).spec.training
    assert training.method == "dpo"
    assert training.lora is not None
    assert training.load_in == 4
    assert training.lora.r == 8
    assert training.learning_rate == 1e-4
