"""An adapter whose own base lies beside the one that it is put on: other weights are told from another name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.checks.pages.checkpoint import write
from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checks.checkpoint.adapter_on_another_base import AdapterOnAnotherBase

MODULE = "model.layers.0.self_attn.q_proj.weight"


def _found(folder: Path, own: dict[str, Any], named: str = "sft") -> list[str]:
    """Severities of what the rule says of an adapter on `base` whose record names another model."""
    write({"llama": 2}, folder / "base")
    if own:
        write({"llama": 2, **own}, folder / "sft")
    adapter = write(
        {"lora": ["q_proj"], "adapter_config": {"base_model_name_or_path": named}}, folder / "a"
    )
    rule = AdapterOnAnotherBase(read_checkpoint(adapter, base=folder / "base"))
    return [finding.severity for finding in rule.findings()]


@pytest.mark.parametrize(
    ("own", "severities"),
    [
        ({"tensors": {MODULE: {"add": 0.01}}}, ["warning"]),
        ({"tensors": {MODULE: {"seed": 1}}}, ["warning"]),
        ({"tensors": {MODULE: {"fill": "zero"}}}, ["warning"]),
        ({"tensors": {"model.layers.1.mlp.up_proj.weight": {"add": 0.1}}}, ["info"]),
        ({"tensors": {"lm_head.weight": {"rows": {3: 0.0}}}}, ["info"]),
        ({"config": {"_name_or_path": "copy"}}, ["info"]),
        ({}, ["info"]),
    ],
)
def test_weights_decide(own: dict[str, Any], severities: list[str], tmp_path: Path) -> None:
    assert _found(tmp_path, own) == severities


def test_the_base_by_its_whole_path(tmp_path: Path) -> None:
    assert _found(tmp_path, {}, named=str(tmp_path / "base")) == []


@pytest.mark.parametrize(("factor", "severities"), [(1.0, ["info"]), (1.02, ["warning"])])
def test_weights_in_another_format(factor: float, severities: list[str], tmp_path: Path) -> None:
    _found(tmp_path, {"config": {"dtype": "float16"}})
    file = tmp_path / "sft" / "model.safetensors"
    tensors = {name: (factor * one).astype(np.float16) for name, one in load_file(file).items()}
    save_file(tensors, file)
    rule = AdapterOnAnotherBase(read_checkpoint(tmp_path / "a", base=tmp_path / "base"))
    assert [finding.severity for finding in rule.findings()] == severities
