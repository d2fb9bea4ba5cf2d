"""A saved folder beside the checkpoints and the adapter of its training: what differs is named, and likes are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.checks.pages.checkpoint import write
from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checks.checkpoint.saved_folder_unlike_its_training import (
    SavedFolderUnlikeItsTraining,
)

FILE = "model.safetensors"
ADAPTER = "adapter_model.safetensors"


def messages(folder: Path, base: Path | None = None) -> list[str]:
    """What the rule says of a folder."""
    checkpoint = read_checkpoint(folder, base=base)
    return [finding.message for finding in SavedFolderUnlikeItsTraining(checkpoint).findings()]


def trained(folder: Path, step: int) -> dict[str, Any]:
    """Weights of a training after some steps, saved as a numbered checkpoint beside a folder."""
    path = write({"llama": 2, "tokens": {}}, folder / f"checkpoint-{step}") / FILE
    rng = np.random.default_rng(7)
    tensors = {
        name: (values + rng.normal(size=values.shape) * 1e-5 * step).astype(np.float32)
        for name, values in load_file(path).items()
    }
    save_file(tensors, path)
    return tensors


def export(folder: Path, tensors: dict[str, Any], tokens: dict[str, int] | None = None) -> Path:
    """A folder that is given away, with these weights."""
    path = write({"llama": 2, "tokens": tokens or {}}, folder / "export")
    save_file(tensors, path / FILE)
    return path


@pytest.mark.parametrize(
    ("part", "says"),
    [(0.02, "2.0% of what checkpoint-300 changed"), (0.5, ""), (0.97, ""), (1.0, "")],
)
def test_averages(tmp_path: Path, part: float, says: str) -> None:
    base = write({"llama": 2}, tmp_path / "base")
    start, last = load_file(base / FILE), trained(tmp_path, 300)
    average = {name: start[name] + np.float32(part) * (last[name] - start[name]) for name in start}
    found = messages(export(tmp_path, average), base)
    assert found == [] if not says else says in found[0]


def test_another_training_is_no_part_of_this_one(tmp_path: Path) -> None:
    base = write({"llama": 2}, tmp_path / "base")
    trained(tmp_path, 300)
    rng = np.random.default_rng(8)
    other = {
        name: (values + rng.normal(size=values.shape) * 1e-4).astype(np.float32)
        for name, values in load_file(base / FILE).items()
    }
    assert messages(export(tmp_path, other), base) == []


@pytest.mark.parametrize("steps", [(100, 300), (300, 300)])
def test_files_of_two_checkpoints(tmp_path: Path, steps: tuple[int, int]) -> None:
    weights = {step: trained(tmp_path, step) for step in (100, 300)}
    folder = export(tmp_path, weights[300])
    (folder / FILE).unlink()
    names = sorted(weights[300])
    table: dict[str, str] = {}
    for number, (step, part) in enumerate(zip(steps, (names[:9], names[9:]), strict=True), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: weights[step][name] for name in part}, folder / file)
        table |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": table}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    found = messages(folder)
    assert len(found) == (steps[0] != steps[1])
    assert all("of 2 checkpoints" in message for message in found)


def test_template_and_ids_of_another_folder(tmp_path: Path) -> None:
    weights = trained(tmp_path, 300)
    (tmp_path / "checkpoint-300" / "chat_template.jinja").write_text("{{ messages }}", "utf-8")
    folder = export(tmp_path, weights)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    (message,) = messages(folder)
    assert "the weights are those of checkpoint-300, but the chat template" in message
    # An older checkpoint may have had another one.
    save_file({name: values + 1 for name, values in weights.items()}, folder / FILE)
    assert messages(folder) == []


@pytest.mark.parametrize(
    ("own", "count"), [({"lora_alpha": 8}, 1), ({"use_rslora": False}, 1), ({"lora_alpha": 64}, 0)]
)
def test_scaling_of_an_adapter(tmp_path: Path, own: dict[str, Any], count: int) -> None:
    settings = {"lora_alpha": 64, "use_rslora": True}
    write({"lora": ["q_proj"], "adapter_config": settings}, tmp_path / "checkpoint-100")
    edited = {**settings, **own}
    folder = write({"lora": ["q_proj"], "adapter_config": edited}, tmp_path / "final")
    assert len(messages(folder)) == count
    # Another training's adapter was drawn by itself, and has settings of its own.
    tensors = load_file(folder / ADAPTER)
    rng = np.random.default_rng(3)
    drawn = {
        name: rng.normal(size=values.shape).astype(np.float32) for name, values in tensors.items()
    }
    save_file(drawn, folder / ADAPTER)
    assert messages(folder) == []
