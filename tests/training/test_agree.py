"""`init`, `check` and `train` of one file say the same: what the check finds is what stops the training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.parts import folder
from truetune.checks.check_paths import check_paths
from truetune.checks.reports import DataReport, Report
from truetune.cli import truetune_group
from truetune.demo import DATA, TOKENIZER
from truetune.settings.read_truetune_settings import find_own_settings_and_file, validate_settings
from truetune.settings.run_spec import RunSpec

pytest.importorskip("torch")
FAMILIES = (
    "smollm2",
    "qwen2.5-instruct",
    "llama3-instruct",
    "deepseek-v3",
    "gpt2",
    "phi3",
    "gemma3",
)


def both(path: Path) -> tuple[Report, Report]:
    """What `truetune check` and `truetune train` say of a settings file before the first step."""
    from truetune.training.preflight_checks import check_settings_and_data
    from truetune.training.progress_listeners import SilentListener
    from truetune.training.training_recipe import make_recipe

    given, source = find_own_settings_and_file(str(path), path.parent)
    spec = validate_settings(given, str(path))
    return check_paths((), spec, settings=source), check_settings_and_data(
        make_recipe(spec, rows=None, gpu=False, bf16=False).spec, SilentListener()
    )


def said(report: Report) -> set[tuple[str, str, str]]:
    return {(finding.rule, finding.severity, finding.message) for finding in report.findings}


def settings_of(model: Path, data: Path, where: Path, *more: str) -> Path:
    path = where / "truetune.yaml"
    arguments = ["init", str(path), "--model", str(model), "--data", str(data), "--yes", *more]
    result = CliRunner().invoke(truetune_group, arguments)
    assert result.exit_code == 0, result.output
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_of_what_init_writes(family: str, tmp_path: Path) -> None:
    checked, trained = both(settings_of(folder(family), DATA, tmp_path))
    assert said(checked) == said(trained)
    assert checked.failed() == trained.failed()
    assert isinstance(checked, DataReport)
    assert isinstance(trained, DataReport)
    assert checked.learned is not None
    assert checked.learned.trainer == "truetune"
    assert checked.learned == trained.learned


@pytest.mark.parametrize("recipe", ["sft", "lora", "dora"])
def test_of_each_recipe(recipe: str, tmp_path: Path) -> None:
    checked, trained = both(settings_of(folder("smollm2"), DATA, tmp_path, "--recipe", recipe))
    assert said(checked) == said(trained)


SPOILED: dict[str, dict[str, Any]] = {
    "pad is eos": {"tokenizer_config.json": {"pad_token": "<|im_end|>"}},
    "no pad": {"tokenizer_config.json": {"pad_token": None}},
    "pads on the left": {"tokenizer_config.json": {"padding_side": "left"}},
    "another stop": {"generation_config.json": {"eos_token_id": 0}},
    "cuts by itself": {"tokenizer.json": {"truncation": {"direction": "Right", "max_length": 5,
                                                         "strategy": "LongestFirst", "stride": 0}}},
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILED)
@pytest.mark.parametrize("limit", [None, 60])
def test_of_a_spoiled_tokenizer(name: str, limit: int | None, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for path in TOKENIZER.iterdir():
        if path.name != "special_tokens_map.json":
            edit = SPOILED[name].get(path.name)
            raw = path.read_bytes()
            if edit is not None:
                raw = json.dumps(
                    {k: v for k, v in {**json.loads(raw), **edit}.items() if v is not None}
                ).encode()
            (model / path.name).write_bytes(raw)
    given = {"model": str(model), "tokenizer": str(model), "data": str(DATA), "max_length": limit}
    (tmp_path / "truetune.yaml").write_text(json.dumps(given))
    checked, trained = both(tmp_path / "truetune.yaml")
    assert said(checked) == said(trained)
    assert not checked.failed()


def test_another_trainers_file_is_not_trained(tmp_path: Path) -> None:
    from truetune.errors import UsageError
    from truetune.training.training_recipe import make_recipe

    with pytest.raises(UsageError, match="trained_by: trl is another trainer"):
        make_recipe(RunSpec(trained_by="trl"), rows=None, gpu=False, bf16=False)
