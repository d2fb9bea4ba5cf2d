"""Modelfiles without a TEMPLATE, over weights of one's own and over models of the library."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune
from truetune.checks.modelfile.modelfile_template_differs import TEMPLATE_FIELD


def severities(folder: Path, text: str) -> list[str]:
    """How badly the rule on templates speaks of a Modelfile."""
    path = folder / "Modelfile"
    path.write_text(text, encoding="utf-8")
    report = truetune.check([str(path)], select=["modelfile-template-differs"])
    return [finding.severity for finding in report.findings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM ./model.Q4_K_M.gguf\n", ["info"]),
        ("FROM /data/merged\nPARAMETER num_ctx 8192\n", ["info"]),
        ("FROM llama3.1:8b\nADAPTER ./adapter\n", []),
        ("FROM someone/model\n", []),
        ('FROM ./model.gguf\nTEMPLATE """<|im_start|>user {{ .Prompt }}<|im_end|>"""\n', []),
    ],
)
def test_no_template(text: str, expected: list[str], tmp_path: Path) -> None:
    assert severities(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [(b"general.name" + bytes(40), ["warning"]), (TEMPLATE_FIELD + b"{{ text }}", [])],
)
def test_a_gguf_file_that_is_here(fields: bytes, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + fields)
    assert severities(tmp_path, "FROM ./model.gguf\n") == expected


ALPACA = "base_model: Qwen/Qwen2.5-7B-Instruct\ndatasets:\n  - {path: rows.jsonl, type: alpaca}\n"
CHATML = "base_model: org/base\nchat_template: chatml\ndatasets:\n  - {path: rows.jsonl, type: chat_template}\n"
FACTORY = "model_name_or_path: org/base\nstage: sft\ntemplate: llama3\n"
OF_ALPACA = 'TEMPLATE """### Instruction:\n{{ .Prompt }}\n\n### Response:\n"""\n'
OF_CHATML = 'TEMPLATE """<|im_start|>user\n{{ .Prompt }}<|im_end|>\n<|im_start|>assistant\n"""\n'


@pytest.mark.parametrize(
    ("settings", "template", "expected"),
    [
        (ALPACA, OF_ALPACA, []),
        (ALPACA, OF_CHATML, ["warning"]),
        (CHATML, OF_CHATML, []),
        (CHATML, OF_ALPACA, ["warning"]),
        (FACTORY, OF_CHATML, ["warning"]),
        ("base_model: Qwen/Qwen2.5-7B-Instruct\n", OF_CHATML, []),
        # The settings leave it to the tokenizer: the name of the model decides.
        (
            "datasets:\n  - {path: rows.jsonl, type: chat_template, chat_template: tokenizer_default}\n",
            OF_ALPACA,
            ["warning"],
        ),
        ("services:\n  web: {image: some}\n", OF_CHATML, []),
    ],
)
def test_settings_beside_say_the_trained_form(
    settings: str, template: str, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "train.yaml").write_text(settings, encoding="utf-8")
    text = "FROM qwen2.5:7b\nADAPTER ./adapter\n" + template
    assert severities(tmp_path, text) == expected
