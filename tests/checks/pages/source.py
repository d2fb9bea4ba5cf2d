"""Blocks that are Python: each becomes a script that one rule looks at.

A comment `# adapter/adapter_config.json: {...}` stands for such a file beside the script, `# run.sh: COMMAND` for a
shell script, `# other.py: CODE` for a script of one line, `# rows.jsonl: {"rows": n, "words": w, "long": m,
"long_words": v}` for n rows with a text of w words, m of them with v, `# ages: {FILE: SECONDS}` for how old they are.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from truetune.checks.findings import Finding
from truetune.checks.lint import lint
from truetune.checks.rule import Rule


def findings(rule: type[Rule[object]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at a block as a script, with this rule alone."""
    path = folder / "train.py"
    lay_out(text, path)
    return lint([str(path)], select=(rule.name(),)).findings


def lay_out(text: str, path: Path) -> None:
    """Write a block, and the files that its comments stand for beside it."""
    path.write_text(text, encoding="utf-8")
    folder = path.parent
    for name, content in re.findall(r"^# (\S+\.(?:json|sh|py)): (.*)$", text, re.M):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    for name, form in re.findall(r"^# (\S+\.jsonl): (\{.*\})$", text, re.M):
        (folder / name).write_text(_rows(**json.loads(form)), encoding="utf-8")
    for ages in re.findall(r"^# ages: (\{.*\})$", text, re.M):
        for name, seconds in json.loads(ages).items():
            now = path.stat().st_mtime
            os.utime(folder / name, (now - seconds, now - seconds))


def _rows(rows: int, words: int, long: int, long_words: int) -> str:
    """Rows of one text each, every so-many-th a long one."""
    lengths = [long_words if number % (rows // long) == 0 else words for number in range(rows)]
    return "".join(json.dumps({"text": "word " * length}) + "\n" for length in lengths)
