"""Blocks that are shell scripts: each becomes a file that one rule looks at."""

from __future__ import annotations

from pathlib import Path

from truetune.checks.findings import Finding
from truetune.checks.lint import lint
from truetune.checks.rule import Rule


def findings(rule: type[Rule[object]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at a block as a job file, with this rule alone."""
    path = folder / "job.sbatch"
    path.write_text(text, encoding="utf-8")
    return lint([str(path)], select=(rule.name(),)).findings
