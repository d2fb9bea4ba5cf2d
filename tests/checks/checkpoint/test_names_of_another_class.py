"""An adapter whose names are those of another class of the same model fits nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checks.checkpoint.adapter_keys_do_not_match import AdapterKeysDoNotMatch

MODULE = "layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("of_base", "of_adapter", "severity"),
    [
        # What peft 0.21 loads with transformers 5.23: see LOADABLE_TEXT_PREFIXES.
        ("model.language_model.", "model.", "error"),
        ("language_model.model.", "model.", "error"),
        ("language_model.model.", "model.language_model.", "info"),
        ("model.language_model.", "language_model.model.", "info"),
        ("model.language_model.", "model.language_model.", None),
    ],
)
def test_names_under_prefixes(
    tmp_path: Path, of_base: str, of_adapter: str, severity: str | None
) -> None:
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    for folder in (base, adapter):
        folder.mkdir()
    (base / "config.json").write_text(json.dumps({"text_config": {}, "vision_config": {}}))
    save_file(
        {f"{of_base}{MODULE}.weight": np.zeros((8, 8), np.float32)}, base / "model.safetensors"
    )
    name = f"base_model.model.{of_adapter}{MODULE}"
    factors = {
        f"{name}.lora_A.weight": np.zeros((2, 8), np.float32),
        f"{name}.lora_B.weight": np.zeros((8, 2), np.float32),
    }
    save_file(factors, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2}))
    found = tuple(AdapterKeysDoNotMatch(read_checkpoint(adapter, base=base)).findings())
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    if severity == "error":
        assert found[0].evidence
