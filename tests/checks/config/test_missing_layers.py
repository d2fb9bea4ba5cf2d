"""Settings that choose layers by number, for models that have them and for others."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

AXOLOTL = """base_model: {model}
datasets: [{{path: some/rows, type: alpaca}}]
sequence_len: 2048
micro_batch_size: 2
num_epochs: 2
learning_rate: 0.00001
"""
ADAPTER = "adapter: lora\nlora_r: 16\nlora_alpha: 32\n"


def found(folder: Path, model: str, more: str) -> list[str]:
    (folder / "run.yaml").write_text(AXOLOTL.format(model=model) + more, encoding="utf-8")
    report = check_paths([str(folder / "run.yaml")], RunSpec())
    return [one.severity for one in report.findings if one.code == "CFG110"]


@pytest.mark.parametrize(
    ("model", "more", "severity"),
    [
        ("Qwen/Qwen2.5-7B", "unfrozen_parameters: ['^model.layers.3[01].']\n", "error"),
        ("Qwen/Qwen3-0.6B", "unfrozen_parameters: [lm_head.weight, model.layers.31.mlp.down_proj]\n", "error"),
        ("Qwen/Qwen2.5-0.5B", ADAPTER + "lora_target_linear: true\npeft_layers_to_transform: [28, 29]\n", "error"),
        ("google/gemma-2-2b", ADAPTER + "lora_target_modules: 'model.layers.(3[0-5]).*q_proj'\n", "error"),
        ("Qwen/Qwen2.5-7B", "unfrozen_parameters: [model.layers.20.mlp, model.layers.31.mlp]\n", "warning"),
    ],
)  # fmt: skip
def test_layers_that_the_model_lacks(tmp_path: Path, model: str, more: str, severity: str) -> None:
    assert found(tmp_path, model, more) == [severity]


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("meta-llama/Llama-3.1-8B", "unfrozen_parameters: ['^model.layers.3[01].']\n"),
        ("Qwen/Qwen2.5-7B", "unfrozen_parameters: ['^lm_head.weight$', 'model.embed_tokens.weight$[:32000]']\n"),
        ("Qwen/Qwen2.5-7B", r"unfrozen_parameters: ['model.layers.2\d+.*']" + "\n"),
        ("me/my-model", "unfrozen_parameters: [model.layers.99.]\n"),
        ("Qwen/Qwen2.5-7B", ADAPTER + "lora_target_modules: [q_proj, v_proj]\n"),
        ("Qwen/Qwen2.5-7B", ADAPTER + "lora_target_linear: true\npeft_layers_to_transform: [26, 27]\n"),
    ],
)  # fmt: skip
def test_layers_that_exist_or_are_not_known(tmp_path: Path, model: str, more: str) -> None:
    assert not found(tmp_path, model, more)
