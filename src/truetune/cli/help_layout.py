"""Lays the help out: commands by the stage of a fine-tune, options by what they are about; and
hints at words that are nearly right.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from truetune.cli.result_output import check_outputs_apart
from truetune.cli.suggest_meant_words import (
    other_commands_with_option,
    suggest_command_of_word,
    suggest_option_of_word,
)

COMMANDS_BY_STAGE: Mapping[str, tuple[str, ...]] = {
    "Before a run": (
        "doctor",
        "init",
        "check",
        "fix",
        "lint",
        "plan",
        "show",
        "view",
        "encode",
        "rehearse",
        "reward",
    ),
    "In a run": ("run", "train"),
    "After a run": (
        "troubleshoot",
        "diagnose",
        "sample",
        "score",
        "evaluate",
        "movement",
        "merge",
        "export",
        "ladder",
        "serve-check",
        "report",
    ),
    "To learn": ("demo", "rules", "explain", "completion", "skill", "mcp", "lsp"),
}
COMMANDS_IN_ONE_LINE: Mapping[tuple[str, ...], str] = {
    ("show", "view"): "Show rows token by token, in the terminal or in the browser.",
    ("sample", "score"): "Judge a model's answers: asked now, or made by your own code.",
    ("merge", "export"): "Merge an adapter; export as safetensors or GGUF; verified.",
    ("rules", "explain"): "List faults and their rules; show a rule or a symptom.",
    ("skill", "mcp", "lsp"): "Skill and MCP server for assistants; LSP for editors.",
}
"""Commands that follow each other at one stage and are alike -> what the overview says of them together: it has to fit
on a screen. Each command's own help says more."""
OPTION_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Rows and their rendering": (
        "format",
        "pairs",
        "template",
        "variables",
        "learn",
        "no_reasoning",
        "no_tool_calls",
        "history",
        "mask_by",
        "response_marker",
        "append_eos",
    ),
    "Opening a model": (
        "backend",
        "served_model",
        "route",
        "concurrency",
        "timeout",
        "trust_remote_code",
        "dtype",
    ),
    "Report and output": (
        "select",
        "ignore",
        "fail_on",
        "allow_unjudged",
        "output_format",
        "json",
        "brief",
        "output",
        "html",
        "cases",
        "rows_out",
        "baseline",
        "verbose",
        "quiet",
        "no_progress",
    ),
}
"""Options by what they are about; the others come first"""
MIN_GROUPED_OPTIONS = 14
"""A command with fewer options fits on a screen without headings (chosen)"""
EXIT_CODES = (
    "Exit codes: 0 judged, no finding at or above --fail-on; 1 findings; 2 usage or unreadable"
    " input; 3 something asked for could not be judged; 130 interrupted."
)


class Command(click.Command):
    """A command whose many options are grouped in its help, and whose outputs may not be one file."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises UsageError before any work where two outputs would be one."""
        check_outputs_apart(ctx)
        return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; an unknown option's error says what it may mean, and which other
        command has it.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = self._hint_for_option(error.option_name, ctx)
            if not hint:
                raise
            message = f"No such option '{error.option_name}'.{hint}"
            raise click.UsageError(message, ctx) from None

    def _hint_for_option(self, option: str, ctx: click.Context) -> str:
        """What an unknown option may mean here, and which commands have it; empty where nothing is near."""
        meant = suggest_option_of_word(option, self)
        hint = f" Did you mean '{meant}'?" if meant else ""
        group = ctx.parent.command if ctx.parent else None
        if not isinstance(group, click.Group):
            return hint
        others = other_commands_with_option(option, group)
        if not others:
            return hint
        # Three names are enough to see which command was meant.
        names = " and ".join(f"`truetune {name}`" for name in others[:3])
        return f"{hint} {names} {'has' if len(others) == 1 else 'have'} it."

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """The names of the help option, the same for every context: click keeps what it made for
        the first one.
        """
        return ["-h", "--help"]

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups; the first group is called Options."""
        options = [param for param in self.get_params(context) if isinstance(param, click.Option)]
        is_grouped = len(options) >= MIN_GROUPED_OPTIONS
        groups: dict[str, list[tuple[str, str]]] = {
            name: [] for name in ("Options", *OPTION_GROUPS)
        }
        for option in options:
            record = option.get_help_record(context)
            if record is None:
                continue
            group = _help_group_of_option(option) if is_grouped else "Options"
            groups[group].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def _help_group_of_option(option: click.Option) -> str:
    """The heading under which an option stands in the help."""
    for group, names in OPTION_GROUPS.items():
        if option.name in names:
            return group
    return "Options"


class Group(click.Group):
    """The group of commands, listed by stage in its help; an unknown word gets the nearest command."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in a section for each stage; those of no stage come last."""
        staged = {name for names in COMMANDS_BY_STAGE.values() for name in names}
        others = tuple(name for name in self.list_commands(context) if name not in staged)
        stages = {
            stage: self._help_lines(names)
            for stage, names in {**COMMANDS_BY_STAGE, "More": others}.items()
        }
        width = max((len(names) for lines in stages.values() for names, _ in lines), default=0)
        for stage, lines in stages.items():
            if lines:
                with formatter.section(stage):
                    # Padding lines up the descriptions of all sections, not only of one.
                    formatter.write_dl([(names.ljust(width), text) for names, text in lines])

    def _help_lines(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """The lines of some commands in the overview: (names, what it says of them)."""
        first_names = {
            together[0]: together
            for together in COMMANDS_IN_ONE_LINE
            if self.commands.keys() >= set(together)
        }
        lines = []
        joined: set[str] = set()
        for name in names:
            if name not in self.commands or name in joined:
                continue
            together = first_names.get(name)
            if together is None:
                lines.append((name, self.commands[name].get_short_help_str(100)))
            else:
                joined.update(together)
                lines.append((", ".join(together), COMMANDS_IN_ONE_LINE[together]))
        return lines

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what every command shares below the list of commands: exit codes, and where to begin."""
        formatter.write_paragraph()
        formatter.write_text(EXIT_CODES)
        formatter.write_text(
            "Begin: `truetune demo`; `truetune check DATA -t MODEL`; `truetune COMMAND -h`."
        )

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command as click does; an unknown name's error says which is near. `help X` is the
        help of X, or what explains it.
        """
        if args[:1] == ["help"] and len(args) > 1:
            known = args[1] in self.commands
            args = [args[1], "--help"] if known else ["explain", *args[1:]]
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            meant = suggest_command_of_word(args[0])
            near = difflib.get_close_matches(args[0], self.commands, n=1)
            if meant is None and (not near or "Did you mean" in error.message):
                raise
            raise click.UsageError(
                f"No such command '{args[0]}'. Did you mean '{meant or near[0]}'?", context
            ) from None
