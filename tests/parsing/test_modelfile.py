"""Modelfiles of Ollama as people write them, and what check says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune
from truetune.errors import UsageError
from truetune.parsing.read_modelfile import is_modelfile, read_modelfile

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
    assert is_modelfile(Path(name)) == expected


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
            ["modelfile-lacks-stop"],
        ),
    ],
)  # fmt: skip
def test_what_check_says_of_a_modelfile(text: str, rules: list[str], tmp_path: Path) -> None:
    path = tmp_path / "Modelfile"
    path.write_text(text, encoding="utf-8")
    assert [finding.rule for finding in truetune.check(path).findings] == rules
