"""Blocks that are Modelfiles: each becomes a file that one rule looks at.

A comment `# adapter/adapter_config.json: {...}` stands for such a file beside it, `# adapter: tokenizer` for the demo's
tokenizer there, which ends turns with <|im_end|>.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.checkpoint.make import TOKENIZER
from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.parsing.read_ollama_modelfile import read_modelfile


def findings(rule: type[Rule[object]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at a block as a Modelfile, with this rule alone."""
    path = folder / "Modelfile"
    path.write_text(text, encoding="utf-8")
    for name, content in re.findall(r"^# (\S+\.json): (\{.*\})$", text, re.M):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    for name in re.findall(r"^# (\S+): tokenizer$", text, re.M):
        shutil.copytree(TOKENIZER, folder / name, dirs_exist_ok=True)
    return tuple(rule(read_modelfile(path)).findings())
