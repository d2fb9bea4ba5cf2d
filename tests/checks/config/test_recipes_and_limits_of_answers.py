"""torchtune recipes that do not fit their weights, steps that come too late, and limits on what is generated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.config.settings import TRL
from truetune.checks.config.generation_limit_below_answers import GenerationLimitBelowAnswers
from truetune.checks.config.recipe_builds_another_model_release import (
    RecipeBuildsAnotherModelRelease,
)
from truetune.checks.config.steps_beyond_the_run import StepsBeyondTheRun
from truetune.checks.config.template_writes_no_marks import TemplateWritesNoMarks
from truetune.checks.rule import ConfigRule
from truetune.settings.stacks.read_config_of_any_stack import read_config

MODELS = "torchtune.models."
LONG = "A bakery sells forty rolls in the first hour and half as many in each later one. " * 50


def recipe(builder: str, tokenizer: str, folder: str, **more: Any) -> dict[str, Any]:
    """A recipe of torchtune with a chat data set."""
    return {
        "model": {"_component_": MODELS + builder, "lora_attn_modules": ["q_proj"], "lora_rank": 8},
        "tokenizer": {"_component_": MODELS + tokenizer, "path": f"{folder}/tokenizer.model"},
        "checkpointer": {
            "_component_": "torchtune.training.FullModelHFCheckpointer",
            "checkpoint_dir": folder,
        },
        "dataset": {
            "_component_": "torchtune.datasets.chat_dataset",
            "source": "json",
            "data_files": "rows.jsonl",
        },
        "batch_size": 2,
        "epochs": 1,
        **more,
    }


def count(folder: Path, kind: type[ConfigRule], settings: dict[str, Any]) -> int:
    """How many findings a rule has on settings."""
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    rule = kind(read_config(path))
    return 0 if rule.unmet() else len(list(rule.findings()))


@pytest.mark.parametrize(
    ("builder", "name", "expected"),
    [
        ("llama3.lora_llama3_8b", "Llama-3.1-8B-Instruct", 1),
        ("llama3.lora_llama3_8b", "Meta-Llama-3-8B-Instruct", 0),
        ("llama3_1.lora_llama3_1_8b", "Meta-Llama-3-8B", 1),
        ("llama3_1.lora_llama3_1_8b", "Llama-3.1-8B", 0),
        ("llama3_3.lora_llama3_3_70b", "Llama-3.3-70B-Instruct", 0),
        ("llama3.lora_llama3_8b", "our-checkpoint", 0),
        ("qwen2_5.lora_qwen2_5_7b_instruct", "Llama-3.1-8B", 0),
    ],
)
def test_builders_by_the_name_of_the_weights(
    tmp_path: Path, builder: str, name: str, expected: int
) -> None:
    settings = recipe(builder, "llama3.llama3_tokenizer", f"/models/{name}")
    assert count(tmp_path, RecipeBuildsAnotherModelRelease, settings) == expected


@pytest.mark.parametrize(("scaling", "expected"), [({"factor": 8.0}, 1), (None, 0)])
def test_builders_by_the_config_of_the_weights(
    tmp_path: Path, scaling: dict[str, float] | None, expected: int
) -> None:
    (tmp_path / "ours").mkdir()
    about = {"model_type": "llama", "vocab_size": 128256, "rope_scaling": scaling}
    (tmp_path / "ours/config.json").write_text(json.dumps(about), encoding="utf-8")
    settings = recipe("llama3.lora_llama3_8b", "llama3.llama3_tokenizer", str(tmp_path / "ours"))
    assert count(tmp_path, RecipeBuildsAnotherModelRelease, settings) == expected


@pytest.mark.parametrize(
    ("tokenizer", "template", "name", "expected"),
    [
        ("gemma.gemma_tokenizer", "default", "gemma-2-9b-it", 1),
        ("gemma.gemma_tokenizer", {"user": ["<start_of_turn>user\n", "<end_of_turn>\n"]}, "gemma-2-9b-it", 0),
        ("gemma.gemma_tokenizer", "default", "gemma-2-9b", 0),
        ("mistral.mistral_tokenizer", "default", "Mistral-7B-Instruct-v0.3", 0),
        ("mistral.mistral_tokenizer", None, "Mistral-7B-Instruct-v0.3", 1),
        ("llama3.llama3_tokenizer", None, "Llama-3.1-8B-Instruct", 0),
    ],
)  # fmt: skip
def test_tokenizers_of_torchtune_without_marks(
    tmp_path: Path, tokenizer: str, template: Any, name: str, expected: int
) -> None:
    settings = recipe("gemma2.lora_gemma2_9b", tokenizer, f"/models/{name}")
    if template != "default":
        settings["tokenizer"]["prompt_template"] = template
    assert count(tmp_path, TemplateWritesNoMarks, settings) == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"fake_quant_after_n_steps": 1000}, 1),
        ({"fake_quant_after_n_steps": 5}, 0),
        ({"fake_quant_after_n_steps": None}, 0),
        ({"run_val_every_n_steps": 100}, 1),
        ({"run_val_every_n_steps": 10}, 0),
    ],
)
def test_steps_after_which_something_begins(
    tmp_path: Path, more: dict[str, Any], expected: int
) -> None:
    row = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    (tmp_path / "rows.jsonl").write_text((json.dumps(row) + "\n") * 40, encoding="utf-8")
    settings = recipe("llama3_1.llama3_1_8b", "llama3.llama3_tokenizer", "/models/x", **more)
    assert count(tmp_path, StepsBeyondTheRun, settings) == expected


@pytest.mark.parametrize(
    ("solution", "limit", "expected"),
    [(LONG, None, 1), (LONG, 4096, 0), ("72", None, 0), (LONG, 256, 1)],
)
def test_completions_of_grpo(
    tmp_path: Path, solution: str, limit: int | None, expected: int
) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    line = json.dumps({"prompt": "How many rolls?", "solution": solution}) + "\n"
    (rows / "train.jsonl").write_text(line * 10, encoding="utf-8")
    settings = {
        **{
            key: value
            for key, value in TRL.items()
            if key not in ("max_length", "assistant_only_loss")
        },
        "dataset_name": str(rows),
        "num_generations": 8,
        "reward_funcs": ["accuracy_reward"],
        **({"max_completion_length": limit} if limit else {}),
    }
    assert count(tmp_path, GenerationLimitBelowAnswers, settings) == expected
