"""Blocks that are Modelfiles: each becomes a file that one rule looks at.

A comment `# adapter/adapter_config.json: {...}` stands for such a file beside it, `# adapter: tokenizer` for the demo's
tokenizer there, which ends turns with <|im_end|>.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.checkpoint.make import TOKENIZER
from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.parsing.read_ollama_modelfile import read_modelfile
from truetune.report.rule_pages.examples_of_code import example_of_modelfile, tokenizers_beside


def findings(rule: type[Rule[object]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at a block as a Modelfile, with this rule alone."""
    for file in example_of_modelfile(text).files:
        (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.name).write_text(file.text, encoding="utf-8")
    for name in tokenizers_beside(text):
        shutil.copytree(TOKENIZER, folder / name, dirs_exist_ok=True)
    return tuple(rule(read_modelfile(folder / "Modelfile")).findings())
