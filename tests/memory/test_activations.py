"""What autograd keeps for the backward pass is what the formula says, tensor by tensor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.memory.shapes import SHAPES
from truetune.memory.activation_memory import block_activation_bytes_per_token
from truetune.memory.matrices_and_parameters_from_config import parse_architecture
from truetune.memory.memory_settings import resolve_memory_settings
from truetune.memory.model_family_layouts import FAMILIES
from truetune.settings.run_spec import RunSpec

ROWS, LENGTH = 2, 40
QV, LINEAR = ["q_proj", "v_proj"], "all-linear"
KINDS = (
    "llama",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma3_text",
    "mistral",
    "phi3",
    "phi",
    "gpt2",
    "gpt_neox",
    "olmo2",
    "smollm3",
    "granite",
    "starcoder2",
    "mixtral",
    "qwen3_moe",
    "glm4",
)


def model_of(kind: str, layers: int, dtype: str, attention: str, targets: Any) -> Any:
    import peft
    import torch
    import transformers

    shape = SHAPES[kind] | {"n_layer" if "n_layer" in SHAPES[kind] else "num_hidden_layers": layers}
    config = transformers.AutoConfig.for_model(kind, **shape)
    loader = transformers.AutoModelForCausalLM
    model = loader.from_config(config, dtype=getattr(torch, dtype), attn_implementation=attention)
    if targets is not None:
        model = peft.get_peft_model(
            model, peft.LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM")
        )
    return model.train()


def saved(model: Any, amp: bool, padded: bool) -> int:
    """Bytes that autograd saves in a forward pass, without weights and what is made of weights alone."""
    import torch

    weights = {
        tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())
    }
    shapes = {tuple(sorted(p.shape)) for p in model.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        is_weight = storage.data_ptr() in weights or (amp and tuple(sorted(tensor.shape)) in shapes)
        if not is_weight:
            kept.setdefault(storage.data_ptr(), tensor)
        return tensor

    ids = torch.ones(ROWS, LENGTH, dtype=torch.long)
    mask = torch.ones(ROWS, LENGTH, dtype=torch.long)
    mask[0, -3:] = 0
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=amp),
    ):
        model(input_ids=ids, labels=ids, attention_mask=mask if padded else None, use_cache=False)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def error(kind: str, dtype: str, attention: str, targets: Any, amp: bool, padded: bool) -> float:
    """Of one block: what three layers keep beyond two."""
    three = model_of(kind, 3, dtype, attention, targets)
    two = model_of(kind, 2, dtype, attention, targets)
    measured = saved(three, amp, padded) - saved(two, amp, padded)
    known = parse_architecture(three.config.to_dict())
    training = {
        **{
            "dtype": dtype,
            "bf16": amp or None,
            "attn_implementation": attention,
            "padding_free": not padded,
        },
        **{
            "per_device_train_batch_size": ROWS,
            "lora": {"r": 4, "target_modules": targets} if targets else None,
        },
    }
    settings = resolve_memory_settings(
        RunSpec.model_validate({"max_length": LENGTH, "training": training}), known
    )
    return (
        block_activation_bytes_per_token(known.blocks[-1], known, settings)
        * ROWS
        * LENGTH
        / measured
        - 1
    )


@pytest.mark.parametrize("kind", KINDS)
def test_families(kind: str) -> None:
    assert abs(error(kind, "bfloat16", "sdpa", None, False, False)) < 0.01


@pytest.mark.parametrize("kind", ["gemma2", "gpt_oss"])
def test_families_with_eager_attention(kind: str) -> None:
    assert abs(error(kind, "bfloat16", "eager", None, False, False)) < 0.015


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text"])
@pytest.mark.parametrize(
    ("dtype", "attention", "targets", "amp", "padded"),
    [
        ("bfloat16", "sdpa", None, True, False),
        ("float32", "sdpa", None, False, False),
        ("float32", "sdpa", None, True, False),
        ("bfloat16", "eager", None, False, False),
        ("bfloat16", "sdpa", None, False, True),
        ("bfloat16", "sdpa", LINEAR, False, False),
        ("bfloat16", "sdpa", LINEAR, True, False),
        ("bfloat16", "sdpa", QV, True, False),
        ("float32", "sdpa", QV, True, False),
        ("bfloat16", "eager", QV, True, True),
    ],
)
def test_settings(
    kind: str, dtype: str, attention: str, targets: Any, amp: bool, padded: bool
) -> None:
    assert abs(error(kind, dtype, attention, targets, amp, padded)) < 0.01


def test_the_formula_of_korthikanti() -> None:
    """34 s b h + 5 a s^2 b (arXiv:2205.05198, equation 1), less what dropout keeps: 2 s b h + 3 a s^2 b, and with the
    softmax in float32, 4 a s^2 b more."""
    hidden, heads, length = 12288, 96, 2048
    config = {
        **{
            "model_type": "gpt_neox",
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_hidden_layers": 1,
        },
        **{"intermediate_size": 4 * hidden, "vocab_size": 51200},
    }
    known = replace(
        parse_architecture(config), family=replace(FAMILIES["gpt_neox"], parallel=False)
    )
    training = {
        "dtype": "bfloat16",
        "attn_implementation": "eager",
        "per_device_train_batch_size": 1,
    }
    settings = resolve_memory_settings(
        RunSpec.model_validate({"max_length": length, "training": training}), known
    )
    paper = 34 * hidden + 5 * heads * length
    assert (
        block_activation_bytes_per_token(known.blocks[0], known, settings) - 16
        == paper - 2 * hidden - 3 * heads * length + 4 * heads * length
    )
