"""Values of settings that are out of range, by one table, wherever they stand; and near misses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.config.settings import AXOLOTL, HEALTHY, LLAMA_FACTORY, LORA
from truetune.checks.hyperparameter_limits import LIMITS
from truetune.checks.lint import lint
from truetune.checks.rule_catalogue import all_rules, find_rule
from truetune.checks.rule_runner import run_rules
from truetune.settings.stacks.read_config_of_any_stack import read_config

RULES = ("setting-out-of-range", "preference-beta-out-of-range", "settings-train-nothing")
DPO = {
    **AXOLOTL,
    **LORA,
    "rl": "dpo",
    "sample_packing": None,
    "learning_rate": 5e-6,
    "evals_per_epoch": None,
}
ORPO = {**LLAMA_FACTORY, "stage": "dpo", "pref_loss": "orpo"}
GRPO = {
    **AXOLOTL,
    **LORA,
    "rl": "grpo",
    "sample_packing": None,
    "evals_per_epoch": None,
    "learning_rate": 1e-5,
}


def said(settings: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """Severity and message of what the table says of settings."""
    path = folder / "config.yaml"
    path.write_text(
        yaml.safe_dump({k: v for k, v in settings.items() if v is not None}), encoding="utf-8"
    )
    judged = run_rules(read_config(path), [find_rule(name) for name in RULES])
    return [(finding.severity, finding.message) for finding in judged.findings]


FAULTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "scale 1/256": ("warning", "lora_alpha / r is 0.0039", {**LLAMA_FACTORY, "lora_rank": 256, "lora_alpha": 1}),
    "scale 1/16 at a rate of full training": (
        "warning", "hardly moves", {**LLAMA_FACTORY, "lora_rank": 16, "lora_alpha": 1, "learning_rate": 1e-5},
    ),
    "scale of 128": ("warning", "explode", {**LLAMA_FACTORY, "lora_rank": 8, "lora_alpha": 1024}),
    "no scale": ("error", "multiplied by 0", {**LLAMA_FACTORY, "lora_rank": 8, "lora_alpha": 0}),
    "dropout": ("warning", "most of what", {**LLAMA_FACTORY, "lora_dropout": 0.9}),
    "smoothing that cancels": ("error", "ln 2", {**DPO, "dpo_label_smoothing": 0.5}),
    "smoothing that reverses": ("error", "preferred", {**DPO, "dpo_label_smoothing": 0.8}),
    "ORPO as SFT": ("warning", "that of SFT", {**ORPO, "pref_beta": 0.001}),
    "ORPO without odds": ("error", "no effect", {**ORPO, "pref_beta": 0}),
    "decay of 10": ("warning", "shrink", {**LLAMA_FACTORY, "weight_decay": 10}),
    "decay at every step": ("error", "each step sets", {**AXOLOTL, **LORA, "weight_decay": 10000}),
    "clipped away": ("error", "Adam's epsilon", {**AXOLOTL, **LORA, "max_grad_norm": 1e-6}),
    "epsilon as text": ("error", "updates vanish", {**AXOLOTL, **LORA, "adam_epsilon": "1e0"}),
    "beta above 1": ("error", "refuses", {**LLAMA_FACTORY, "adam_beta2": 1.5}),
    "noise": ("warning", "noise", {**AXOLOTL, **LORA, "neftune_noise_alpha": 100}),
    "one answer a prompt": ("error", "num_generations", {**GRPO, "trl": {"num_generations": 1}}),
    "greedy answers": ("error", "sampled for training", {**GRPO, "trl": {"temperature": 0.0}}),
    "a hundredth of an epoch": ("warning", "only sees that share", {**LLAMA_FACTORY, "num_train_epochs": 0.01}),
    "nearly all held out": ("warning", "held out", {**AXOLOTL, **LORA, "val_set_size": 0.95}),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_out_of_range_is_found_once(name: str, tmp_path: Path) -> None:
    severity, words, settings = FAULTS[name]
    (found,) = said(settings, tmp_path)
    assert found[0] == severity
    assert words in found[1]


NEAR_MISSES: dict[str, dict[str, Any]] = {
    "QLoRA's own scale": {**LLAMA_FACTORY, "lora_rank": 64, "lora_alpha": 16},
    "alpha 32 at rank 512": {**LLAMA_FACTORY, "lora_rank": 512, "lora_alpha": 32},
    "rsLoRA of a high rank": {**LLAMA_FACTORY, "lora_rank": 256, "lora_alpha": 512, "use_rslora": True},
    "no clipping": {**AXOLOTL, **LORA, "max_grad_norm": 0},
    "some smoothing": {**DPO, "dpo_label_smoothing": 0.1},
    "IPO reads no smoothing": {**DPO, "rl": "ipo", "dpo_label_smoothing": 0.5},
    "ORPO as published": {**ORPO, "pref_beta": 0.1},
    "Lion's decay": {**AXOLOTL, **LORA, "optimizer": "lion_8bit", "weight_decay": 3.0},
    "beta2 of long batches": {**LLAMA_FACTORY, "adam_beta2": 0.95},
    "sampling as usual": {**GRPO, "trl": {"num_generations": 4, "temperature": 0.9}},
    "steps, and no epochs": {**LLAMA_FACTORY, "max_steps": 200, "num_train_epochs": 0.01},
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_was_published_is_in_range(name: str, tmp_path: Path) -> None:
    assert said(NEAR_MISSES[name], tmp_path) == []


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_settings_are_in_range(name: str, tmp_path: Path) -> None:
    assert said(HEALTHY[name], tmp_path) == []


def test_a_run_of_few_steps_is_found(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"messages": []}\n' * 400, encoding="utf-8")
    settings = {
        **AXOLOTL,
        **LORA,
        "datasets": [{"path": str(rows), "type": "chat_template"}],
        "sample_packing": None,
    }
    (found,) = said({**settings, "gradient_accumulation_steps": 128, "val_set_size": 0}, tmp_path)
    assert "6 optimizer steps in the whole run" in found[1]
    assert said({**settings, "val_set_size": 0}, tmp_path) == []
    rows.write_text('{"messages": []}\n' * 52, encoding="utf-8")
    (found,) = said({**settings, "gradient_accumulation_steps": 32, "val_set_size": 0}, tmp_path)
    assert "3 optimizer steps in the whole run" in found[1]
    rows.write_text('{"messages": []}\n' * 8, encoding="utf-8")
    assert said({**settings, "val_set_size": 0}, tmp_path) == []


def test_a_limit_on_steps_that_leaves_rows_unseen_is_found(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"messages": []}\n' * 20_000, encoding="utf-8")
    settings = {
        **AXOLOTL,
        **LORA,
        "datasets": [{"path": str(rows), "type": "chat_template"}],
        "sample_packing": None,
        "val_set_size": 0,
    }
    (found,) = said({**settings, "max_steps": 60}, tmp_path)
    assert "max_steps ends the run after 480 of 20,000 rows" in found[1]
    assert said({**settings, "max_steps": 600}, tmp_path) == []
    # More steps than a trial has: only who asks for epochs too means to see the rows.
    rows.write_text('{"messages": []}\n' * 40_000, encoding="utf-8")
    (found,) = said({**settings, "num_epochs": 3, "max_steps": 600}, tmp_path)
    assert "the epochs that are set do not count" in found[1]
    without = {key: value for key, value in settings.items() if key != "num_epochs"}
    assert said({**without, "max_steps": 600}, tmp_path) == []


@pytest.mark.parametrize(
    ("split", "count"),
    [("train[:100]", 1), ("train", 0), ("train[:400]", 0), ("train[50:]", 0), ("train[:50%]", 0)],
)
def test_a_slice_of_axolotl_leaves_rows_out(split: str, count: int, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"messages": []}\n' * 400, encoding="utf-8")
    data = {"path": str(rows), "type": "chat_template", "split": split}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**AXOLOTL, **LORA, "datasets": [data]}), encoding="utf-8")
    found = run_rules(read_config(path), [find_rule("rows-left-out-by-limit")]).findings
    assert len(found) == count
    assert all("leaves 300 of 400 rows out" in finding.message for finding in found)


CALLS = {
    "optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, eps=1.0)": "updates vanish",
    "optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, betas=(0.9, 1.0))": "refuses",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.0)": "multiplied by 0",
    "accelerator.clip_grad_norm_(model.parameters(), 0)": "multiplied by 0",
    "model = get_peft_model(model, LoraConfig(r=256, lora_alpha=1))": "0.0039",
    "model.generate(**inputs, max_new_tokens=9, no_repeat_ngram_size=3)": "may come twice",
    "model.generate(**inputs, max_new_tokens=9, repetition_penalty=1.5)": "divided",
    "model.generate(**inputs, max_new_tokens=9, do_sample=True, temperature=0.0)": "refuses",
    "GenerationConfig(min_new_tokens=256)": "may stop before",
    "SamplingParams(max_tokens=256, ignore_eos=True)": "ignores stop tokens",
    "optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, eps=1e-6, weight_decay=0.1)": "",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)": "",
    "model = get_peft_model(model, LoraConfig(r=64, lora_alpha=16))": "",
    "model.generate(**inputs, max_new_tokens=9, repetition_penalty=1.1)": "",
    "model.generate(**inputs, max_new_tokens=9, do_sample=False, temperature=0.0)": "",
    "SamplingParams(max_tokens=256, temperature=0, ignore_eos=False)": "",
}
SCRIPT = """import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GenerationConfig
from vllm import SamplingParams

model = AutoModelForCausalLM.from_pretrained("model")
"""


@pytest.mark.parametrize("call", CALLS)
def test_arguments_of_calls_are_judged(call: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"{SCRIPT}{call}\n", encoding="utf-8")
    names = ("argument-out-of-range", "generation-settings-distort-answers")
    found = lint([str(path)], select=names).findings
    assert len(found) == bool(CALLS[call])
    assert all(CALLS[call] in finding.message for finding in found)


def test_rows_of_the_table_belong_to_rules() -> None:
    known = {rule.name() for rule in all_rules()}
    assert {limit.rule for limit in LIMITS} <= known
    assert all(limit.source and limit.fix for limit in LIMITS)
