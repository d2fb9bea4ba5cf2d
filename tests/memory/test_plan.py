"""Plans: verdicts, remedies in order with their gains, settings of each stack, and the drawing."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from bench.memory import SHAPES
from truetune.errors import SpecError, UsageError
from truetune.memory.estimate_memory import GIB
from truetune.memory.find_changes_to_fit_run_into_memory import ORDER
from truetune.memory.matrices_and_parameters_from_config import parse_architecture
from truetune.memory.plan_memory import Plan, judge_peak, parse_gpu_memory, plan_memory
from truetune.memory.write_remedies_as_stack_settings import SPELLINGS
from truetune.report.memory_plan_terminal import render_plan
from truetune.settings.config import Config, Stack
from truetune.settings.run_spec import RunSpec

LLAMA_8B = parse_architecture({**SHAPES["llama-3.1-8b"], "dtype": "bfloat16"})
STACKS: tuple[Stack, ...] = (
    "truetune",
    "trl",
    "transformers",
    "axolotl",
    "llama-factory",
    "torchtune",
    "ms-swift",
)
FULL: dict[str, Any] = {"per_device_train_batch_size": 8, "bf16": True, "dtype": "float32"}


def planned(
    stack: Stack = "transformers", length: int = 4096, gpu: str | None = "24GB", **training: Any
) -> Plan:
    spec = RunSpec.model_validate({"max_length": length, "training": {**FULL, **training}})
    return plan_memory(Config(stack, "1.16.0", "", spec), model=LLAMA_8B, gpu_memory=gpu)


def drawn(found: Plan, width: int = 100) -> str:
    out = io.StringIO()
    render_plan(found, Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize("stack", STACKS)
def test_remedies_reach_a_run_that_fits(stack: Stack) -> None:
    found = planned(stack)
    assert found.verdict == "too large"
    assert found.remedies[-1].fits
    assert not any(remedy.fits for remedy in found.remedies[:-1])
    total = found.estimate.peak.total
    for remedy in found.remedies:
        assert remedy.gain == pytest.approx(total - remedy.total)
        assert remedy.lines
        total = remedy.total
    assert total <= 24 * GIB
    assert "effective batch stays 8" in found.remedies[0].what


def test_remedies_keep_the_effective_batch_and_the_order() -> None:
    found = planned("trl", gradient_accumulation_steps=2)
    assert found.remedies[0].lines == (
        "per_device_train_batch_size: 1",
        "gradient_accumulation_steps: 16",
    )
    whats = [remedy.what for remedy in found.remedies]
    assert [what.split()[0] for what in whats] == ["1", "gradient", "LoRA"]


def test_the_batch_goes_down_only_as_far_as_needed() -> None:
    found = planned(
        "trl",
        gpu="80GB",
        lora={"r": 16, "target_modules": "all-linear"},
        gradient_checkpointing=True,
        per_device_train_batch_size=64,
        dtype="bfloat16",
    )
    (remedy,) = found.remedies
    assert remedy.fits
    assert not remedy.lines[0].endswith(": 1")


def test_what_fits_needs_no_remedy() -> None:
    found = planned(gpu="200GB", gradient_checkpointing=True, per_device_train_batch_size=1)
    assert found.verdict == "fits"
    assert not found.remedies
    assert planned(gpu=None).verdict is None


def test_several_gpus_share_a_model_before_its_training_is_changed() -> None:
    found = planned("trl", gpu="80GB", devices=8)
    assert not any("LoRA" in remedy.what or "tokens" in remedy.what for remedy in found.remedies)
    assert "FSDP" in found.remedies[-1].what
    assert found.remedies[-1].fits


def test_sharding_and_offload_come_last() -> None:
    found = planned("axolotl", gpu="6GB", devices=8)
    assert any("FSDP" in remedy.what for remedy in found.remedies)
    assert not planned("axolotl", gpu="1GB").remedies[-1].fits


def test_a_verdict_is_tight_within_the_margin() -> None:
    peak = planned().estimate.peak
    assert judge_peak(peak, peak.total) == "fits"
    assert judge_peak(peak, peak.total - peak.fragmentation_bytes / 2) == "tight"
    assert judge_peak(peak, peak.total - 2 * peak.fragmentation_bytes) == "too large"


def test_every_stack_spells_every_change() -> None:
    assert all(set(lines) == set(STACKS) for lines in SPELLINGS.values())
    for lines in SPELLINGS.values():
        for stack in ("axolotl", "llama-factory"):
            for line in lines[stack]:
                from truetune.settings.training_settings import Lora

                assert isinstance(yaml.safe_load(line.format(Lora())), dict), line
    assert len(ORDER) == 13


def test_lines_of_axolotl_are_read_as_they_are_meant(tmp_path: Path) -> None:
    from truetune.settings.stacks.read_config_of_any_stack import read_config

    lines = [line for remedy in planned("axolotl").remedies for line in remedy.lines]
    path = tmp_path / "axolotl.yaml"
    base = [
        "base_model: model",
        "datasets: [{path: a.jsonl, type: chat_template}]",
        "sequence_len: 4096",
    ]
    path.write_text("\n".join([*base, *lines]), encoding="utf-8")
    config = read_config(path)
    assert config.stack == "axolotl"
    assert not config.unknown
    assert config.spec.training.per_device_train_batch_size == 1
    assert config.spec.training.gradient_accumulation_steps == 8
    assert config.spec.training.gradient_checkpointing
    assert config.spec.training.lora is not None


@pytest.mark.parametrize(
    ("text", "gib"),
    [("24GB", 24), ("24 gib", 24), ("81920MiB", 80), (16, 16), ("0.5G", 0.5), ("40", 40)],
)
def test_memory_of_a_gpu(text: str | float, gib: float) -> None:
    assert parse_gpu_memory(text) == gib * GIB


@pytest.mark.parametrize("text", ["", "GB", "-1", "24TB", "nan", "1e9", 0, "9" * 400])
def test_no_memory_of_a_gpu(text: str | float) -> None:
    with pytest.raises(UsageError, match="24GB"):
        parse_gpu_memory(text)


def test_a_plan_is_drawn_and_is_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES["smollm2-135m"]), encoding="utf-8")
    found = plan_memory(RunSpec(model=str(tmp_path)), gpu_memory="2GB")
    text = drawn(found)
    for word in (
        "134.5 million parameters",
        "logits",
        "optimizer step",
        "it does not fit",
        "1,024 tokens are assumed",
    ):
        assert word in " ".join(text.split())
    assert all(len(line) <= 60 for line in drawn(planned(), 60).splitlines())
    again = json.loads(json.dumps(found.to_dict()))
    assert again["verdict"] == "too large"
    assert again["parameters"]["all"] == 134_515_008
    assert again["total"] == max(moment["total"] for moment in again["moments"])
    for moment in again["moments"]:
        assert sum(moment["parts"].values()) == pytest.approx(moment["total"], abs=20)


def test_a_plan_needs_a_model() -> None:
    with pytest.raises(UsageError, match="no model is named"):
        plan_memory(RunSpec())
    with pytest.raises(SpecError, match="nowhere: expected a model folder"):
        plan_memory(RunSpec(model="nowhere"))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", 7_615_616_512),
        ("unsloth/Meta-Llama-3.1-8B-bnb-4bit", 8_030_261_248),
        ("mistralai/Mistral-7B-Instruct-v0.3", 7_248_023_552),
        ("Qwen/Qwen3-4B-Instruct-2507", 4_022_468_096),
        ("google/gemma-2-9b-it", 9_241_705_984),
        ("microsoft/Phi-4-mini-instruct", 3_836_021_760),
    ],
)
def test_a_published_model_needs_no_files(name: str, parameters: int) -> None:
    """The counts are those of the models' cards and of their safetensors."""
    found = plan_memory(RunSpec(model=name))
    assert found.to_dict()["parameters"]["all"] == parameters
    assert any("is not on this machine" in note for note in found.notes)


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen2.5-VL-7B-Instruct", "meta-llama/Llama-3.1-405B", "me/llama-3.1-8binary"]
)
def test_a_name_that_is_not_known_is_not_guessed(name: str) -> None:
    with pytest.raises(SpecError, match="expected a model folder"):
        plan_memory(RunSpec(model=name))


