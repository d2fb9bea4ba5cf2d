"""Blocks that are rows of an embedding model or a reranker: each becomes a file that one rule looks at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.data.retrieval_rows import layout_of_file, read_retrieval_rows
from truetune.report.rule_pages.examples_of_rows import example_of_retrieval_rows


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """What the rule says about the rows that a block describes."""
    for file in example_of_retrieval_rows(yaml.safe_load(text)).files:
        (folder / file.name).write_text(file.text, encoding="utf-8")
    path = str(folder / "data.jsonl")
    layout = layout_of_file(path)
    assert layout is not None
    data = read_retrieval_rows([path], layout)
    held_out = folder / "eval_data.jsonl"
    if held_out.exists():
        data = replace(data, evaluation=read_retrieval_rows([str(held_out)], layout).rows)
    return tuple(rule(data).findings())
