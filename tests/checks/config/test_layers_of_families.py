"""LoRA targets that are layers of another family of published models, whose weights are not on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.config import found
from tests.checks.config.settings import AXOLOTL, LORA
from truetune.checks.config.evidence.family_module_names import layers_of_family
from truetune.source.module import parse_module
from truetune.source.script_configs import extract_only_config

LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TRL = "import argparse\nfrom trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer\n"


@pytest.mark.parametrize(
    ("model", "targets", "severity"),
    [
        ("meta-llama/Llama-3.1-8B", ["query_key_value"], "error"),
        ("google/gemma-2-9b-it", ["c_attn", "c_proj"], "error"),
        ("tiiuae/falcon-7b", ["q_proj", "v_proj"], "error"),
        ("unsloth/Qwen3-8B-bnb-4bit", ["q_proj", "v_proj", "fc1"], "warning"),
        # A list for several families that holds every layer of this one loses nothing.
        ("Qwen/Qwen3-8B", [*LLAMA, "query_key_value", "c_attn"], None),
        ("Qwen/Qwen3-8B", ["self_attn.q_proj", "down_proj"], None),
        ("Qwen/Qwen3-8B", ["my_proj"], None),
        ("Qwen/Qwen2.5-VL-7B-Instruct", ["qkv", "fc1"], None),
        ("Qwen/Qwen3-30B-A3B", ["gate", "w1"], None),
        ("meta-llama/Llama-3.2-11B-Vision", ["fc1", "fc2"], None),
        ("google/gemma-3-4b-it", ["fc1"], None),
        ("me/my-model", ["c_attn"], None),
    ],
)
def test_layers_of_another_family(
    model: str, targets: list[str], severity: str | None, tmp_path: Path
) -> None:
    """Only a layer of another family is named, and only where a layer of this one is left without an adapter."""
    settings = {**AXOLOTL, **LORA, "lora_target_linear": None, "base_model": model}
    findings = found(tmp_path, {**settings, "lora_target_modules": targets})
    named = findings.get("lora-target-fits-nothing", [])
    assert [finding.severity for finding in named] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("openai-community/gpt2-xl", "c_attn"),
        ("microsoft/Phi-3.5-mini-instruct", "qkv_proj"),
        ("microsoft/phi-4", "qkv_proj"),
        ("FacebookAI/xlm-roberta-large", "query"),
        ("google/flan-t5-base", "q"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "q_proj"),
    ],
)
def test_names_of_families(name: str, one: str) -> None:
    """Published names lead to the layers of their family."""
    assert one in (layers_of_family(name) or ())


@pytest.mark.parametrize(
    ("program", "model"),
    [
        ("BASE = 'a/b'\nSFTTrainer(model=BASE, args=SFTConfig(output_dir='o'))", "a/b"),
        ("c = DPOConfig(output_dir='o')\nDPOTrainer('a/b', None, c)", None),
        ("c = DPOConfig(output_dir='o')\nDPOTrainer('a/b', ref_model=None, args=c)", "a/b"),
        ("c = SFTConfig(output_dir='o')\nSFTTrainer(load(), c)", None),
        (
            "p = argparse.ArgumentParser()\np.add_argument('--base', default='a/b')\nargs = p.parse_args()\n"
            "SFTTrainer(args.base, args=SFTConfig(output_dir='o'))",
            "a/b",
        ),
        ("c = SFTConfig(output_dir='o')\nSFTTrainer('a/b', c)\nSFTTrainer('a/c', c)", None),
    ],
)
def test_a_trainer_that_loads_the_model_itself(
    program: str, model: str | None, tmp_path: Path
) -> None:
    """The name that a trainer is given is the model of its arguments."""
    config = extract_only_config(parse_module(TRL + program, str(tmp_path / "train.py")))
    assert config is not None
    assert config.spec.model == model
