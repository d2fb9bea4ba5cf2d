"""How help is laid out: commands by the stage of a fine-tune, options by what they are about; a word nearly right."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import click

from truetune.cli.output import check_outputs_apart

STAGES: Mapping[str, tuple[str, ...]] = {
    "Before a run": ("doctor", "init", "check", "fix", "lint", "plan", "show", "view", "encode", "rehearse"),
    "In a run": ("run", "train"),
    "After a run": ("diagnose", "sample", "evaluate", "movement", "merge", "export", "ladder", "serve-check", "report"),
    "To learn": ("demo", "rules", "explain", "completion"),
}
ABOUT: Mapping[str, tuple[str, ...]] = {
    "Rows and their rendering": (
        *("format", "pairs", "template", "variables", "learn", "no_reasoning", "no_tool_calls", "history", "mask_by"),
        *("response_marker", "append_eos"),
    ),
    "Opening a model": ("backend", "served_model", "route", "concurrency", "timeout", "trust_remote_code", "dtype"),
    "Report and output": (
        *("select", "ignore", "fail_on", "allow_unjudged", "output_format", "json", "output", "html"),
        *("cases", "rows_out", "baseline"),
        *("verbose", "quiet", "no_progress"),
    ),
}
"""Options by what they are about; the others come first"""
GROUPED = 14
"""Options from which they are grouped"""
EXITS = (
    "Exit codes: 0 judged, no finding at or above --fail-on; 1 findings; 2 usage or unreadable input; 3 something "
    "asked for could not be judged; 130 interrupted."
)


class Command(click.Command):
    """A command whose many options are grouped in its help, and whose outputs are apart."""

    def invoke(self, ctx: click.Context) -> Any:
        """Raises UsageError before any work where two outputs would be one."""
        check_outputs_apart(ctx)
        return super().invoke(ctx)

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """The same whoever asks: click keeps what it made for the first context."""
        return ["-h", "--help"]

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The first group is called Options."""
        options = [param for param in self.get_params(context) if isinstance(param, click.Option)]
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Options", *ABOUT)}
        for option in options:
            if record := option.get_help_record(context):
                about = (name for name, names in ABOUT.items() if len(options) >= GROUPED and option.name in names)
                groups[next(about, "Options")].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


class Group(click.Group):
    """Commands by stage; a word that is none gets the nearest one."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """A section for each stage; what stands in none comes last."""
        left = [name for name in self.list_commands(context) if not any(name in names for names in STAGES.values())]
        wide = max(map(len, self.commands), default=0)
        for stage, names in {**STAGES, "More": tuple(left)}.items():
            shown = [(name.ljust(wide), self.commands[name]) for name in names if name in self.commands]
            if shown:
                with formatter.section(stage):
                    formatter.write_dl([(name, command.get_short_help_str(100)) for name, command in shown])

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """What every command shares."""
        formatter.write_paragraph()
        formatter.write_text(EXITS)
        formatter.write_text("Begin with `truetune demo`, or `truetune check DATA -t MODEL`; see truetune COMMAND -h.")

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; a name that is none says which is near."""
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.commands, n=1)
            if not near or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", context) from None
