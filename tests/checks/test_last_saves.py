"""The last save of a sharded training, and blocks of accelerate's configuration that nothing reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

SCRIPT = """
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer("some/model", SFTConfig("out", max_length=2048), train_dataset=rows{more})
trainer.train()
{before}
trainer.save_model("out/last")
"""
FSDP = """distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_state_dict_type: {kind}
num_processes: 8
"""
ZERO = """distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: {stage}
  zero3_save_16bit_model: {gathers}
num_processes: 8
"""
WHOLE = 'trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")'


def codes(folder: Path, accelerate: str, script: str, after: str = "") -> list[str]:
    """The codes of what is found in a launch of a script by accelerate."""
    (folder / "train.py").write_text(script, encoding="utf-8")
    (folder / "acc.yaml").write_text(accelerate, encoding="utf-8")
    command = f"accelerate launch --config_file acc.yaml train.py\n{after}\n"
    (folder / "run.sh").write_text(command, encoding="utf-8")
    report = lint([folder / "run.sh"], select=["CMD009", "CMD191"])
    return [found.code for found in report.findings]


def script(before: str = "", more: str = "") -> str:
    """The training script, with a line before its last save."""
    return SCRIPT.format(before=before, more=more)


@pytest.mark.parametrize(
    ("accelerate", "text", "after", "expected"),
    [
        (FSDP.format(kind="SHARDED_STATE_DICT"), script(), "", ["CMD191"]),
        (FSDP.format(kind="LOCAL_STATE_DICT"), script(), "", ["CMD191"]),
        (FSDP.format(kind="FULL_STATE_DICT"), script(), "", []),
        (FSDP.format(kind="SHARDED_STATE_DICT"), script(WHOLE), "", []),
        (FSDP.format(kind="SHARDED_STATE_DICT"), script(), "accelerate merge-weights out whole", []),
        (FSDP.format(kind="SHARDED_STATE_DICT"), script().replace("trainer.save_model", "print"), "", []),
        (ZERO.format(stage=3, gathers="false"), script(), "", ["CMD191"]),
        (ZERO.format(stage=3, gathers="true"), script(), "", []),
        (ZERO.format(stage=2, gathers="false"), script(), "", []),
        (ZERO.format(stage=3, gathers="false"), script(more=", peft_config=lora"), "", []),
    ],
)  # fmt: skip
def test_the_last_save(
    tmp_path: Path, accelerate: str, text: str, after: str, expected: list[str]
) -> None:
    assert codes(tmp_path, accelerate, text, after) == expected


@pytest.mark.parametrize(
    ("accelerate", "expected"),
    [
        (FSDP.format(kind="FULL_STATE_DICT").replace(": FSDP", ": MULTI_GPU"), ["CMD009"]),
        (FSDP.format(kind="FULL_STATE_DICT").replace(": FSDP", ": NO"), ["CMD009"]),
        (ZERO.format(stage=2, gathers="true").replace(": DEEPSPEED", ": MULTI_GPU"), ["CMD009"]),
        ("distributed_type: MULTI_GPU\nfsdp_config: {}\ndeepspeed_config: {}\nnum_processes: 8\n", []),
        (FSDP.format(kind="FULL_STATE_DICT") + "mixed_precision: bf16\nfp8_config: {backend: TE}\n", ["CMD009"]),
        (FSDP.format(kind="FULL_STATE_DICT") + "mixed_precision: fp8\nfp8_config: {backend: TE}\n", []),
        (
            FSDP.format(kind="FULL_STATE_DICT").replace(
                "num_proc", "  fsdp_version: 2\n  fsdp_sharding_strategy: SHARD_GRAD_OP\nnum_proc"
            ),
            ["CMD009"],
        ),
        (
            FSDP.format(kind="FULL_STATE_DICT").replace(
                "num_proc", "  fsdp_version: 2\n  fsdp_reshard_after_forward: false\nnum_proc"
            ),
            [],
        ),
    ],
)  # fmt: skip
def test_blocks_that_nothing_reads(tmp_path: Path, accelerate: str, expected: list[str]) -> None:
    assert codes(tmp_path, accelerate, script()) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("stage3_gather_16bit_weights_on_model_save", []),
        ("gather_16bit_weights_on_model_save", []),
        ("stage3_gather_fp16_weights_on_model_save", []),
        ("stage3_prefetch_bucket_size", ["CMD191"]),
    ],
)
def test_names_by_which_deepspeed_gathers(tmp_path: Path, name: str, expected: list[str]) -> None:
    """DeepSpeed reads the setting by three names."""
    (tmp_path / "ds.json").write_text(f'{{"zero_optimization": {{"stage": 3, "{name}": true}}}}')
    (tmp_path / "train.py").write_text(script(), encoding="utf-8")
    command = "deepspeed train.py --deepspeed ds.json --output_dir out\n"
    (tmp_path / "run.sh").write_text(command, encoding="utf-8")
    report = lint([tmp_path / "run.sh"], select=["CMD191"])
    assert [found.code for found in report.findings] == expected
