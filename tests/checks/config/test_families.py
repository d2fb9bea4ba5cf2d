"""Templates by name against the tokenizers of real families."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import parts
from tests.checks.config import found
from tests.checks.config.settings import AXOLOTL, LLAMA_FACTORY, LORA

TEMPLATES = {
    "qwen2.5-instruct": "qwen", "qwen3": "qwen3", "llama3.1-instruct": "llama3", "gemma3": "gemma3", "gemma4": "gemma4",
    "mistral-7b-v0.3": "mistral", "phi3": "phi", "phi4": "phi4", "deepseek-v3": "deepseek3", "llama2-chat": "llama2",
    "smollm2": "smollm2",
}  # fmt: skip
"""Family -> LLaMA-Factory's name for its template"""
ENDS = {"gemma3": "<end_of_turn>", "gemma4": "<turn|>", "phi3": "<|end|>"}
"""Families whose turns do not end with their EOS"""


@pytest.mark.parametrize("family", TEMPLATES)
def test_only_another_familys_template_differs(family: str, tmp_path: Path) -> None:
    for name, own in (
        ("right", TEMPLATES[family]),
        ("wrong", "gemma" if family != "gemma3" else "llama3"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        config = {**LLAMA_FACTORY, "model_name_or_path": str(parts.folder(family)), "template": own}
        assert ("served-template-differs" in found(folder, config)) is (name == "wrong")


@pytest.mark.parametrize("family", TEMPLATES)
def test_axolotl_is_told_the_end_of_a_turn(family: str, tmp_path: Path) -> None:
    config = {**AXOLOTL, **LORA, "base_model": str(parts.folder(family))}
    findings = found(tmp_path, config).get("stop-token-not-trained", [])
    assert [finding.remedy for finding in findings] == (
        [f'set eot_tokens: ["{ENDS[family]}"]'] if family in ENDS else []
    )
    told = tmp_path / "told"
    told.mkdir()
    assert "stop-token-not-trained" not in found(
        told, {**config, "eot_tokens": [ENDS.get(family, "</s>")]}
    )
