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
