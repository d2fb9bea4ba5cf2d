"""Rules on devices: silent on healthy launches, and each fault found by its own rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.checks.pages.devices import launch
from truetune.checks.findings import Finding
from truetune.checks.rule_catalogue import all_rules

MODEL = {
    **{
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
    },
    **{
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
    "dtype": "bfloat16",
}
RUN = {"per_device_train_batch_size": 4, "bf16": True, "gradient_checkpointing": True}


def found(
    tmp_path: Path, config: dict[str, Any], machine: dict[str, Any], **more: Any
) -> list[Finding]:
    subject = launch({"config": config, "machine": machine, **more}, tmp_path)
    return [finding for rule in all_rules("devices") for finding in rule(subject).findings()]


def ranks(world: int, rank: int) -> dict[str, str]:
    values = {"WORLD_SIZE": world, "RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
    return {name: str(value) for name, value in values.items()}


HEALTHY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one GPU": ({"training": RUN}, {"gpus": 1, "memory": 24}),
    "one GPU of four": (
        {"training": RUN},
        {"gpus": 4, "environment": {"CUDA_VISIBLE_DEVICES": "2"}},
    ),
    "CPU": ({"training": {}}, {}),
    "a machine of a CI service": (
        {"training": RUN},
        {"environment": {"CI": "true", "CUDA_VISIBLE_DEVICES": ""}},
    ),
    "four GPUs before the launch": ({"training": RUN}, {"gpus": 4, "memory": 80}),
    "torchrun, first of 8": ({"training": RUN}, {"gpus": 8, "environment": ranks(8, 0)}),
    "torchrun, last of 8": ({"training": RUN}, {"gpus": 8, "environment": ranks(8, 7)}),
    "two machines": (
        {"training": RUN},
        {
            "gpus": 8,
            "environment": {"WORLD_SIZE": 16, "RANK": 15, "LOCAL_RANK": 7, "LOCAL_WORLD_SIZE": 8},
        },
    ),
    "two machines, each with one": (
        {"training": RUN},
        {
            "gpus": 1,
            "environment": {"WORLD_SIZE": 2, "RANK": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1},
        },
    ),
    "a rank that sees its own GPU alone": (
        {"training": RUN},
        {
            "gpus": 8,
            "environment": {
                "WORLD_SIZE": 8,
                "RANK": 0,
                "LOCAL_RANK": 0,
                "CUDA_VISIBLE_DEVICES": "0",
            },
        },
    ),
    "left unset by accelerate": (
        {"training": RUN},
        {"gpus": 1, "environment": {"LOCAL_RANK": "-1"}},
    ),
    "ZeRO-3": (
        {"training": {**RUN, "deepspeed_stage": 3}},
        {"gpus": 8, "environment": ranks(8, 1)},
    ),
    "DeepSpeed with auto": (
        {
            "training": {
                **RUN,
                "deepspeed_stage": 2,
                "other": {"deepspeed": {"train_batch_size": "auto"}},
            }
        },
        {"gpus": 8, "environment": ranks(8, 1)},
    ),
    "QLoRA": (
        {"training": {**RUN, "load_in": 4, "lora": {"r": 8}, "device_map": "auto"}},
        {"gpus": 1},
    ),
    "QLoRA on each GPU": (
        {"training": {**RUN, "load_in": 4, "lora": {"r": 8}}},
        {"gpus": 2, "environment": ranks(2, 0)},
    ),
    "FSDP and QLoRA in Axolotl": (
        {"stack": "axolotl", "training": {**RUN, "fsdp": True, "load_in": 4, "lora": {"r": 8}}},
        {"gpus": 2, "environment": ranks(2, 0)},
    ),
    "a stream": (
        {"training": {**RUN, "max_steps": 100, "other": {"streaming": True}}},
        {"gpus": 8},
    ),
    "an evaluation": (
        {"training": {**RUN, "eval_strategy": "steps", "per_device_eval_batch_size": 2}},
        {"gpus": 1},
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_launches(name: str, tmp_path: Path) -> None:
    config, machine = HEALTHY[name]
    assert found(tmp_path, config, machine, model=MODEL) == []


FAULTS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "split in each process": (
        "DEV001", "error", {"training": {"device_map": "auto", "devices": 2}}, {"gpus": 2},
    ),
    "split though it fits on one": (
        "DEV001", "warning", {"training": {**RUN, "device_map": "auto"}}, {"gpus": 2},
    ),
    "hidden GPUs": ("DEV002", "warning", {}, {"gpus": 2, "environment": {"CUDA_VISIBLE_DEVICES": "-1"}}),
    "a GPU that there is not": ("DEV002", "error", {}, {"gpus": 2, "environment": {"CUDA_VISIBLE_DEVICES": "0,2"}}),
    "a rank without a GPU": ("DEV003", "error", {}, {"gpus": 1, "environment": ranks(2, 1)}),
    "a size that is no number": ("DEV003", "error", {}, {"environment": {"WORLD_SIZE": "two"}}),
    "a stream of unknown length": (
        "DEV005", "warning",
        {"training": {"devices": 2, "other": {"streaming": True, "accelerator_config": {"dispatch_batches": False}}}},
        {},
    ),
    "a stream in order": ("DEV006", "warning", {"training": {"shuffle": False, "other": {"streaming": True}}}, {}),
    "almost too large": ("DEV007", "warning", {"max_length": 1024, "training": RUN}, {"gpus": 1, "memory": 3.8}),
    "too large": ("DEV007", "error", {"max_length": 1024, "training": RUN}, {"gpus": 1, "memory": 2}),
    "8 bits under FSDP": (
        "DEV008", "error", {"training": {"fsdp": True, "devices": 2, "load_in": 8, "lora": {"r": 8}}}, {},
    ),
    "FSDP on a mapped device": (
        "DEV009", "warning", {"training": {"fsdp": True, "devices": 2, "device_map": "cuda:0"}}, {},
    ),
    "logits kept, rows unknown": (
        "DEV011", "warning", {"training": {**RUN, "eval_strategy": "epoch", "eval_logits_kept": True}}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str, tmp_path: Path) -> None:
    code, severity, config, machine = FAULTS[name]
    seen = found(tmp_path, config, machine, model=MODEL)
    assert [(finding.code, finding.severity) for finding in seen] == [(code, severity)], seen


def test_little_is_kept_by_a_small_evaluation(tmp_path: Path) -> None:
    config = {
        **{"max_length": 64, "eval_data": ["eval.jsonl"]},
        "training": {**RUN, "eval_strategy": "epoch", "eval_logits_kept": True},
    }
    assert found(tmp_path, config, {}, model=MODEL, files={"eval.jsonl": 10}) == []


def test_the_experts_that_axolotl_quantizes(tmp_path: Path) -> None:
    model = {
        **MODEL,
        "model_type": "qwen3_moe",
        "head_dim": 64,
        "num_experts": 8,
        "moe_intermediate_size": 64,
    }
    run = {**RUN, "load_in": 4, "lora": {"r": 8}}
    left = found(tmp_path / "a", {"stack": "axolotl", "training": run}, {}, model=model)
    assert [finding.code for finding in left] == ["DEV012"]
    run = {**run, "other": {"quantize_moe_experts": True}}
    assert found(tmp_path / "b", {"stack": "axolotl", "training": run}, {}, model=model) == []


@pytest.mark.parametrize(
    ("stack", "processes", "severities"),
    [("trl", 4, ["error"]), ("axolotl", 4, ["info"]), ("trl", 1, [])],
)
def test_the_command_that_starts_the_settings_counts(
    stack: str, processes: int, severities: list[str], tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sft.yaml").write_text("device_map: auto\n")
    (tmp_path / "run.sh").write_text(
        f"accelerate launch --num_processes {processes} train.py --config sft.yaml\n"
    )
    subject = launch(
        {"config": {"stack": stack, "training": {**RUN, "device_map": "auto"}}, "machine": {}},
        tmp_path,
    )
    subject = replace(subject, config=replace(subject.config, path=str(tmp_path / "sft.yaml")))
    seen = [finding for rule in all_rules("devices") for finding in rule(subject).findings()]
    assert [finding.severity for finding in seen if finding.code == "DEV001"] == severities
    assert all("run.sh, line 1" in finding.evidence[0] for finding in seen)
