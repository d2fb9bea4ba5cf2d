"""Keys of DeepSpeed's settings that are where nothing reads them, and settings of which all are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.config.settings import AXOLOTL, LLAMA_FACTORY, TRL
from truetune.checks.config.deepspeed_key_not_read import DeepspeedKeyNotRead
from truetune.checks.findings import Finding
from truetune.settings.stacks.read_config_of_any_stack import read_config

CHECKPOINTING = {"activation_checkpointing": {"partition_activations": True}}
PUBLISHED = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "communication_data_type": "fp32",
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "steps_per_print": 10,
    "wall_clock_breakdown": False,
    "fp16": {"enabled": "auto", "loss_scale": 0, "hysteresis": 2},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "zero_optimization": {"stage": 3, "overlap_comm": True, "offload_optimizer": {"device": "cpu"}},
}


def _findings(
    folder: Path, run: Mapping[str, Any], deepspeed: Mapping[str, Any], **settings: Any
) -> list[Finding]:
    """What the rule says of a run with these settings of DeepSpeed."""
    (folder / "ds.json").write_text(json.dumps(deepspeed, indent=1), encoding="utf-8")
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**run, "deepspeed": "ds.json", **settings}), encoding="utf-8")
    return list(DeepspeedKeyNotRead(read_config(path)).findings())


@pytest.mark.parametrize(
    ("key", "value", "block"),
    [
        ("stage3_gather_16bit_weights_on_model_save", True, "zero_optimization"),
        ("cpu_offload", True, "zero_optimization"),
        ("loss_scale", 0, "fp16"),
        ("cpu_checkpointing", True, "activation_checkpointing"),
    ],
)
def test_keys_outside_of_their_block(key: str, value: object, block: str, tmp_path: Path) -> None:
    (found,) = _findings(tmp_path, TRL, {**PUBLISHED, key: value})
    assert f"ds.json has {key} at its top level" in found.message
    assert found.remedy == f"move it into the {block} block"


def test_several_keys_of_one_block_are_one_finding(tmp_path: Path) -> None:
    misplaced = {"overlap_comm": True, "contiguous_gradients": True}
    (found,) = _findings(tmp_path, TRL, {**PUBLISHED, **misplaced})
    assert found.remedy == "move them into the zero_optimization block"


def test_settings_that_are_read(tmp_path: Path) -> None:
    assert not _findings(tmp_path, TRL, PUBLISHED)


@pytest.mark.parametrize(
    ("run", "switch", "line"),
    [
        (TRL, {"gradient_checkpointing": False}, "gradient_checkpointing: true"),
        (AXOLOTL, {"gradient_checkpointing": False}, "gradient_checkpointing: true"),
        (
            LLAMA_FACTORY,
            {"disable_gradient_checkpointing": True},
            "disable_gradient_checkpointing: false",
        ),
    ],
)
def test_a_block_for_activations_that_nothing_calls(
    run: dict[str, Any], switch: dict[str, bool], line: str, tmp_path: Path
) -> None:
    (found,) = _findings(tmp_path, run, {**PUBLISHED, **CHECKPOINTING}, **switch)
    assert found.remedy == f"set {line} in the run's settings, and remove the block"


@pytest.mark.parametrize("run", [TRL, LLAMA_FACTORY])
def test_checkpointing_is_on_where_nothing_is_set(run: dict[str, Any], tmp_path: Path) -> None:
    assert not _findings(tmp_path, run, {**PUBLISHED, **CHECKPOINTING})


@pytest.mark.parametrize(
    ("stage", "block", "device", "expected"),
    [
        (2, "offload_param", "cpu", "ZeRO supports it from stage 3 on, and the stage is 2"),
        (0, "offload_optimizer", "cpu", "ZeRO supports it from stage 1 on, and the stage is 0"),
        (None, "offload_optimizer", "nvme", "and the stage is 0"),
        (2, "offload_optimizer", "cpu", ""),
        (3, "offload_param", "cpu", ""),
        (2, "offload_param", "none", ""),
    ],
)
def test_offloads_that_the_stage_does_not_have(
    stage: int | None, block: str, device: str, expected: str, tmp_path: Path
) -> None:
    zero: dict[str, Any] = {block: {"device": device}}
    if stage is not None:
        zero["stage"] = stage
    found = _findings(tmp_path, TRL, {**PUBLISHED, "zero_optimization": zero})
    assert [expected in one.message for one in found] == [True] * bool(expected)
