"""Scoring scripts whose patterns read the references and none of the answers; and those that fall back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint

SCRIPT = """import json
import re


def parse(text):
{body}


rows = [json.loads(line) for line in open("{file}")]
right = sum(parse(row["gold"]) == parse(row.get("out", "")) for row in rows)
"""
SEARCH = (
    '    match = re.search(r"#### *(\\d+)", text)\n    return match.group(1) if match else None'
)
LAST = "    hits = re.findall(r'#### *(\\d+)', text)\n    if not hits:\n        return ''\n    return hits[-1]"
OTHERWISE = '    match = re.search(r"#### *(\\d+)", text)\n    return match[1] if match else text.split()[-1]'
BOTH = '    match = re.search(r"(?:#### *|boxed.)(\\d+)", text)\n    return match.group(1) if match else None'


@pytest.mark.parametrize(
    ("body", "file", "answer", "fires"),
    [
        (SEARCH, "rows.jsonl", "\\boxed{4}", True),
        (LAST, "rows.jsonl", "The answer is 4.", True),
        (SEARCH, "sys.argv", "\\boxed{4}", True),
        (SEARCH, "rows.jsonl", "so #### 4", False),
        (OTHERWISE, "rows.jsonl", "so 4", False),
        (BOTH, "rows.jsonl", "\\boxed{4}", False),
    ],
)
def test_patterns(tmp_path: Path, body: str, file: str, answer: str, fires: bool) -> None:
    row = json.dumps({"gold": "2 + 2\n#### 4", "out": answer})
    (tmp_path / "rows.jsonl").write_text(f"{row}\n" * 12)
    path = tmp_path / "score.py"
    path.write_text(SCRIPT.format(body=body, file=file))
    rules = [finding.rule for finding in lint([path]).findings]
    assert rules == ["pattern-misses-the-answers"] * fires
