"""Rows that are named beside a settings file are cut at its limit, whatever stack it was written for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.demo import TOKENIZER
from truetune.settings.run_spec import RunSpec

CUT = "truncation-cuts-the-terminator"
TORCHTUNE = """
model: {{_component_: torchtune.models.qwen2_5.lora_qwen2_5_0_5b}}
tokenizer: {{_component_: torchtune.models.qwen2_5.qwen2_5_tokenizer, max_seq_len: {limit}}}
dataset: {{_component_: torchtune.datasets.chat_dataset, source: some/rows}}
batch_size: 1
epochs: 1
"""
TRL = """
model_name_or_path: some/model
dataset_name: some/rows
max_length: {limit}
learning_rate: 2.0e-4
per_device_train_batch_size: 2
output_dir: out
"""
AXOLOTL = """
base_model: some/model
datasets: [{{path: some/rows, type: chat_template}}]
sequence_len: {limit}
adapter: lora
micro_batch_size: 2
learning_rate: 0.0002
"""
SCRIPT = """
from transformers import Trainer
trainer = Trainer(model=model, train_dataset=rows)
trainer.train()
"""


def found(folder: Path, files: dict[str, str], **settings: object) -> bool:
    """Are answers found to be cut, in rows of about 60 tokens beside these files?"""
    answer = " ".join(f"word{n}" for n in range(15))
    turns = [{"role": "user", "content": "Tell."}, {"role": "assistant", "content": answer}]
    rows = folder / "rows.jsonl"
    rows.write_text((json.dumps({"messages": turns}) + "\n") * 4, encoding="utf-8")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    paths = [*(str(folder / name) for name in files), str(rows)]
    spec = RunSpec.model_validate({"tokenizer": str(TOKENIZER), **settings})
    report = check_paths(paths, spec)
    return CUT in {finding.rule for finding in report.findings}


@pytest.mark.parametrize("settings", [TORCHTUNE, TRL, AXOLOTL], ids=["torchtune", "trl", "axolotl"])
@pytest.mark.parametrize(("limit", "is_cut"), [(24, True), (256, False)])
def test_rows_are_cut_at_the_limit_of_the_settings_beside_them(
    settings: str, limit: int, is_cut: bool, tmp_path: Path
) -> None:
    assert found(tmp_path, {"run.yaml": settings.format(limit=limit)}) == is_cut


def test_the_limit_of_the_user_comes_first(tmp_path: Path) -> None:
    files = {"run.yaml": TORCHTUNE.format(limit=24)}
    assert not found(tmp_path, files, max_length=256)


def test_settings_that_differ_and_those_of_another_trainer_set_no_limit(tmp_path: Path) -> None:
    two = {"a.yaml": TORCHTUNE.format(limit=24), "b.yaml": TORCHTUNE.format(limit=512)}
    other = {"a.yaml": TORCHTUNE.format(limit=24), "train.py": SCRIPT}
    for name, files in (("two", two), ("other", other)):
        (tmp_path / name).mkdir()
        assert not found(tmp_path / name, files)
