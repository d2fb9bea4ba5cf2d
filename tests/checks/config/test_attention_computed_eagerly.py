"""Eager attention where the rows are long, and where it is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.findings import Finding
from truetune.settings.run_spec import RunSpec

AXOLOTL = "base_model: {}\ndatasets: [{{path: some/rows, type: alpaca}}]\nsequence_len: 8192\n"
FACTORY = "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: full\ndataset: x\ncutoff_len: 4096\n"
SCRIPT = """
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("{}", attn_implementation="{}"{})
args = SFTConfig(output_dir="o", max_length={})
SFTTrainer(model=model, args=args, train_dataset=rows).train()
"""
QWEN = "Qwen/Qwen3-8B"


def found(folder: Path, name: str, text: str) -> list[Finding]:
    (folder / name).write_text(text)
    findings = check_paths([folder], RunSpec()).findings
    return [one for one in findings if one.code == "CFG102"]


@pytest.mark.parametrize(
    ("name", "text", "severity"),
    [
        ("train.py", SCRIPT.format(QWEN, "eager", "", 8192), "warning"),
        ("train.py", SCRIPT.format(QWEN, "eager", "", 1024), "info"),
        ("a.yaml", AXOLOTL.format(QWEN) + "eager_attention: true\n", "warning"),
        (
            "a.yaml",
            AXOLOTL.format("meta-llama/Llama-3.1-8B") + "attn_implementation: eager\n",
            "warning",
        ),
        ("f.yaml", FACTORY + "flash_attn: disabled\n", "warning"),
    ],
)
def test_eager_attention_is_named(tmp_path: Path, name: str, text: str, severity: str) -> None:
    [finding] = found(tmp_path, name, text)
    assert finding.severity == severity
    assert "sdpa" in finding.remedy
    assert finding.cases[0].line


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.py", SCRIPT.format(QWEN, "sdpa", "", 8192)),
        ("train.py", SCRIPT.format("google/gemma-2-9b-it", "eager", "", 8192)),
        ("train.py", SCRIPT.format("openai/gpt-oss-20b", "eager", "", 8192)),
        ("train.py", SCRIPT.format(QWEN, "eager", ", output_attentions=True", 8192)),
        ("a.yaml", AXOLOTL.format(QWEN) + "flash_attention: true\n"),
        ("f.yaml", FACTORY + "flash_attn: auto\n"),
    ],
)
def test_other_attention_and_models_that_need_it_are_sound(
    tmp_path: Path, name: str, text: str
) -> None:
    assert found(tmp_path, name, text) == []
