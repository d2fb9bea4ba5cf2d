"""`python -m tests.docs.figures` counts the blocks by what becomes of them."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import click

from tests.docs import reading, shown, unrun
from tests.docs.blocks import Block, blocks, inline, pages

ELSEWHERE = {
    "docs/recipes.md": "what truetune init writes: tests/training/test_starting.py",
    "docs/trainers.md": "run, and its losses compared: tests/trainers",
}
"""Blocks that another test runs, by page; their YAML is read here too"""
FATES = ("run", "run in part", "not run")
SHOWN = "shown, with a reason"
RUN = ("sh", "console", "python")
READ = ("yaml", "json", "jsonl")


def fate(block: Block) -> str:
    """What becomes of a block."""
    if block.page == "docs/cli.md":
        return "compared with --help by tests/test_cli.py"
    if block.language in READ:
        return "read"
    if block.language not in RUN:
        return _unrun_fate(block)
    if block.page in ELSEWHERE:
        return "run by another test"
    reasons = [*map(unrun.reason, texts(block))]
    if all(reasons):
        return "not run"
    return "run in part" if any(reasons) else "run"


def _unrun_fate(block: Block) -> str:
    if block.text.startswith("truetune "):
        return "commands, held against the command line"
    return "output, compared" if block in _outputs() else SHOWN


def _smaller(block: Block) -> int:
    if block.language != "sh" or fate(block) not in FATES or reading.is_script(block):
        return 0
    given = [reading.arguments(line) for line in reading.lines(block) if not unrun.reason(line)]
    return sum(unrun.quick(words) != words for words in given if words)


@cache
def _outputs() -> list[Block]:
    return [
        output for block in blocks() if block.language in RUN and (output := shown.output(block))
    ]


def texts(block: Block) -> list[str]:
    """What is run or not as one: a Python block, a script, a command."""
    if block.language == "python":
        return [re.sub(r"#.*", "", block.text)]
    return [block.text] if reading.is_script(block) else reading.lines(block)


def figures() -> dict[str, int]:
    """Blocks by their fate, and commands."""
    found = Counter(fate(block) for block in blocks())
    console = [
        below
        for block in blocks()
        if block.language == "console"
        for _, below in shown.turns(block)
    ]
    commands = [text for block in blocks() if fate(block) in FATES for text in texts(block)]
    return {
        "blocks": len(blocks()),
        **dict(sorted(found.items())),
        "outputs compared": len(_outputs()) + sum(map(bool, map(str.strip, console))),
        "commands and programs of blocks": len(commands),
        "of these not run": sum(unrun.reason(text) is not None for text in commands),
        "of these run smaller, their output not shown": sum(map(_smaller, blocks())),
        "truetune commands held against the command line": (
            sum(len(list(reading.told(block))) for block in blocks())
            + sum(code.startswith("truetune ") for page in pages() for _, code in inline(page))
        ),
    }


if __name__ == "__main__":
    for name, count in figures().items():
        click.echo(f"{count:5,}  {name}")
