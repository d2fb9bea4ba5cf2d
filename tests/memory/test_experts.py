"""Mixtures of experts in a plan: parameters, trained ones and copies of experts are those of the real libraries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from truetune.memory.activation_memory import kept_expert_copy_bytes, largest_expert_copy_bytes
from truetune.memory.matrices_and_parameters_from_config import parse_architecture
from truetune.memory.memory_settings import MemorySettings, resolve_memory_settings
from truetune.memory.plan_memory import plan_memory
from truetune.memory.published_model_shapes import published_config
from truetune.settings.config import Config
from truetune.settings.run_spec import RunSpec

PUBLISHED = (
    "mistralai/Mixtral-8x7B-Instruct-v0.1", "mistralai/Mixtral-8x22B-v0.1", "Qwen/Qwen3-30B-A3B-Instruct-2507",
    "Qwen/Qwen3-235B-A22B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "openai/gpt-oss-120b",
    "allenai/OLMoE-1B-7B-0924", "ibm-granite/granite-3.0-3b-a800m-instruct",
)  # fmt: skip
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
LORAS: tuple[dict[str, Any], ...] = (
    {"target_modules": "all-linear"},
    {"target_modules": ATTENTION},
    {"target_modules": (*ATTENTION, "gate_proj", "up_proj", "down_proj")},
    {"target_modules": ("o_proj", "w1", "w2", "w3")},
    {"target_modules": ("o_proj",), "target_parameters": ("experts.gate_up_proj", "experts.down_proj")},
)  # fmt: skip
LAYERS = 4
"""DeepSeek-V3 has three dense layers before its first experts"""


def model_of(config: dict[str, Any], **changes: Any) -> Any:
    import torch
    import transformers

    values = {**config, **changes}
    kind = values.pop("model_type")
    values.pop("torch_dtype")
    made = transformers.AutoConfig.for_model(kind, **values)
    # The default of a type may lie beyond the vocabulary.
    made.pad_token_id = None
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(made)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_of_published_models_are_exact(name: str) -> None:
    config = published_config(name)
    assert config is not None
    real = sum(parameter.numel() for parameter in model_of(config).parameters())
    assert parse_architecture(config).parameters == real


def trained_by_peft(config: dict[str, Any], lora: dict[str, Any]) -> int:
    import peft

    options: dict[str, Any] = {
        key: list(value) if isinstance(value, tuple) else value for key, value in lora.items()
    }
    model = peft.get_peft_model(
        model_of(config, num_hidden_layers=LAYERS), peft.LoraConfig(r=8, **options)
    )
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def cases() -> Iterator[Any]:
    for name in PUBLISHED:
        if "22B" in name or "120b" in name or "235B" in name:
            continue
        for number, lora in enumerate(LORAS):
            yield pytest.param(name, lora, id=f"{name.rpartition('/')[2]}-{number}")


# 6 s of processor time for all: models of real width on the meta device.
@pytest.mark.parametrize(("name", "lora"), cases())
def test_trained_parameters_are_those_of_peft(name: str, lora: dict[str, Any]) -> None:
    config = published_config(name)
    assert config is not None
    spec = RunSpec.model_validate(
        {"model": name, "max_length": 128, "training": {"lora": {"r": 8, **lora}}}
    )
    architecture = parse_architecture({**config, "num_hidden_layers": LAYERS})
    planned = plan_memory(spec, model=architecture).estimate.trained_parameter_count
    assert planned == trained_by_peft(config, lora)


SMALL: dict[str, Any] = {
    "model_type": "qwen3_moe", "torch_dtype": "float32", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
    "moe_intermediate_size": 20, "num_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


def settings_of(targets: tuple[str, ...], checkpointing: bool) -> MemorySettings:
    training = {
        "lora": {"r": 2, "target_modules": targets},
        "gradient_checkpointing": checkpointing,
        "dtype": "float32",
    }
    spec = RunSpec.model_validate({"max_length": 16, "training": training})
    architecture = parse_architecture(SMALL)
    return resolve_memory_settings(Config("transformers", "5.23.0", "", spec), architecture)


@pytest.mark.parametrize("targets", [ATTENTION, ("q_proj", "gate_proj", "up_proj", "down_proj")])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_kept_copies_of_experts_are_those_of_autograd(
    targets: tuple[str, ...], checkpointing: bool
) -> None:
    import peft
    import torch
    import transformers

    values = {**SMALL}
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    base: Any = transformers.AutoModelForCausalLM.from_config(config).train()
    model: Any = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=list(targets)))
    if checkpointing:
        model.base_model.model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    copies: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        is_of_all_experts = tensor.dim() == 3 and tensor.shape[0] == 8
        is_of_one_expert = tuple(tensor.shape) in ((40, 32), (32, 20))
        if (is_of_all_experts or is_of_one_expert) and storage.data_ptr() not in own:
            copies[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.arange(3, 35).reshape(2, 16)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        # Kept alive, so that no storage is used again at the same address.
        output = model(input_ids=ids, labels=ids)
    assert torch.isfinite(output.loss)
    architecture, settings = parse_architecture(SMALL), settings_of(targets, checkpointing)
    assert kept_expert_copy_bytes(architecture, settings) == sum(copies.values())
    is_adapted = "gate_proj" in targets
    of_a_layer = 8 * (40 * 32 + 32 * 20) * 4
    assert largest_expert_copy_bytes(architecture, settings) == of_a_layer * is_adapted
