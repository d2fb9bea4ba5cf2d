"""FSDP with and without a policy by which it wraps layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

AXOLOTL = (
    "base_model: Qwen/Qwen3-8B\ndatasets: [{path: some/rows, type: alpaca}]\nsequence_len: 2048\n"
)
FACTORY = "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: full\ndataset: x\n"
SCRIPT = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")
args = TrainingArguments(output_dir="o", {})
Trainer(model=model, args=args, train_dataset=rows).train()
"""
LAYERS = "fsdp_config: {transformer_layer_cls_to_wrap: Qwen3DecoderLayer}\n"
LAUNCH = "distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"


def found(folder: Path, files: dict[str, str]) -> list[str]:
    """What the rule says of these files."""
    for name, text in files.items():
        (folder / name).write_text(text)
    findings = check_paths([folder], RunSpec()).findings
    return [one.message for one in findings if one.code == "CFG099"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", AXOLOTL + "fsdp: [full_shard]\n"),
        ("a.yaml", AXOLOTL + "fsdp: [full_shard]\n" + LAYERS),
        ("a.yaml", AXOLOTL + "fsdp_config: {auto_wrap_policy: NO_WRAP, fsdp_version: 2}\n"),
        ("f.yaml", FACTORY + "fsdp: full_shard offload\n"),
        ("train.py", SCRIPT.format('fsdp="full_shard"')),
        ("train.py", SCRIPT.format('fsdp=["hybrid_shard"]')),
    ],
)
def test_no_layer_is_wrapped(tmp_path: Path, name: str, text: str) -> None:
    assert len(found(tmp_path, {name: text})) == 1


@pytest.mark.parametrize(
    "files",
    [
        {"a.yaml": AXOLOTL + "fsdp: [full_shard, auto_wrap]\n" + LAYERS},
        {"a.yaml": AXOLOTL + "fsdp_config: {auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n"},
        {"a.yaml": AXOLOTL + "fsdp: [full_shard]\nfsdp_config: {min_num_params: 100000000}\n"},
        {"train.py": SCRIPT.format('fsdp="full_shard auto_wrap"')},
        {"train.py": SCRIPT.format('fsdp="shard_grad_op"')},
        {"train.py": SCRIPT.format('fsdp="full_shard", fsdp_config="fsdp.json"')},
        {"train.py": SCRIPT.format('fsdp="full_shard"'), "acc.yaml": LAUNCH},
        {"train.py": SCRIPT.format("bf16=True")},
    ],
)
def test_layers_are_wrapped_or_not_known_to_be_left(tmp_path: Path, files: dict[str, str]) -> None:
    assert found(tmp_path, files) == []


@pytest.mark.parametrize(
    ("release", "severities"),
    [("==4.57.1", ["warning"]), ("==5.9.0", ["warning"]), ("==5.10.0", []), ("", ["info"])],
)
def test_the_release_decides_whether_a_missing_policy_wraps(
    tmp_path: Path, release: str, severities: list[str]
) -> None:
    """transformers 5.10 and later wrap by the class of layers where no policy is named."""
    (tmp_path / "a.yaml").write_text(AXOLOTL + "fsdp: [full_shard]\n")
    if release:
        (tmp_path / "requirements.txt").write_text(f"transformers{release}\n")
    report = check_paths([tmp_path], RunSpec())
    assert [one.severity for one in report.findings if one.code == "CFG099"] == severities
