"""Models of which most tensors never moved: found, unless that was meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from truetune.checkpoint.read_run_and_check_checkpoints import RECORD_FORMAT
from truetune.checks.weight_diff_report import movement

LAYERS = 9
KINDS = ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "mlp.down_proj")
NAMES = (
    "model.embed_tokens.weight",
    *(f"model.layers.{i}.{kind}.weight" for i in range(LAYERS) for kind in KINDS),
    "model.norm.weight",
)
"""38 tensors"""


def saved(folder: Path, moved: Any, run: dict[str, Any] | None = None) -> Path:
    """A model with a base beside it, of which the tensors for which `moved` says so are others."""
    rng = np.random.default_rng(0)
    base = {
        name: rng.normal(0, 0.02, (8,) if "norm" in name else (8, 8)).astype(np.float32)
        for name in NAMES
    }
    model = {name: value + (0.01 if moved(name) else 0.0) for name, value in base.items()}
    for part, tensors in (("base", base), ("model", model)):
        (folder / part).mkdir()
        (folder / part / "config.json").write_text('{"model_type": "llama"}')
        save_file(
            {name: np.asarray(value, np.float32) for name, value in tensors.items()},
            folder / part / "model.safetensors",
        )
    if run is not None:
        (folder / "model" / "run.json").write_text(json.dumps(run))
    return folder / "model"


def found(folder: Path, moved: Any, run: dict[str, Any] | None = None) -> dict[str, str]:
    report = movement(saved(folder, moved, run), base=folder / "base")
    return {finding.rule: str(finding.severity) for finding in report.findings}


@pytest.mark.parametrize(
    ("moved", "severity"),
    [
        (lambda name: name == "model.norm.weight", "warning"),  # 37 of 38 stay
        (lambda name: name == "model.embed_tokens.weight", "warning"),
        (lambda name: "norm" in name or name == "model.layers.3.mlp.up_proj.weight", "warning"),
        (
            lambda name: "embed" in name or "q_proj" in name,
            "info",
        ),  # all of a kind, as they are frozen on purpose
        (
            lambda name: "norm" in name or ".layers.8." in name or ".layers.7." in name,
            "info",
        ),  # the last layers
    ],
)
def test_unmoved_tensors_are_found(tmp_path: Path, moved: Any, severity: str) -> None:
    assert found(tmp_path, moved)["most-weights-never-moved"] == severity


@pytest.mark.parametrize(
    "moved",
    [
        lambda name: True,
        lambda name: False,  # weights-equal-the-base
        lambda name: "norm" not in name,
        lambda name: "q_proj" in name,  # an adapter was merged
        lambda name: "k_proj" not in name,  # fewer than half
    ],
)
def test_what_was_meant_or_is_another_finding(tmp_path: Path, moved: Any) -> None:
    assert "most-weights-never-moved" not in found(tmp_path, moved)


def test_a_record_of_an_adapter_explains_it(tmp_path: Path) -> None:
    run = {"format": RECORD_FORMAT, "method": "lora", "settings": {"training": {"lora": {"r": 8}}}}
    assert "most-weights-never-moved" not in found(
        tmp_path, lambda name: name == "model.norm.weight", run
    )