WHOLE_MODULES: dict[str, Any] = {
    "per_device_train_batch_size": 1,
    "dtype": "bfloat16",
    "gradient_checkpointing": True,
    "optim": "adamw_torch",
    "load_in": 4,
    "lora": {
        "r": 16,
        "target_modules": "all-linear",
        "modules_to_save": ["embed_tokens", "lm_head"],
    },
}


@pytest.mark.parametrize(
    ("stack", "raw", "text", "width"),
    [
        ("axolotl", {}, "", 2),
        ("llama-factory", {}, "", 4),
        ("llama-factory", {"pure_bf16": True}, "", 2),
        ("trl", {}, "", 2),
        ("transformers", {}, "", 2),
        ("transformers", {}, "model = prepare_model_for_kbit_training(model)", 4),
    ],
)
def test_copies_of_a_quantized_base(
    stack: Stack, raw: dict[str, Any], text: str, width: int
) -> None:
    """Weight, gradient and two moments of each parameter, as wide as the copies are."""
    spec = RunSpec.model_validate({"max_length": 2048, "training": {**FULL, **WHOLE_MODULES}})
    config = Config(stack, "1.16.0", "", spec, raw=raw, text=text)
    found = plan_memory(config, model=LLAMA_8B, gpu_memory="24GB")
    table = 2 * LLAMA_8B.vocabulary * LLAMA_8B.hidden
    (note,) = [one for one in found.notes if "trained whole" in one]
    assert f"{4 * width * table / GIB:.1f} GiB with gradients" in note
    assert (", in float32" in note) is (width == 4)


def test_an_adapter_alone_is_counted_as_before() -> None:
    lora: dict[str, Any] = {"r": 16, "target_modules": "all-linear"}
    found = planned("axolotl", 2048, **{**WHOLE_MODULES, "lora": lora})
    assert found.verdict == "fits"
