"""`truetune movement BEFORE AFTER`, as people type it, beside the form with --base."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from truetune.cli import truetune_group
from truetune.errors import UsageError

CONFIG = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 4}


def _model(folder: Path, shift: float) -> str:
    """A folder with one tensor."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    weights = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8) + np.float32(shift)
    name = "model.layers.0.self_attn.q_proj.weight"
    save_file({name: weights}, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


@pytest.mark.parametrize("shift", [0.0, 0.01])
def test_two_folders_are_before_and_after(shift: float, tmp_path: Path) -> None:
    before, after = _model(tmp_path / "before", 0.0), _model(tmp_path / "after", shift)
    plain = CliRunner().invoke(truetune_group, ["movement", before, after, "--format", "json"])
    named = CliRunner().invoke(
        truetune_group, ["movement", after, "--base", before, "--format", "json"]
    )
    assert plain.exit_code == named.exit_code
    found, expected = (
        [one["code"] for one in json.loads(run.stdout)["findings"]] for run in (plain, named)
    )
    assert found == expected
    assert ("CKP016" in found) == (shift == 0)


@pytest.mark.parametrize("more", [["--base", "x"], ["third"]])
def test_folders_that_contradict(more: list[str], tmp_path: Path) -> None:
    before, after = _model(tmp_path / "before", 0.0), _model(tmp_path / "after", 0.01)
    run = CliRunner().invoke(truetune_group, ["movement", before, after, *more])
    assert isinstance(run.exception, UsageError)
    assert "expected truetune movement BEFORE AFTER" in str(run.exception)
