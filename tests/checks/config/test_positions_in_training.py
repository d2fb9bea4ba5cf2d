"""Positions that a training scales, and files that use its adapter with them or without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

FACTORY = """model_name_or_path: me/base
stage: sft
do_train: true
finetuning_type: lora
dataset: rows
template: llama3
cutoff_len: 32768
output_dir: saves/long
"""
EXPORT = """model_name_or_path: me/base
adapter_name_or_path: saves/long
template: llama3
finetuning_type: lora
export_dir: models/long
"""
AXOLOTL = """base_model: me/base
datasets: [{path: some/rows, type: alpaca}]
sequence_len: 32768
micro_batch_size: 1
num_epochs: 1
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
output_dir: out/long
"""
OVERRIDE = "overrides_of_model_config:\n  rope_scaling: {type: yarn, factor: 4.0}\n"
TRAIN = """from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
SCALING = {"rope_type": "linear", "factor": 4.0}
model = AutoModelForCausalLM.from_pretrained("me/base"%s)
SFTTrainer(model, SFTConfig(output_dir="out/long"), rows, peft_config=LoraConfig(r=8)).train()
"""
MERGE = """from peft import PeftModel
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained("me/base"%s)
PeftModel.from_pretrained(base, "out/long").merge_and_unload().save_pretrained("merged")
"""
OWN_ROTARY = """
class Rotary:
    def __init__(self):
        self.rope_theta = 500.0
"""
LINEAR = {"rope_type": "linear", "factor": 4.0}


def config(scaling: object, positions: int = 8192) -> str:
    return json.dumps(
        {"model_type": "llama", "max_position_embeddings": positions, "rope_scaling": scaling}
    )


def found(folder: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    report = check_paths([str(folder)], RunSpec())
    return [one.message for one in report.findings if one.code == "CFG111"]


@pytest.mark.parametrize(
    "files",
    [
        {"sft.yaml": FACTORY + "rope_scaling: linear\n", "merge.yaml": EXPORT},
        {
            "sft.yaml": FACTORY + "rope_scaling: yarn\n",
            "merge.yaml": EXPORT,
            "models/long/config.json": config(None),
        },
        {
            "sft.yaml": FACTORY + "rope_scaling: linear\n",
            "merge.sh": "llamafactory-cli export --model_name_or_path me/base --adapter_name_or_path saves/long"
            " --template llama3 --finetuning_type lora --export_dir models/long\n",
        },
        {
            "sft.yaml": AXOLOTL + OVERRIDE,
            "serve.sh": "vllm serve me/base --enable-lora --lora-modules long=out/long\n",
        },
        {"train.py": TRAIN % ", rope_scaling=SCALING", "merge.py": MERGE % ""},
        {
            "train.py": (TRAIN % "").replace("SFTTrainer(m", "model.config.rope_scaling = SCALING\nSFTTrainer(m"),
            "merge.py": MERGE % "",
        },
        # the base's own scaling is in the merged model
        {
            "sft.yaml": FACTORY + "rope_scaling: linear\n",
            "merge.yaml": EXPORT,
            "models/long/config.json": config({"rope_type": "llama3", "factor": 8.0}),
        },
    ],
)  # fmt: skip
def test_the_adapter_is_used_without_the_scaling_of_its_training(
    tmp_path: Path, files: dict[str, str]
) -> None:
    (one,) = found(tmp_path, files)
    assert "the adapter was trained with rope_scaling" in one


@pytest.mark.parametrize(
    "files",
    [
        {"sft.yaml": FACTORY, "merge.yaml": EXPORT},
        {"sft.yaml": FACTORY + "rope_scaling: linear\n", "merge.yaml": EXPORT + "rope_scaling: linear\n"},
        {"sft.yaml": FACTORY + "rope_scaling: none\n", "merge.yaml": EXPORT},
        # somebody wrote it into the merged model
        {
            "sft.yaml": FACTORY + "rope_scaling: linear\n",
            "merge.yaml": EXPORT,
            "models/long/config.json": config(LINEAR, 32768),
        },
        # rows that fit: LLaMA-Factory leaves the scaling out
        {
            "sft.yaml": FACTORY.replace("32768", "4096") + "rope_scaling: linear\n",
            "merge.yaml": EXPORT,
            "models/long/config.json": config(None),
        },
        # another run's adapter
        {
            "sft.yaml": FACTORY + "rope_scaling: linear\n",
            "merge.yaml": EXPORT.replace("saves/long", "saves/short"),
        },
        {
            "sft.yaml": AXOLOTL + OVERRIDE,
            "serve.sh": "vllm serve me/base --enable-lora --lora-modules long=out/long"
            ' --hf-overrides \'{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}\'\n',
        },
        {
            "sft.yaml": FACTORY + "rope_scaling: linear\n",
            "merge.yaml": EXPORT,
            "serve.sh": "vllm serve models/long"
            ' --rope-scaling \'{"rope_type": "linear", "factor": 4.0}\'\n',
        },
        {"train.py": TRAIN % ", rope_scaling=SCALING", "merge.py": MERGE % ", rope_scaling=SCALING"},
        {"train.py": TRAIN % "", "merge.py": MERGE % ""},
        {"train.py": TRAIN % "" + OWN_ROTARY, "merge.py": MERGE % ""},
    ],
)  # fmt: skip
def test_the_same_positions(tmp_path: Path, files: dict[str, str]) -> None:
    assert not found(tmp_path, files)
