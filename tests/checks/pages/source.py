"""Blocks that are Python: each becomes a script that one rule looks at, with the files that its comments stand for."""

from __future__ import annotations

import json
import os
from pathlib import Path

from truetune.checks.findings import Finding
from truetune.checks.lint import lint
from truetune.checks.rule import Rule
from truetune.report.rule_pages.examples_of_code import files_of_script


def findings(rule: type[Rule[object]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at a block as a script, with this rule alone."""
    path = folder / "train.py"
    lay_out(text, path)
    return lint([str(path)], select=(rule.name(),)).findings


def lay_out(text: str, path: Path) -> None:
    """Write a block, and the files that its comments stand for beside it."""
    files = files_of_script(text)
    path.write_text(files.script, encoding="utf-8")
    folder = path.parent
    for name, content in files.texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    for name, rows in files.rows.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / name).write_text(lines, encoding="utf-8")
    now = path.stat().st_mtime
    for name, seconds in files.ages.items():
        os.utime(folder / name, (now - seconds, now - seconds))
