"""The release that a project asks for decides what is said of its trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.detect_trainer_and_apply_facts import DetectedTrainers, trainer_facts_of_run
from truetune.settings.run_spec import RunSpec
from truetune.trainers import TrainerFacts

SCRIPT = """
from trl import SFTTrainer
SFTTrainer(model="m", train_dataset=rows).train()
"""


def facts_beside(folder: Path, requirements: str, script: str = SCRIPT) -> TrainerFacts:
    (folder / "requirements.txt").write_text(requirements, encoding="utf-8")
    (folder / "train.py").write_text(script, encoding="utf-8")
    (folder / ".git").mkdir()
    found = DetectedTrainers(sources=[str(folder)])
    return trainer_facts_of_run(found.apply_to_run(RunSpec()))


@pytest.mark.parametrize(
    ("requirements", "called"),
    [
        ("trl==0.24.0\n", "TRL 0.24.0 (judged as 1.16.0) SFTTrainer"),
        ("trl<0.25\n", "TRL <0.25 (judged as 1.16.0) SFTTrainer"),
        ("trl==1.16.0\n", "TRL 1.16.0 SFTTrainer"),
        ("trl>=0.20\n", "TRL 1.16.0 SFTTrainer"),
        ("peft==0.17.1\n", "TRL 1.16.0 SFTTrainer"),
    ],
)
def test_the_pinned_release_is_said(requirements: str, called: str, tmp_path: Path) -> None:
    assert facts_beside(tmp_path, requirements).name_in_reports == called


def test_what_earlier_releases_did(tmp_path: Path) -> None:
    facts = facts_beside(tmp_path, "trl==0.15.2\n")
    assert facts.cut.value.setting == "max_seq_length"
    assert facts.learns.value.by_default["prompt-completion"] is None
    assert facts.learns.value.by_default["chat"] == "all"


def test_unsloth_of_a_notebook(tmp_path: Path) -> None:
    script = "# !pip install unsloth==2025.11.3\nfrom unsloth import FastLanguageModel\n"
    script += "model, tok = FastLanguageModel.from_pretrained('m')\n" + SCRIPT
    assert facts_beside(tmp_path, "", script).name_in_reports.startswith(
        "Unsloth 2025.11.3 (judged as "
    )
