"""Quantization-aware trainings whose output is quantized in the same form, or in another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import truetune

RULE = "quantized-otherwise-than-trained"
TRAINING: dict[str, Any] = {
    "base_model": "some/model",
    "datasets": [{"path": "rows.jsonl", "type": "chat_template"}],
    "sequence_len": 2048,
    "micro_batch_size": 2,
    "num_epochs": 1,
    "output_dir": "./outputs/qat",
}
TRAINED = {"activation_dtype": "int8", "weight_dtype": "int4", "group_size": 256}


@pytest.mark.parametrize(
    ("trained", "model", "quantized", "named"),
    [
        (TRAINED, "outputs/qat", {"weight_dtype": "int4", "group_size": 32}, ("group_size",)),
        (TRAINED, "outputs/qat", {"weight_dtype": "int8"}, ("weight_dtype",)),
        (TRAINED, "./outputs/qat", dict(TRAINED), ()),
        # What a file leaves out has a default that depends on the release.
        (TRAINED, "outputs/qat", {"weight_dtype": "int4"}, ()),
        (TRAINED, "outputs/other", {"group_size": 32}, ()),
        (None, "outputs/qat", {"group_size": 32}, ()),
        # Two names of one type.
        ({"weight_dtype": "fp8"}, "outputs/qat", {"weight_dtype": "float8_e4m3fn"}, ()),
    ],
)
def test_quantizations(
    trained: Any, model: str, quantized: Any, named: tuple[str, ...], tmp_path: Path
) -> None:
    settings = TRAINING if trained is None else {**TRAINING, "qat": trained}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    other = {"base_model": model, "quantization": quantized, "output_dir": "outputs/int4"}
    (tmp_path / "quantize.yaml").write_text(yaml.safe_dump(other), encoding="utf-8")
    report = truetune.check([str(tmp_path / "train.yaml")], trained_by="axolotl")
    messages = [one.message for one in report.findings if one.rule == RULE]
    assert [all(key in message for key in named) for message in messages] == [True] * bool(named)


@pytest.mark.parametrize(("group_size", "is_named"), [(32, True), (256, False)])
def test_a_file_that_quantizes_its_output_folder(
    group_size: int, is_named: bool, tmp_path: Path
) -> None:
    """`axolotl quantize FILE` loads from the file's output_dir where the command names no model."""
    settings = {**TRAINING, "qat": TRAINED}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    other = {**TRAINING, "quantization": {"weight_dtype": "int4", "group_size": group_size}}
    (tmp_path / "quantize.yaml").write_text(yaml.safe_dump(other), encoding="utf-8")
    report = truetune.check([str(tmp_path / "train.yaml")], trained_by="axolotl")
    assert (RULE in {one.rule for one in report.findings}) is is_named
