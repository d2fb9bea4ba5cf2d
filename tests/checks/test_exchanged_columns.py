"""Settings that name the column of answers as the prompt, and that of questions as the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from truetune.cli import truetune_group

FACTORY = (
    "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
    "dataset: desk\ntemplate: qwen\n"
)
AXOLOTL = (
    "base_model: m\nadapter: lora\ndatasets:\n  - path: desk.json\n    type:\n"
    "      field_instruction: {}\n      field_output: {}\n"
)
WRONG = (
    ("answer", "question"),
    ("output", "instruction"),
    ("model_answer", "user_question"),
    ("Antwort", "Frage"),
    ("reply", "query"),
)
RIGHT = (
    ("question", "answer"),
    ("answer", "summary"),
    ("context", "question"),
    ("text", "label"),
    ("answer", "answer_long"),
    ("instruction", "output"),
)


def _check(folder: Path, prompt: str, answer: str, settings: str) -> bool:
    rows = [
        {prompt: f"It is number {n}.", answer: f"Which number comes before {n + 1}?"}
        for n in range(12)
    ]
    (folder / "data").mkdir()
    for place in (folder / "desk.json", folder / "data" / "desk.json"):
        place.write_text(json.dumps(rows), encoding="utf-8")
    entry = {"file_name": "desk.json", "columns": {"prompt": prompt, "response": answer}}
    (folder / "data" / "dataset_info.json").write_text(
        json.dumps({"desk": entry}), encoding="utf-8"
    )
    path = folder / "train.yaml"
    path.write_text(settings, encoding="utf-8")
    output = CliRunner().invoke(truetune_group, ["check", str(path)]).stdout
    return "settings-exchange-prompt-and-answer" in output


@pytest.mark.parametrize("names", WRONG)
def test_exchanged_columns_are_told(names: tuple[str, str], tmp_path: Path) -> None:
    assert _check(tmp_path, *names, FACTORY)


@pytest.mark.parametrize("names", RIGHT)
def test_other_columns_are_left_alone(names: tuple[str, str], tmp_path: Path) -> None:
    assert not _check(tmp_path, *names, FACTORY)


@pytest.mark.parametrize(("names", "expected"), [(WRONG[0], True), (RIGHT[0], False)])
def test_columns_of_axolotl(names: tuple[str, str], expected: bool, tmp_path: Path) -> None:
    assert _check(tmp_path, *names, AXOLOTL.format(*names)) == expected
