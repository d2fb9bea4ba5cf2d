"""The whole step: against the same step on tensors without data, and against published figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.memory import SHAPES as REAL
from bench.memory import Case, on_nothing
from truetune.memory import logits_memory, weight_gradient_optimizer_memory
from truetune.memory.estimate_memory import GIB, Estimate, estimate_memory
from truetune.memory.matrices_and_parameters_from_config import Architecture, parse_architecture
from truetune.memory.memory_settings import MemorySettings, resolve_memory_settings
from truetune.settings.config import Config, Stack
from truetune.settings.run_spec import RunSpec

LLAMA_8B = {**REAL["llama-3.1-8b"], "dtype": "bfloat16"}


def settings_of(
    known: Architecture, stack: Stack = "transformers", length: int = 1024, **training: Any
) -> MemorySettings:
    spec = RunSpec.model_validate({"max_length": length, "training": training})
    return resolve_memory_settings(Config(stack, "1.16.0", "", spec), known)


def of(
    config: dict[str, Any], stack: Stack = "transformers", length: int = 1024, **training: Any
) -> Estimate:
    known = parse_architecture(config)
    return estimate_memory(known, settings_of(known, stack, length, **training))


def allocated(found: Estimate) -> float:
    """GiB, as torch counts"""
    return max(moment.allocated for moment in found.moments) / GIB


CASES = (
    Case("smollm2-135m", 2, 256, {"dtype": "bfloat16"}),
    Case(
        "smollm2-135m", 2, 256, {"dtype": "float32", "bf16": True, "gradient_accumulation_steps": 2}
    ),
    Case(
        "smollm2-135m", 4, 512, {"dtype": "bfloat16", "bf16": True, "gradient_checkpointing": True}
    ),
    Case(
        "smollm2-135m",
        4,
        512,
        {"dtype": "bfloat16", "bf16": True, "lora": {"r": 8, "target_modules": "all-linear"}},
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_peak_of_a_step(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REAL, "smollm2-135m", {**REAL["smollm2-135m"], "num_hidden_layers": 4})
    known = parse_architecture(REAL[case.shape])
    found = estimate_memory(
        known, replace(resolve_memory_settings(case.config(), known), masked=True)
    )
    assert abs(allocated(found) * GIB / on_nothing(case) - 1) < 0.02


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero(stage: int, gigabytes: float) -> None:
    """7.5 billion parameters on 64 GPUs (arXiv:1910.02054, figure 1)."""
    known = replace(
        parse_architecture(REAL["smollm2-135m"]),
        blocks=(),
        embedding=7_500_000_000,
        final=0,
        hidden=1,
        vocabulary=1,
    )
    settings = settings_of(known, bf16=True, deepspeed_stage=stage, devices=64)
    held = sum(
        part(known, settings)
        for part in (
            weight_gradient_optimizer_memory.weight_bytes,
            weight_gradient_optimizer_memory.gradient_bytes,
            weight_gradient_optimizer_memory.optimizer_bytes,
        )
    )
    assert round(held / 1e9, 1) == gigabytes


def test_qlora() -> None:
    """65B trains on 48 GB, and double quantization saves about 3 GB (arXiv:2305.14314, section 3 and abstract)."""
    config = {
        **{
            "model_type": "llama",
            "hidden_size": 8192,
            "intermediate_size": 22016,
            "num_hidden_layers": 80,
        },
        **{
            "num_attention_heads": 64,
            "vocab_size": 32000,
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
        },
    }
    run: dict[str, Any] = {
        **{
            "load_in": 4,
            "bf16": True,
            "gradient_checkpointing": True,
            "per_device_train_batch_size": 1,
        },
        **{"lora": {"r": 64, "target_modules": "all-linear"}, "optim": "paged_adamw_32bit"},
    }
    double = of(config, length=512, **run, other={"bnb_4bit_use_double_quant": True})
    single = of(config, length=512, **run)
    assert 40 < double.peak.total / GIB < 48
    saved = single.peak.parts["weights"] - double.peak.parts["weights"]
    assert 2.8 < saved / 1e9 < 3.1


TORCHTUNE: dict[str, tuple[float, dict[str, Any]]] = {
    "LoRA": (16.2, {"gradient_checkpointing": True}),
    "LoRA without checkpointing": (30.3, {"use_liger_kernel": True}),
    "QLoRA": (
        7.4,
        {"gradient_checkpointing": True, "load_in": 4, "other": {"use_bnb_nested_quant": True}},
    ),
}
"""Peak GiB of Llama 3.1 8B, 2 rows of 2,048 tokens (README of torchtune 0.3)"""


@pytest.mark.parametrize("name", TORCHTUNE)
def test_torchtune(name: str) -> None:
    published, training = TORCHTUNE[name]
    lora = {"r": 8, "lora_alpha": 16, "target_modules": ("q_proj", "v_proj", "o_proj")}
    found = of(
        LLAMA_8B,
        "trl",
        2048,
        dtype="bfloat16",
        lora=lora,
        per_device_train_batch_size=2,
        padding_free=True,
        **training,
    )
    assert abs(allocated(found) / published - 1) < 0.12


@pytest.mark.parametrize("name", list(REAL))
def test_accelerate_agrees(name: str) -> None:
    """`accelerate estimate-memory` counts float32 weights, and four times as much for training with Adam."""
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    from tests.memory.test_architecture import built

    config = dict(REAL[name])
    model = built(
        config["model_type"], **{key: value for key, value in config.items() if key != "model_type"}
    )
    total, _ = calculate_maximum_sizes(model)
    known = parse_architecture(config)
    settings = settings_of(known, dtype="float32")
    held = sum(
        part(known, settings)
        for part in (
            weight_gradient_optimizer_memory.weight_bytes,
            weight_gradient_optimizer_memory.gradient_bytes,
            weight_gradient_optimizer_memory.optimizer_bytes,
        )
    )
    assert held == pytest.approx(estimate_training_usage(total, "float32")["step"], rel=1e-3)


def test_mixed_precision_takes_eighteen_bytes() -> None:
    """6 for weights, 4 for gradients, 8 for Adam (transformers documentation, "GPU memory usage")."""
    known = parse_architecture(REAL["llama-3.2-1b"])
    settings = settings_of(known, dtype="float32", bf16=True)
    held = sum(
        part(known, settings)
        for part in (
            weight_gradient_optimizer_memory.weight_bytes,
            weight_gradient_optimizer_memory.gradient_bytes,
            weight_gradient_optimizer_memory.optimizer_bytes,
            weight_gradient_optimizer_memory.autocast_copy_bytes,
        )
    )
    assert held / known.parameters == pytest.approx(18, rel=1e-3)


def test_adapters_are_those_of_peft() -> None:
    import peft
    import torch

    from tests.memory.test_architecture import built

    for kind, targets in (
        ("llama", "all-linear"),
        ("qwen3", None),
        ("phi3", ["qkv_proj"]),
        ("gpt2", None),
    ):
        model = built(kind)
        with torch.device("meta"):
            adapted = peft.get_peft_model(
                model, peft.LoraConfig(r=8, target_modules=targets, task_type="CAUSAL_LM")
            )
        known = parse_architecture(model.config.to_dict())
        settings = settings_of(known, lora={"r": 8, "target_modules": targets})
        assert (
            weight_gradient_optimizer_memory.count_trained_parameters(known, settings)
            == adapted.get_nb_trainable_parameters()[0]
        ), kind


def test_sharding_divides_and_offload_removes() -> None:
    run: dict[str, Any] = {"bf16": True, "dtype": "bfloat16", "per_device_train_batch_size": 1}
    one = of(LLAMA_8B, **run)
    shared = of(LLAMA_8B, **run, fsdp=True, devices=8)
    away = of(
        LLAMA_8B, **run, fsdp=True, devices=8, other={"fsdp_config": {"fsdp_offload_params": True}}
    )
    assert shared.peak.parts["weights"] == one.peak.parts["weights"] / 8
    assert away.peak.total < shared.peak.total


def test_a_reference_model_is_held_once() -> None:
    run: dict[str, Any] = {"dtype": "bfloat16", "bf16": True, "per_device_train_batch_size": 1}
    full = of(LLAMA_8B, **run, method="dpo")
    assert full.peak.parts["reference model"] == full.peak.parts["weights"]
    assert not of(LLAMA_8B, **run, method="dpo", precompute_ref_log_probs=True).peak.parts[
        "reference model"
    ]
    assert not of(LLAMA_8B, **run, method="dpo", lora={"r": 8}).peak.parts["reference model"]
    assert (
        full.settings.tokens_per_forward_pass
        == 2 * of(LLAMA_8B, **run).settings.tokens_per_forward_pass
    )


def test_logits_are_most_of_a_small_model() -> None:
    found = of(REAL["smollm2-135m"], length=4096, dtype="bfloat16", gradient_checkpointing=True)
    parts = found.peak.parts
    assert found.peak.name == "loss"
    assert parts["logits"] == 8 * 4096 * 49152 * 12 > found.peak.allocated / 2
    liger = of(
        REAL["smollm2-135m"],
        length=4096,
        dtype="bfloat16",
        gradient_checkpointing=True,
        use_liger_kernel=True,
    )
    assert liger.peak.total < found.peak.total / 3


def test_an_evaluation_can_be_the_peak() -> None:
    run: dict[str, Any] = {
        "dtype": "bfloat16",
        "gradient_checkpointing": True,
        "lora": {"r": 8},
        "per_device_train_batch_size": 1,
    }
    assert of(LLAMA_8B, **run, eval_strategy="steps").peak.name == "evaluation"
    assert of(LLAMA_8B, **run, eval_strategy="no").peak.name == "loss"


def test_the_cache_of_keys_and_values() -> None:
    """2 x layers x kv heads x head size x bytes: 128 KiB for each token of Llama 3.1 8B; windows bound it."""
    known = parse_architecture(LLAMA_8B)
    settings = settings_of(known, dtype="bfloat16")
    assert logits_memory.kv_cache_bytes(known, settings, 1) == 2 * 32 * 8 * 128 * 2
    windows = {**REAL["gemma3-1b"], "sliding_window": 512, "sliding_window_pattern": 6}
    gemma = parse_architecture(windows)
    full, short = (logits_memory.kv_cache_bytes(gemma, settings, length) for length in (4096, 512))
    assert short < full < 8 * short
