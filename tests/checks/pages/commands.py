"""Blocks that are shell scripts: each becomes a file that one rule looks at. YAML with `files` holds several."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from truetune.checks.findings import Finding
from truetune.checks.lint import lint
from truetune.checks.rule import Rule


def findings(rule: type[Rule[object]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at a block as a job file, or at its files, with this rule alone."""
    if not text.startswith("files:"):
        path = folder / "job.sbatch"
        path.write_text(text, encoding="utf-8")
        return lint([str(path)], select=(rule.name(),)).findings
    for name, content in yaml.safe_load(text)["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
        )
    return lint([str(folder)], select=(rule.name(),)).findings
