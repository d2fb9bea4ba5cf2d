"""Settings that are off, scales, groups, patterns, weights times a number: each fault is named, and its like is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.checks.pages.checkpoint import findings, write
from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checks.checkpoint.config_describes_another_model import ConfigDescribesAnotherModel
from truetune.checks.checkpoint.few_tensors_unlike_the_base import FewTensorsUnlikeTheBase
from truetune.checks.checkpoint.lora_targets_half_matched import LoraTargetsHalfMatched
from truetune.checks.checkpoint.model_settings_differ_from_base import ModelSettingsDifferFromBase
from truetune.checks.checkpoint.resume_state_missing import ResumeStateMissing
from truetune.checks.rule import Rule

OFF = "base: {llama: 2, config: {sliding_window: 256, use_sliding_window: false}}"
WINDOW = "llama: 2\nconfig: {sliding_window: 256"
PATTERN = "lora: [q_proj]\nadapter_config:"
GPTQ = "{bits: 4, group_size: 8, desc_act: false, quant_method: gptq}"
PACKED = f"""
llama: 1
config: {{quantization_config: {GPTQ}}}
tensors:
  model.layers.0.self_attn.q_proj.qweight: {{shape: [2, 16]}}
  model.layers.0.self_attn.q_proj.scales: {{shape: [2, 16]}}
"""
FILE = "files: {quantize_config.json: "
CASES: tuple[tuple[type[Rule[Any]], str, str], ...] = (
    (ModelSettingsDifferFromBase, f"{WINDOW}}}\n{OFF}", "sliding_window"),
    (ModelSettingsDifferFromBase, f"{WINDOW}, use_sliding_window: false}}\n{OFF}", ""),
    (LoraTargetsHalfMatched, f"{PATTERN} {{alpha_pattern: {{attention.wq: 64}}}}", "attention.wq"),
    (LoraTargetsHalfMatched, f"{PATTERN} {{rank_pattern: {{q_proj: 8}}}}", ""),
    (LoraTargetsHalfMatched, f"{PATTERN} {{alpha_pattern: {{'.*wq': 64}}}}", ""),
    (ConfigDescribesAnotherModel, PACKED, ""),
    (ConfigDescribesAnotherModel, PACKED.replace("size: 8", "size: 16"), "groups of 8"),
    (ConfigDescribesAnotherModel, f"{PACKED}{FILE}{{desc_act: true}}}}", "desc_act"),
    (ConfigDescribesAnotherModel, f"{PACKED}{FILE}{GPTQ}}}", ""),
)


@pytest.mark.parametrize(("rule", "text", "says"), CASES)
def test_facts(rule: type[Rule[Any]], text: str, says: str, tmp_path: Path) -> None:
    found = [finding.message for finding in findings(rule, text, tmp_path)]
    if says:
        assert any(says in message for message in found)
    else:
        assert found == []


@pytest.mark.parametrize(("cap", "count"), [("null", 1), ("50.0", 0)])
def test_caps_of_gemma2(tmp_path: Path, cap: str, count: int) -> None:
    folder = write({"llama": 1}, tmp_path / "tuned")
    config = f'{{"model_type": "gemma2", "attn_logit_softcapping": {cap}}}'
    (folder / "config.json").write_text(config, encoding="utf-8")
    rule = ConfigDescribesAnotherModel(read_checkpoint(folder))
    assert sum("soft caps" in finding.message for finding in rule.findings()) == count


@pytest.mark.parametrize(("factor", "count"), [(1.2, 1), (0.8, 1), (1.01, 0)])
def test_all_weights_times_one_number(tmp_path: Path, factor: float, count: int) -> None:
    base = write({"llama": 2}, tmp_path / "base")
    tuned = write({"llama": 2}, tmp_path / "tuned")
    weights = load_file(tuned / "model.safetensors")
    save_file(
        {name: values * np.float32(factor) for name, values in weights.items()},
        tuned / "model.safetensors",
    )
    rule = FewTensorsUnlikeTheBase(read_checkpoint(tuned, base=base))
    assert sum("times" in finding.message for finding in rule.findings()) == count


@pytest.mark.parametrize(("tag", "count"), [("global_step5", 1), ("global_step10", 0)])
def test_tag_of_deepspeed(tmp_path: Path, tag: str, count: int) -> None:
    state = {"global_step": 10, "max_steps": 100}
    folder = write({"llama": 1, "trainer_state": state}, tmp_path / "checkpoint-10")
    (folder / "global_step10").mkdir()
    (folder / "latest").write_text(tag, encoding="utf-8")
    rule = ResumeStateMissing(read_checkpoint(folder))
    assert sum("latest" in finding.message for finding in rule.findings()) == count
