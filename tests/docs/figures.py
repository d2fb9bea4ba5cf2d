"""`python -m tests.docs.figures` counts the blocks by what becomes of them."""

from __future__ import annotations

import re
from collections import Counter

import click

from tests.docs import reading, unrun
from tests.docs.blocks import Block, blocks, inline, pages

ELSEWHERE = {
    "docs/recipes.md": "what truetune init writes: tests/training/test_starting.py",
    "docs/trainers.md": "run, and its losses compared: tests/trainers",
}
"""Blocks that another test runs, by page; their YAML is read here too"""
FATES = ("run", "run in part", "not run")
RUN = ("sh", "console", "python")
READ = ("yaml", "json", "jsonl")


def fate(block: Block) -> str:
    """What becomes of a block."""
    if block.page == "docs/cli.md":
        return "compared with --help by tests/test_cli.py"
    if block.language in READ:
        return "read"
    if block.language not in RUN:
        return "shown: output, a layout or a fragment"
    if block.page in ELSEWHERE:
        return "run by another test"
    reasons = [*map(unrun.reason, texts(block))]
    if all(reasons):
        return "not run"
    return "run in part" if any(reasons) else "run"


def texts(block: Block) -> list[str]:
    """What is run or not as one: a Python block, a script, a command."""
    if block.language == "python":
        return [re.sub(r"#.*", "", block.text)]
    return [block.text] if reading.is_script(block) else reading.lines(block)


def figures() -> dict[str, int]:
    """Blocks by their fate, and commands."""
    found = Counter(fate(block) for block in blocks())
    commands = [text for block in blocks() if fate(block) in FATES for text in texts(block)]
    return {
        "blocks": len(blocks()), **dict(sorted(found.items())),
        "commands and programs of blocks": len(commands),
        "of these not run": sum(unrun.reason(text) is not None for text in commands),
        "truetune commands held against the command line": sum(len(list(reading.told(block))) for block in blocks())
        + sum(code.startswith("truetune ") for page in pages() for _, code in inline(page)),
    }  # fmt: skip


if __name__ == "__main__":
    for name, count in figures().items():
        click.echo(f"{count:5,}  {name}")
