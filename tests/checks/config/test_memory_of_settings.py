"""Settings that cost memory: checkpointing that is switched off, packed rows in a large batch, eager attention."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.findings import Finding
from truetune.settings.run_spec import RunSpec

FACTORY = """
stage: sft
do_train: true
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
finetuning_type: lora
dataset: support
template: qwen
output_dir: out
"""
AXOLOTL = """
base_model: meta-llama/Llama-3.1-8B-Instruct
datasets: [{path: some/rows, type: chat_template}]
adapter: lora
"""
TRL = """
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", packing=PACKING, max_length=16384, per_device_train_batch_size=BATCH)
SFTTrainer(model="Qwen/Qwen2.5-7B", args=args, train_dataset=rows).train()
"""


def found(folder: Path, name: str, text: str, code: str) -> list[Finding]:
    """What a rule says of a file."""
    (folder / name).write_text(text, encoding="utf-8")
    return [one for one in check_paths([folder / name], RunSpec()).findings if one.code == code]


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ("cutoff_len: 4096\ndisable_gradient_checkpointing: true\n", 1),
        ("cutoff_len: 2048\ndisable_gradient_checkpointing: true\n", 1),
        ("cutoff_len: 1024\ndisable_gradient_checkpointing: true\n", 0),
        ("cutoff_len: 4096\ndisable_gradient_checkpointing: false\n", 0),
        ("cutoff_len: 4096\n", 0),
    ],
)
def test_checkpointing_that_is_switched_off(tmp_path: Path, settings: str, count: int) -> None:
    findings = found(tmp_path, "sft.yaml", FACTORY + settings, "CFG130")
    assert [one.severity for one in findings] == ["info"] * count


def test_axolotl_checkpoints_only_where_it_is_told_to(tmp_path: Path) -> None:
    text = AXOLOTL + "sequence_len: 8192\ngradient_checkpointing: false\n"
    assert found(tmp_path, "a.yaml", text, "CFG130") == []


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("a.yaml", AXOLOTL + "sequence_len: 16384\nsample_packing: true\nmicro_batch_size: 4\n", 1),
        ("a.yaml", AXOLOTL + "sequence_len: 32768\nsample_packing: true\nmicro_batch_size: 2\n", 1),
        ("sft.yaml", FACTORY + "cutoff_len: 16384\npacking: true\nper_device_train_batch_size: 4\n", 1),
        ("train.py", TRL.replace("PACKING", "True").replace("BATCH", "4"), 1),
        ("a.yaml", AXOLOTL + "sequence_len: 16384\nsample_packing: true\nmicro_batch_size: 1\n", 0),
        ("a.yaml", AXOLOTL + "sequence_len: 4096\nsample_packing: true\nmicro_batch_size: 8\n", 0),
        ("a.yaml", AXOLOTL + "sequence_len: 16384\nmicro_batch_size: 4\n", 0),
        ("train.py", TRL.replace("PACKING", "False").replace("BATCH", "4"), 0),
    ],
)  # fmt: skip
def test_packed_rows_in_a_large_batch(tmp_path: Path, name: str, text: str, count: int) -> None:
    assert len(found(tmp_path, name, text, "CFG131")) == count


def test_eager_attention_is_quoted_as_it_is_written(tmp_path: Path) -> None:
    text = FACTORY + "cutoff_len: 32768\nflash_attn: disabled\n"
    (finding,) = found(tmp_path, "sft.yaml", text, "CFG102")
    assert finding.cases[0].text == "flash_attn: disabled"
    assert finding.remedy.startswith("set flash_attn to sdpa")
