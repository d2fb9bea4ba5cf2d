"""`python -m tests.cli_page` writes docs/cli.md from the command line's own help."""

from __future__ import annotations

from pathlib import Path

import click
from click.testing import CliRunner

from truetune.cli import truetune_group

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"


def page() -> str:
    """The reference page, in Markdown."""
    runner = CliRunner()
    parts = ["# The command line\n\nMade from `--help` by `python -m tests.cli_page`.\n"]
    for name in ("", *sorted(truetune_group.commands)):
        arguments = [name, "--help"] if name else ["--help"]
        result = runner.invoke(
            truetune_group,
            arguments,
            prog_name="truetune",
            terminal_width=100,
            env={"COLUMNS": "100"},
        )
        parts.append(
            f"## truetune {name}".rstrip() + f"\n\n```text\n{result.output.rstrip()}\n```\n"
        )
    parts.append(
        "## Exit codes\n\n0: judged, and no finding at or above `--fail-on` (error, where not"
        " said). 1: findings. 2: usage or unreadable input, with one line on what and where. 3:"
        " something that was asked for could not be judged (`--allow-unjudged`: 0 instead);"
        " findings (1) win over it. 130: interrupted. 143: terminated. See"
        " [verdicts](verdicts.md).\n\nWith `TRUETUNE_DEBUG=1` an input error shows its traceback.\n"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    click.echo(f"wrote {PAGE}")
