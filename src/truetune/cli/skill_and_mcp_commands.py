"""The commands for coding assistants: `truetune skill` and `truetune mcp`."""

from __future__ import annotations

from pathlib import Path

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import print_status
from truetune.errors import UsageError


@click.command(cls=Command, short_help="Print or install the skill for coding assistants.")
@click.option(
    "--install",
    metavar="DIR",
    help="Write it to DIR/truetune/SKILL.md; DIR is the assistant's folder of skills.",
)
def skill(install: str | None) -> int:
    """Print the skill that tells a coding assistant when to use which command, or install it.

    A file that truetune did not write, or that was edited after it was installed, is never overwritten.

    \b
    Examples:
      truetune skill
      truetune skill --install .claude/skills
    """
    from truetune.assistants.skill import install_skill, read_skill

    if install is None:
        click.echo(read_skill(), nl=False)
        return 0
    written = install_skill(Path(install))
    print_status(f"wrote {written}")
    return 0


@click.command(cls=Command, short_help="Serve six tools to coding assistants (MCP, stdio).")
def mcp() -> int:
    """Serve check, lint, diagnose, troubleshoot, explain and fix to a coding assistant, by the Model Context Protocol
    on stdin and stdout. It ends when stdin does.

    It needs the extra mcp: pip install 'truetune[mcp]'. Only the tool fix writes, and only with write=true.

    \b
    Examples:
      truetune mcp
    """
    try:
        from truetune.assistants.mcp_server import serve_over_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise UsageError(
            "truetune mcp needs the package mcp: pip install 'truetune[mcp]'"
        ) from None
    serve_over_stdio()
    return 0
