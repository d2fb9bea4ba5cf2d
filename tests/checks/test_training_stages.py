"""Stages beside each other: does the later one start from what the earlier one writes?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import truetune

LORA = {
    "model_name_or_path": "some/model",
    "do_train": True,
    "finetuning_type": "lora",
    "dataset": "rows",
    "template": "llama3",
    "learning_rate": 1e-5,
}
FROM_SFT = {"adapter_name_or_path": "saves/sft", "create_new_adapter": True}


def found(folder: Path, merged: str | None, dpo: dict[str, Any]) -> dict[str, Any]:
    """The findings on stages of a folder with an SFT, a DPO, and a merge."""
    stages = {
        "sft.yaml": {**LORA, "stage": "sft", "output_dir": "saves/sft"},
        "dpo.yaml": {**LORA, "stage": "dpo", "output_dir": "saves/dpo", **dpo},
    }
    if merged is not None:
        stages["merge.yaml"] = {
            "model_name_or_path": "some/model",
            "adapter_name_or_path": merged,
            "template": "llama3",
            "finetuning_type": "lora",
            "export_dir": "models/final",
        }
    for name, settings in stages.items():
        (folder / name).write_text(yaml.safe_dump(settings), encoding="utf-8")
    report = truetune.check([str(folder / name) for name in stages], select=["CFG046", "CFG065"])
    return {finding.code: finding for finding in report.findings}


@pytest.mark.parametrize(
    ("merged", "dpo", "codes"),
    [
        ("saves/dpo", {}, {"CFG065"}),
        (None, {}, {"CFG065"}),
        ("saves/sft", {}, {"CFG046", "CFG065"}),
        ("saves/sft,saves/dpo", FROM_SFT, set()),
        ("saves/dpo", FROM_SFT, {"CFG046"}),
        ("saves/dpo", {"adapter_name_or_path": "saves/sft"}, set()),
        (None, {"model_name_or_path": "models/sft-merged"}, set()),
        (None, {"model_name_or_path": "other/model"}, set()),
    ],
)
def test_a_preference_run_beside_an_sft(
    merged: str | None, dpo: dict[str, Any], codes: set[str], tmp_path: Path
) -> None:
    assert set(found(tmp_path, merged, dpo)) == codes


def test_the_edit_is_of_the_stage(tmp_path: Path) -> None:
    finding = found(tmp_path, "saves/dpo", {})["CFG065"]
    assert "adapter_name_or_path: saves/sft and create_new_adapter: true" in finding.remedy
    assert finding.cases[0].file == str(tmp_path / "dpo.yaml")


@pytest.mark.parametrize(("start", "is_told"), [("some/model", True), ("out/sft", False)])
def test_commands_of_one_script(start: str, is_told: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        "trl sft --model_name_or_path some/model --dataset_name rows --output_dir out/sft\n"
        f"trl dpo --model_name_or_path {start} --dataset_name pairs --output_dir out/dpo\n"
    )
    codes = {finding.code for finding in truetune.check(str(path), select="CFG065").findings}
    assert codes == ({"CFG065"} if is_told else set())


SFT_SCRIPT = """
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("some/model")
SFTTrainer(model, train_dataset=rows, args=SFTConfig("out/sft", learning_rate=1e-4)).train()
"""
DPO_SCRIPT = """
from peft import AutoPeftModelForCausalLM, PeftModel
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer
{load}
DPOTrainer(model=model, train_dataset=rows, args=DPOConfig(output_dir="out/dpo", learning_rate=5e-6)).train()
"""
BASE = 'model = AutoModelForCausalLM.from_pretrained("some/model")\n'


@pytest.mark.parametrize(
    ("load", "is_told"),
    [
        (BASE, True),
        (BASE + 'model = PeftModel.from_pretrained(model, "out/sft", is_trainable=True)', False),
        (BASE + 'SFT = "out/sft"\nmodel = PeftModel.from_pretrained(model, SFT).merge_and_unload()', False),
        (BASE + 'model.load_adapter("out/sft")', False),
    ],
)  # fmt: skip
def test_a_script_that_loads_the_adapter_of_the_sft(
    load: str, is_told: bool, tmp_path: Path
) -> None:
    (tmp_path / "sft.py").write_text(SFT_SCRIPT, encoding="utf-8")
    (tmp_path / "dpo.py").write_text(DPO_SCRIPT.format(load=load), encoding="utf-8")
    report = truetune.check([str(tmp_path / "sft.py"), str(tmp_path / "dpo.py")], select=["CFG065"])
    assert [one.code for one in report.findings] == ["CFG065"] * is_told
