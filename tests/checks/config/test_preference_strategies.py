"""Axolotl's strategies for preferences that write their own template, against the base's family and what serves it."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune

SETTINGS = """base_model: {base}
rl: {rl}
datasets:
  - path: some/pairs
{type}
output_dir: out
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
sequence_len: 2048
micro_batch_size: 2
learning_rate: 0.00002
"""
LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct"
SERVER = f"vllm serve {LLAMA} --enable-lora --lora-modules mine=out\n"
OWN_FORMAT = (
    '    type: {field_prompt: question, prompt_format: "<|im_start|>user\\n{prompt}<|im_end|>"}'
)
TEMPLATE, TOKEN = "served-template-differs", "template-marks-not-in-vocabulary"


def found(folder: Path, kind: str, base: str = LLAMA, rl: str = "dpo", **files: str) -> list[str]:
    """The two rules on templates that speak of settings with files beside them."""
    line = kind if kind.startswith(" ") else f"    type: {kind}"
    text = SETTINGS.format(base=base, rl=rl, type=line)
    (folder / "dpo.yml").write_text(text, encoding="utf-8")
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    names = [str(folder / name) for name in ("dpo.yml", *files)]
    report = truetune.check(names, select=[TEMPLATE, TOKEN])
    return sorted(finding.rule for finding in report.findings)


@pytest.mark.parametrize(
    ("kind", "base", "rl"),
    [
        ("chatml.intel", LLAMA, "dpo"),
        ("chatml.argilla", LLAMA, "ipo"),
        ("chatml.argilla", LLAMA, "kto"),
        ("chatml.ultra", "google/gemma-2-9b-it", "dpo"),
        ("chatml", "mistralai/Mistral-7B-Instruct-v0.3", "dpo"),
        ("llama3.ultra", QWEN, "dpo"),
        (OWN_FORMAT, LLAMA, "dpo"),
    ],
)
def test_a_strategy_of_another_family(tmp_path: Path, kind: str, base: str, rl: str) -> None:
    assert found(tmp_path, kind, base, rl) == [TEMPLATE, TOKEN]


def test_zephyr_has_no_token_for_the_end_of_turns(tmp_path: Path) -> None:
    assert found(tmp_path, "zephyr.nectar") == [TEMPLATE]


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        ("llama3.intel", LLAMA),
        ("chatml.intel", QWEN),
        ("chat_template.default", LLAMA),
        ("chat_template.argilla", LLAMA),
        ("passthrough", LLAMA),
        ("chatml.intel", "NousResearch/Hermes-3-Llama-3.1-8B"),
        ("chatml.intel", "./my-own-sft"),
    ],
)
def test_a_strategy_of_the_same_family(tmp_path: Path, kind: str, base: str) -> None:
    assert found(tmp_path, kind, base) == []


def test_a_base_is_tuned_in_any_template_whose_marks_are_tokens(tmp_path: Path) -> None:
    assert found(tmp_path, "chatml.intel", "Qwen/Qwen2.5-7B") == []
    assert found(tmp_path, "chatml.intel", "meta-llama/Llama-3.1-8B") == [TOKEN]


def test_a_type_of_supervised_rows_is_no_strategy(tmp_path: Path) -> None:
    assert found(tmp_path, "chatml.intel", rl="") == []


def test_what_serves_the_adapter_is_named(tmp_path: Path) -> None:
    assert found(tmp_path, "chatml.intel", **{"serve.sh": SERVER}) == [TEMPLATE, TOKEN]
    files = [str(tmp_path / name) for name in ("dpo.yml", "serve.sh")]
    (finding,) = truetune.check(files, select=TEMPLATE).findings
    assert [Path(case.file).name for case in finding.cases if case.file] == [
        "dpo.yml",
        "dpo.yml",
        "serve.sh",
    ]
    assert "type: llama3.intel" in finding.remedy


def test_a_server_that_is_given_the_template_of_the_training(tmp_path: Path) -> None:
    server = SERVER.replace("--enable-lora", "--enable-lora --chat-template chatml.jinja")
    assert found(tmp_path, "chatml.intel", **{"serve.sh": server}) == [TOKEN]


def test_the_template_that_the_tokenizer_is_saved_with(tmp_path: Path) -> None:
    text = (
        "    type: chatml.intel\nchat_template: chatml\nspecial_tokens: {eos_token: '<|im_end|>'}"
    )
    assert TOKEN not in found(tmp_path, text)


ALPACA = """base_model: {base}
chat_template: {template}
datasets:
  - path: some/rows
    type: {type}
output_dir: out
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
sequence_len: 2048
micro_batch_size: 2
learning_rate: 0.0002
"""


@pytest.mark.parametrize(
    ("kind", "base", "template", "differs"),
    [
        ("alpaca", LLAMA, "llama3", True),
        ("alpaca:chat", QWEN, "qwen_25", True),
        ("alpaca:phi", "microsoft/Phi-3-mini-4k-instruct", "phi_3", False),
        ("alpaca:chatml", QWEN, "chatml", False),
        ("chat_template", LLAMA, "llama3", False),
        # A base has no template of its own that a server would ask by.
        ("alpaca", "meta-llama/Llama-3.1-8B", "llama3", False),
        ("alpaca", LLAMA, "tokenizer_default", False),
    ],
)
def test_alpacas_prompt_beside_a_chat_template(
    kind: str, base: str, template: str, differs: bool, tmp_path: Path
) -> None:
    path = tmp_path / "sft.yml"
    path.write_text(ALPACA.format(base=base, template=template, type=kind), encoding="utf-8")
    found = truetune.check([str(path)], select=[TEMPLATE]).findings
    assert [one.severity for one in found] == ["warning"] * differs
