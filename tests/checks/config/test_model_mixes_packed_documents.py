"""Packing for models that do not keep documents apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from truetune.checks.judge_settings import judge_settings
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_config_of_any_stack import read_config

RULE = "model-mixes-packed-documents"
TRL: dict[str, Any] = {"dataset_name": "some/rows", "packing": True}
LLAMA_FACTORY: dict[str, Any] = {
    "stage": "sft", "do_train": True, "dataset": "rows", "finetuning_type": "lora", "neat_packing": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "model", "part"),
    [
        (TRL, "openai/gpt-oss-20b", "ignores the positions"),
        ({**TRL, "attn_implementation": "eager"}, "openai/gpt-oss-20b", "ignores the positions"),
        (TRL, "state-spaces/mamba-130m-hf", "take no borders"),
        (TRL, "ai21labs/AI21-Jamba-Mini-1.7", "take no borders"),
        (TRL, "ibm-granite/granite-4.0-h-tiny", "ignores the positions"),
        (LLAMA_FACTORY, "LiquidAI/LFM2-1.2B", "get no borders"),
        (LLAMA_FACTORY, "Qwen/Qwen3.5-9B", "get no borders"),
    ],
)
def test_a_model_that_mixes_is_named(
    tmp_path: Path, settings: dict[str, Any], model: str, part: str
) -> None:
    (found,) = _findings(tmp_path, settings, model)
    assert found.severity == "warning"
    assert part in found.message


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        (
            {**TRL, "attn_implementation": "kernels-community/vllm-flash-attn3"},
            "openai/gpt-oss-20b",
        ),
        ({**TRL, "packing": False}, "openai/gpt-oss-20b"),
        (TRL, "LiquidAI/LFM2-1.2B"),
        (TRL, "Qwen/Qwen3.5-9B"),
        (TRL, "Qwen/Qwen3-8B"),
        ({**TRL, "packing_strategy": "wrapped"}, "openai/gpt-oss-20b"),
        (LLAMA_FACTORY, "openai/gpt-oss-20b"),
        ({**LLAMA_FACTORY, "neat_packing": False}, "LiquidAI/LFM2-1.2B"),
    ],
)
def test_others_are_left_alone(tmp_path: Path, settings: dict[str, Any], model: str) -> None:
    assert _findings(tmp_path, settings, model) == []


def test_axolotl_packs_by_rules_of_its_own(tmp_path: Path) -> None:
    """It patches Falcon-H1 so that packed documents stay apart."""
    path = tmp_path / "axolotl.yaml"
    settings = {
        "base_model": "tiiuae/Falcon-H1-1.5B-Base",
        "datasets": [{"path": "some/rows", "type": "alpaca"}],
        "adapter": "lora",
        "micro_batch_size": 2,
        "sample_packing": True,
    }
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    report = judge_settings(read_config(path), RunSpec(select=(RULE,)))
    assert list(report.findings) == []


@pytest.mark.parametrize(
    ("asked", "count"), [("==5.23.0", 1), ("==5.10.0", 1), (">=5.24", 0), ("", 1)]
)
def test_a_release_after_the_measurement_is_not_judged(
    tmp_path: Path, asked: str, count: int
) -> None:
    if asked:
        (tmp_path / "requirements.txt").write_text(f"transformers{asked}\n", encoding="utf-8")
    assert len(_findings(tmp_path, TRL, "openai/gpt-oss-20b")) == count


def _findings(folder: Path, settings: dict[str, Any], model: str) -> list[Any]:
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump({"model_name_or_path": model, **settings}), encoding="utf-8")
    judgement = judge_settings(read_config(path), RunSpec(select=(RULE,)))
    return list(judgement.findings)
