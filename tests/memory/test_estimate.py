"""The whole step: against the same step on tensors without data, and against published figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.memory import SHAPES as REAL
from bench.memory import Case, Live, on_nothing
from truetune.memory import logits_memory, weight_gradient_optimizer_memory
from truetune.memory.estimate_memory import GIB, Estimate, estimate_memory
from truetune.memory.matrices_and_parameters_from_config import Architecture, parse_architecture
from truetune.memory.memory_settings import MemorySettings, resolve_memory_settings
from truetune.memory.plan_memory import plan_memory
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


@pytest.mark.parametrize(
    ("shape", "rows", "prompt", "completion"),
    [
        pytest.param(REAL["tiny-llama"], 8, 16, 64, id="the cache is largest at the end"),
        pytest.param(REAL["tiny-llama"], 16, 128, 16, id="the prompts are the peak"),
    ],
)
def test_sampling_by_the_policy_takes_what_generate_takes(
    shape: dict[str, Any], rows: int, prompt: int, completion: int
) -> None:
    """`generate` of the real model on the CPU, its live storages counted; 0.91 and 0.86 of them are estimated."""
    import torch
    import transformers

    values = {**shape, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    live = Live()
    for tensor in (*model.parameters(), *model.buffers()):
        live.add(tensor)
    ids = torch.ones(rows, prompt, dtype=torch.long)
    with torch.no_grad(), live:
        sampled = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=completion,
            min_new_tokens=completion,
            do_sample=True,
            return_dict_in_generate=True,
        )
    layers = sampled.past_key_values.layers
    cached = sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)

    training = {
        "method": "grpo",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": rows // 2,
        "num_generations": 2,
        "max_completion_length": completion,
        "dtype": "float32",
    }
    found = of({**shape, "dtype": "float32"}, "trl", prompt + completion, **training)
    generation = found.moments[0]
    assert generation.name == "generation"
    # The last token is sampled and never read again.
    length = prompt + completion
    whole = logits_memory.kv_cache_bytes(found.architecture, found.settings, length, rows)
    assert cached == whole * (length - 1) / length
    estimated = generation.allocated - generation.parts["optimizer"]
    assert 0.8 < estimated / live.peak < 1.1


def grpo(stack: Stack = "trl", **training: Any) -> Estimate:
    """A run of GRPO of 8 prompts and completions of 512 + 512 tokens, sampled 64 at once."""
    sampled = {
        "method": "grpo",
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 8,
        "num_generations": 8,
        "max_completion_length": 512,
        "bf16": True,
        "gradient_checkpointing": True,
    }
    return of(LLAMA_8B, stack, 1024, **(sampled | training))


def test_answers_are_sampled_at_once_for_all_passes_of_a_generation() -> None:
    found, fewer = grpo(), grpo(other={"steps_per_generation": 2})
    assert found.settings.sequences_per_generation == 64
    assert fewer.settings.sequences_per_generation == 16
    # 64 rows of 1,024 tokens: 32 layers of 2 x 1,024 keys and values of 2 bytes.
    assert found.moments[0].parts["KV cache"] == 64 * 1024 * 32 * 2 * 1024 * 2
    assert fewer.moments[0].parts["KV cache"] == found.moments[0].parts["KV cache"] / 4
    assert grpo(other={"generation_batch_size": 16}).settings.sequences_per_generation == 16


def test_a_reference_is_held_only_for_a_penalty_and_without_adapter() -> None:
    assert grpo().peak.parts["reference model"] == 0
    assert grpo(beta=0.04).peak.parts["reference model"] == grpo().peak.parts["weights"]
    assert grpo(beta=0.04, lora={"r": 16}).peak.parts["reference model"] == 0


def test_completions_alone_get_logits_before_trl_had_tiles() -> None:
    known = parse_architecture(LLAMA_8B)
    spec = RunSpec.model_validate(
        {"max_length": 1024, "training": {"method": "grpo", "max_completion_length": 256}}
    )
    old = resolve_memory_settings(Config("trl", "1.15.0", "", spec), known)
    assert old.head == "full"
    whole = replace(old, completion=0)
    assert logits_memory.backward_logits_bytes(
        known, old
    ) * 4 == logits_memory.backward_logits_bytes(known, whole)


def test_an_engine_beside_takes_its_share_and_one_elsewhere_nothing() -> None:
    def planned(**other: Any) -> Any:
        training = {"method": "grpo", "other": {"use_vllm": True, **other}}
        spec = RunSpec.model_validate({"max_length": 1024, "training": training})
        config = Config("trl", "1.16.0", "", spec)
        return plan_memory(config, model=parse_architecture(LLAMA_8B), gpu_memory="80GB")

    beside = planned(vllm_gpu_memory_utilization=0.25)
    assert {moment.parts["engine"] for moment in beside.estimate.moments} == {20 * GIB}
    asleep = planned(vllm_gpu_memory_utilization=0.25, vllm_enable_sleep_mode=True)
    engines = {moment.name: moment.parts["engine"] for moment in asleep.estimate.moments}
    assert engines["generation"] == 20 * GIB
    assert engines["backward"] == 0
    elsewhere = planned(vllm_mode="server")
    assert {moment.parts["engine"] for moment in elsewhere.estimate.moments} == {0}
    assert any("which are not planned" in note for note in elsewhere.notes)


def test_another_stacks_sampling_is_said_to_be_uncounted() -> None:
    found = grpo("transformers")
    assert found.moments[0].name == "forward"
    assert (
        "the generation of answers, and an engine for it, are not counted" in found.settings.notes
    )
