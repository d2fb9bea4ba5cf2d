"""No rule speaks where nothing is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.config import found
from tests.checks.config.settings import HEALTHY


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_settings_are_left_alone(name: str, tmp_path: Path) -> None:
    assert found(tmp_path, HEALTHY[name]) == {}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_settings_are_left_alone_with_data_and_a_model(name: str, tmp_path: Path) -> None:
    layers = {
        f"model.layers.0.{part}.weight": [64, 64]
        for part in (
            *(
                f"self_attn.{name}"
                for name in ("q_proj", "k_proj", "v_proj", "o_proj", "g_proj", "Wqkv")
            ),
            *(f"mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")),
            "linear_attn.in_proj_qkv",
            "mixer.out_proj",
            "block_sparse_moe.w1",
        )
    }
    config = {
        key: {"some/model": "model", "some/rows": "rows.jsonl"}.get(str(value), value)
        for key, value in HEALTHY[name].items()
    }
    if "datasets" in config:
        config["datasets"] = [{**item, "path": "rows.jsonl"} for item in config["datasets"]]
    files = {
        # Its short rows fill few lines where they are packed: 4,000 make 23 steps, which is few, and said.
        "rows.jsonl": {"rows": 12_000 if config.get("packing") else 4_000},
        "model/config.json": {
            "model_type": "llama",
            "dtype": "bfloat16",
            "max_position_embeddings": 8192,
        },
    }
    weights = {
        "model": {"model.embed_tokens.weight": [32, 64], "lm_head.weight": [32, 64], **layers}
    }
    assert found(tmp_path, config, files=files, weights=weights) == {}
