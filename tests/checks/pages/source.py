"""Blocks that are Python: each becomes a script that one rule looks at."""

from __future__ import annotations

from pathlib import Path

from truetune.checks.findings import Finding
from truetune.checks.lint import lint
from truetune.checks.rule import Rule


def findings(rule: type[Rule[object]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at a block as a script, with this rule alone."""
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return lint([str(path)], select=(rule.name(),)).findings
