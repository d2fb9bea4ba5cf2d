"""The base of a saved model among the folders beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checkpoint.find_base_model_in_nearby_folders import SavedModel, find_base_beside

QWEN = {"model_type": "qwen2", "hidden_size": 48, "num_hidden_layers": 2, "intermediate_size": 96}


def _model(folder: Path, name: str, **changes: Any) -> Path:
    path = folder / name
    path.mkdir()
    (path / "config.json").write_text(json.dumps({**QWEN, **changes}))
    return path


def _found(path: Path, recorded: str | None = None, **given: Any) -> Path | None:
    saved = SavedModel(path, recorded, QWEN, is_adapter=False, tensor_sizes=frozenset({48}))
    return find_base_beside(saved._replace(**given))


@pytest.mark.parametrize("name", ["base", "base_model", "qwen-base", "original", "pretrained"])
def test_a_folder_says_that_it_is_the_base(name: str, tmp_path: Path) -> None:
    base = _model(tmp_path, name)
    assert _found(_model(tmp_path, "tuned")) == base


@pytest.mark.parametrize("name", ["database", "out", "sft", "baseline-run"])
def test_other_folders_are_no_base(name: str, tmp_path: Path) -> None:
    _model(tmp_path, name)
    assert _found(_model(tmp_path, "tuned")) is None


def test_a_base_has_no_base(tmp_path: Path) -> None:
    _model(tmp_path, "original")
    assert _found(_model(tmp_path, "base")) is None


def test_of_two_bases_none_is_taken(tmp_path: Path) -> None:
    _model(tmp_path, "base")
    _model(tmp_path, "original")
    assert _found(_model(tmp_path, "tuned")) is None


def test_another_architecture_is_not_compared(tmp_path: Path) -> None:
    _model(tmp_path, "base", hidden_size=64)
    tuned = _model(tmp_path, "tuned")
    assert _found(tuned) is None
    assert _found(tuned, config={}, is_adapter=True) is None


def test_the_recorded_name_comes_first(tmp_path: Path) -> None:
    _model(tmp_path, "base")
    recorded = _model(tmp_path, "Qwen2.5-0.5B")
    assert _found(_model(tmp_path, "tuned"), "Qwen/Qwen2.5-0.5B") == recorded


def test_a_tuned_model_continues_the_published_name(tmp_path: Path) -> None:
    published = _model(tmp_path, "qwen2.5-0.5b")
    assert _found(_model(tmp_path, "qwen2.5-0.5b-sft")) == published
    # A second run continues the name of the first, and is not made of it.
    _model(tmp_path, "run")
    assert _found(_model(tmp_path, "run-2")) is None


def test_an_adapter_is_no_base(tmp_path: Path) -> None:
    base = _model(tmp_path, "base")
    (base / "adapter_config.json").write_text("{}")
    assert _found(_model(tmp_path, "tuned")) is None


def test_a_config_that_is_no_json_is_passed_over(tmp_path: Path) -> None:
    (_model(tmp_path, "base") / "config.json").write_text("{")
    assert _found(_model(tmp_path, "tuned")) is None


def test_a_base_beside_the_folder_of_outputs(tmp_path: Path) -> None:
    base = _model(tmp_path, "base")
    (tmp_path / "out").mkdir()
    assert _found(_model(tmp_path / "out", "merged")) == base
