"""Whatever stands under a key that a reader maps, the answer is a Config or a SpecError with the file's line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from truetune.errors import SpecError
from truetune.settings.stacks import read_axolotl_yaml, read_llama_factory_settings, read_trl_yaml
from truetune.settings.stacks.config_draft import SHARED_FIELDS
from truetune.settings.stacks.read_config_of_any_stack import read_config

WEIRD: tuple[Any, ...] = (
    [], {}, "", "x", -1, None, [1], [None], [{"a": 1}], {"a": {}}, True, float("inf"), [[["a"]]], "\0", "**x/*.y",
    [{"path": "x", "type": 3, "data_files": {"a": [1]}}], [{"path": None}],
)  # fmt: skip
BASES = {
    "axolotl": {
        "base_model": "m",
        "datasets": [{"path": "x"}],
        "sequence_len": 9,
        "adapter": "lora",
        "rl": "dpo",
    },
    "llama-factory": {
        "model_name_or_path": "m",
        "stage": "dpo",
        "cutoff_len": 8,
        "finetuning_type": "lora",
    },
    "trl": {
        "model_name_or_path": "m",
        "use_peft": True,
        "assistant_only_loss": False,
        "dataset_name": "x",
    },
}
COMMON = {"fsdp", "fsdp_config", "deepspeed", "gradient_checkpointing_kwargs"}
KEYS = {
    "axolotl": (
        {*read_axolotl_yaml.FIELD_KEYS.values(), *read_axolotl_yaml.LORA_KEYS.values(), *COMMON}
        | {
            "datasets",
            "test_datasets",
            "special_tokens",
            "tokens",
            "trl",
            "chat_template",
            "chat_template_kwargs",
        }
        | {
            "lora_target_modules",
            "peft_trainable_token_indices",
            "dpo_loss_type",
            "bf16",
            "sequence_len",
            "rl",
        }
    ),
    "llama-factory": (
        {
            *read_llama_factory_settings.FIELD_KEYS.values(),
            *read_llama_factory_settings.LORA_KEYS.values(),
            *COMMON,
        }
        | {
            "dataset",
            "dataset_dir",
            "eval_dataset",
            "stage",
            "template",
            "cutoff_len",
            "lora_target",
            "add_tokens",
        }
    ),
    "trl": (
        {*SHARED_FIELDS & read_trl_yaml.trl_keys(), *COMMON}
        | {
            "datasets",
            "dataset_name",
            "model_init_kwargs",
            "dataset_kwargs",
            "loss_type",
            "max_length",
            "lora_r",
            "dtype",
        }
    ),
}


@pytest.mark.parametrize("stack", BASES)
def test_a_config_or_an_error_with_its_line(stack: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for key in sorted(KEYS[stack]):
        for value in WEIRD:
            path.write_text(yaml.safe_dump({**BASES[stack], key: value}))
            said = refusal(path)
            assert said is None or "config.yaml:" in said, (key, value)


def refusal(path: Path) -> str | None:
    try:
        read_config(path)
    except SpecError as error:
        return str(error)
    return None
