"""Modules that an adapter trained whole and that equal the base's: found, unless one value moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from truetune.checks.weight_diff_report import movement

Tensors = dict[str, NDArray[np.float32]]
RNG = np.random.default_rng(0)
EMBEDDING = RNG.normal(0, 0.02, (512, 8)).astype(np.float32)
HEAD = RNG.normal(0, 0.02, (3, 8)).astype(np.float32)
BASE: Tensors = {
    "model.embed_tokens.weight": EMBEDDING,
    "model.layers.0.self_attn.q_proj.weight": RNG.normal(0, 0.02, (8, 8)).astype(np.float32),
    "score.weight": HEAD,
}
PAIR = "base_model.model.model.layers.0.self_attn.q_proj"
# Training moves the rows of tokens that occurred, and no others.
ONE_ROW = EMBEDDING.copy()
ONE_ROW[300] += 0.01


def _rules_found(folder: Path, saved: Tensors, named: Any, pair: float = 0.01) -> set[str]:
    """The rules that fire on an adapter with these whole tensors."""
    for part in ("base", "adapter"):
        (folder / part).mkdir()
    (folder / "base" / "config.json").write_text('{"model_type": "llama"}')
    save_file(BASE, folder / "base" / "model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "modules_to_save": named}
    config["target_modules"] = ["q_proj"]
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    tensors: Tensors = {
        f"{PAIR}.lora_A.weight": np.full((2, 8), 0.1, np.float32),
        f"{PAIR}.lora_B.weight": np.full((8, 2), pair, np.float32),
        **{f"base_model.model.{name}": value for name, value in saved.items()},
    }
    save_file(tensors, folder / "adapter" / "adapter_model.safetensors")
    report = movement(folder / "adapter", base=folder / "base")
    return {finding.rule for finding in report.findings}


@pytest.mark.parametrize(
    ("saved", "named", "is_found"),
    [
        ({"score.weight": HEAD}, ["classifier", "score"], True),
        ({"score.weight": HEAD + np.float32(1e-4)}, ["classifier", "score"], False),
        ({"model.embed_tokens.weight": EMBEDDING}, ["embed_tokens"], True),
        ({"model.embed_tokens.weight": ONE_ROW}, ["embed_tokens"], False),
        # peft saves an embedding of its own accord where its size may have changed.
        ({"model.embed_tokens.weight": EMBEDDING}, None, False),
        # Another shape: the base's head has another number of classes.
        ({"score.weight": HEAD[:2].copy()}, ["score"], False),
    ],
)
def test_saved_modules(tmp_path: Path, saved: Tensors, named: Any, is_found: bool) -> None:
    assert ("weights-equal-the-base" in _rules_found(tmp_path, saved, named)) is is_found


def test_one_cause_where_nothing_was_trained(tmp_path: Path) -> None:
    found = _rules_found(tmp_path, {"score.weight": HEAD}, ["score"], pair=0.0)
    assert "adapter-file-empty" in found
    assert "weights-equal-the-base" not in found
