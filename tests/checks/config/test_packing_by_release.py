"""Packed rows of Axolotl with sdpa and eager attention, by the release that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import truetune

RUN = {
    "base_model": "some/model",
    "datasets": [{"path": "some/data", "type": "chat_template"}],
    "sequence_len": 2048,
    "sample_packing": True,
    "learning_rate": 1e-4,
}
CASES: dict[str, tuple[dict[str, Any], str, bool]] = {
    "older switch": ({"eager_attention": True, "flash_attention": False}, "", True),
    "older switch of sdpa": ({"sdp_attention": True}, "", True),
    "older release": ({"attn_implementation": "sdpa"}, "axolotl==0.16.1", True),
    "older releases": ({"sdp_attention": True}, "axolotl[deepspeed]<0.17", True),
    "older, eager": ({"attn_implementation": "eager"}, "axolotl~=0.15.0", True),
    "no release": ({"attn_implementation": "sdpa"}, "", False),
    "newer release": ({"sdp_attention": True}, "axolotl>=0.18.0", False),
    "flash": ({"flash_attention": True}, "axolotl==0.16.1", False),
    "flex": ({"flex_attention": True}, "axolotl==0.16.1", False),
    "not packed": ({"eager_attention": True, "sample_packing": False}, "", False),
}


@pytest.mark.parametrize("name", CASES)
def test_attention_of_packed_rows(name: str, tmp_path: Path) -> None:
    more, requirement, is_found = CASES[name]
    (tmp_path / "requirements.txt").write_text(f"{requirement}\n", encoding="utf-8")
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({**RUN, **more}), encoding="utf-8")
    found = [one.rule for one in truetune.check(path).findings]
    assert ("packing-cross-contamination" in found) == is_found
