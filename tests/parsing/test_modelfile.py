"""Modelfiles of Ollama as people write them, and what check says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune
from truetune.errors import UsageError
from truetune.parsing.read_ollama_modelfile import is_modelfile_name, read_modelfile

TEXT = '''# my model
from ./merged
TEMPLATE """{{ if .System }}<|im_start|>system
{{ .System }}<|im_end|>
{{ end }}<|im_start|>user
{{ .Prompt }}<|im_end|>
"""
  PARAMETER  stop  "<|im_end|>"
PARAMETER num_ctx 8192
# ADAPTER ./lora
SYSTEM You answer.
'''


def test_instructions_are_read_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "Modelfile"
    path.write_text(TEXT, encoding="utf-8")
    found = read_modelfile(path)
    assert [(one.word, one.line) for one in found.instructions] == [
        ("from", 2), ("template", 3), ("parameter", 8), ("parameter", 9), ("system", 11),
    ]  # fmt: skip
    template = found.last("template")
    assert template is not None
    assert template.value.count("\n") == 4
    assert found.parameters["num_ctx"].value == "8192"
    assert found.parameters["stop"].value == "<|im_end|>"
    assert found.commented_adapter is not None
    assert found.commented_adapter.value == "./lora"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Modelfile", True),
        ("support.modelfile", True),
        ("Modelfile.q8", True),
        ("model.yaml", False),
    ],
)
def test_a_modelfile_is_told_by_its_name(name: str, expected: bool) -> None:
    assert is_modelfile_name(Path(name)) == expected


def test_a_file_without_instructions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "Modelfile"
    path.write_text("nothing here\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no instruction"):
        truetune.check(path)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("FROM qwen2.5:7b\nPARAMETER num_ctx 8192\n", ["modelfile-serves-the-base"]),
        ("FROM me/support:latest\nPARAMETER num_ctx 8192\n", []),
        ("FROM ./merged\nPARAMETER num_ctx 8192\n", ["modelfile-template-differs"]),
        ("FROM qwen2.5:7b\nADAPTER ./gone\nPARAMETER num_ctx 8192\n", ["modelfile-serves-the-base"]),
        ("FROM qwen2.5:7b\nADAPTER /models/lora\nPARAMETER num_ctx 8192\n", []),
        ("FROM ./m.gguf\n", ["modelfile-template-differs", "modelfile-context-left-to-default"]),
        (
            "FROM ./m.gguf\nPARAMETER num_ctx 9\nPARAMETER temperature 3\n",
            ["modelfile-parameters-unfit", "modelfile-template-differs"],
        ),
        (
            "FROM ./m.gguf\nPARAMETER num_ctx 131072\n",
            ["modelfile-parameters-unfit", "modelfile-template-differs"],
        ),
        ("FROM ./m.gguf\nPARAMETER num_ctx 32768\n", ["modelfile-template-differs"]),
        (
            "FROM ./m.gguf\nPARAMETER num_ctx 9\nTEMPLATE <start_of_turn>user {{ .Prompt }}<end_of_turn>\n",
            ["modelfile-template-lacks-answer-header", "modelfile-lacks-stop"],
        ),
    ],
)  # fmt: skip
def test_what_check_says_of_a_modelfile(text: str, rules: list[str], tmp_path: Path) -> None:
    path = tmp_path / "Modelfile"
    path.write_text(text, encoding="utf-8")
    assert [finding.rule for finding in truetune.check(path).findings] == rules


QWEN_RANGE = (
    "{{- range $i, $_ := .Messages }}{{- $last := eq (len (slice $.Messages $i)) 1 -}}"
    '{{- if eq .Role "user" }}<|im_start|>user\n{{ .Content }}<|im_end|>\n'
    '{{ else if eq .Role "assistant" }}<|im_start|>assistant\n'
    "{{ if .Content }}{{ .Content }}{{ end }}{{ if not $last }}<|im_end|>\n{{ end }}{{- end }}"
)


@pytest.mark.parametrize(
    ("template", "header"),
    [
        ("<|im_start|>user\n{{ .Prompt }}<|im_end|>\n", "<|im_start|>assistant"),
        ("<|im_start|>user\n{{ .Prompt }}<|im_end|>\n{{ .Response }}<|im_end|>", "<|im_start|>assistant"),
        (
            "{{ if .System }}<|start_header_id|>system<|end_header_id|>\n\n{{ .System }}<|eot_id|>{{ end }}"
            "<|start_header_id|>user<|end_header_id|>\n\n{{ .Prompt }}<|eot_id|>",
            "<|start_header_id|>assistant<|end_header_id|>",
        ),
        ("<|user|>\n{{ .Prompt }}<|end|>\n", "<|assistant|>"),
        ("[INST] {{ .Prompt }} ", "[/INST]"),
        ("### Instruction:\n{{ .Prompt }}\n\n", "### Response:"),
        (
            "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}",
            "<|im_start|>assistant",
        ),
        (
            '{{ range .Messages }}<start_of_turn>{{ if eq .Role "assistant" }}model{{ else }}user{{ end }}\n'
            "{{ .Content }}<end_of_turn>\n{{ end }}",
            "<start_of_turn>model",
        ),
        (QWEN_RANGE + "{{ end }}", "<|im_start|>assistant"),
    ],
)  # fmt: skip
def test_a_template_without_the_header_of_the_answer_is_told(
    template: str, header: str, tmp_path: Path
) -> None:
    findings = _findings_of_template(template, tmp_path)
    assert "modelfile-template-lacks-answer-header" in findings
    assert header in findings["modelfile-template-lacks-answer-header"]


@pytest.mark.parametrize(
    "template",
    [
        "<|im_start|>user\n{{ .Prompt }}<|im_end|>\n<|im_start|>assistant\n",
        "{{ if .Prompt }}<|im_start|>user\n{{ .Prompt }}<|im_end|>\n{{ end }}<|im_start|>assistant\n"
        "{{ .Response }}<|im_end|>\n",
        "[INST] {{ if .System }}{{ .System }}\n\n{{ end }}{{ .Prompt }} [/INST]",
        "{{ .Prompt }}",
        # The model plays the user.
        "<|im_start|>assistant\n{{ .Prompt }}<|im_end|>\n<|im_start|>user\n",
        # The prompt begins the answer.
        "<|im_start|>user\nWrite a poem.<|im_end|>\n<|im_start|>assistant\n{{ .Prompt }}",
        "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}<|im_start|>assistant\n",
        '{{ range .Messages }}<start_of_turn>{{ if eq .Role "assistant" }}model{{ else }}user{{ end }}\n'
        "{{ .Content }}<end_of_turn>\n{{ end }}<start_of_turn>model\n",
        QWEN_RANGE + '{{- if and (ne .Role "assistant") $last }}<|im_start|>assistant\n{{ end }}{{ end }}',
        '{{ range .Messages }}{{ if eq .Role "user" }}[INST] {{ .Content }}[/INST]'
        '{{ else if eq .Role "assistant" }} {{ .Content }}</s>{{ end }}{{ end }}',
        '<|im_start|>user\n{{ .Prompt }}<|im_end|>\n{{ "<|im_start|>assistant\\n" }}',
        '{{ define "turn" }}<|im_start|>user\n{{ .Prompt }}<|im_end|>{{ end }}{{ template "turn" . }}',
    ],
)  # fmt: skip
def test_a_template_that_opens_the_answer_is_sound(template: str, tmp_path: Path) -> None:
    assert "modelfile-template-lacks-answer-header" not in _findings_of_template(template, tmp_path)


def _findings_of_template(template: str, folder: Path) -> dict[str, str]:
    """Rule -> message, of a Modelfile with this template."""
    path = folder / "Modelfile"
    path.write_text(f'FROM ./m.gguf\nTEMPLATE """{template}"""\nPARAMETER num_ctx 9\n', "utf-8")
    return {finding.rule: finding.message for finding in truetune.check(path).findings}
