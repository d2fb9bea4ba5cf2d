"""`truetune fix`: rows with the faults taken out that can be fixed without a person, in a new file or as a patch."""

from __future__ import annotations

import sys
from typing import Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import (
    add_format_options,
    make_console,
    print_json,
    progress_option,
    quiet_option,
)
from truetune.cli.shared_options import add_spec_options, read_settings_of_run_with_data
from truetune.cli.shell_completion import complete_rule_names
from truetune.errors import UsageError


@click.command(cls=Command, short_help="Fix what is mechanical in rows, each change recorded.")
@click.argument("data", nargs=-1, metavar="[DATA]...")
@click.option(
    "-o",
    "--output",
    "out",
    metavar="FILE",
    help="Where the fixed rows go, in the format of DATA; FILE.changes.jsonl has each change.",
)
@click.option(
    "--diff", is_flag=True, help="Print the changes as a unified diff, and write nothing."
)
@click.option(
    "--unsafe",
    is_flag=True,
    help="Make changes too that may alter what rows mean: drop rows, remove control tokens.",
)
@click.option(
    "--select",
    multiple=True,
    metavar="RULE",
    shell_complete=complete_rule_names,
    help="Fix only what these rules find, by name, code, beginning of a code, or fault. Repeatable.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="RULE",
    shell_complete=complete_rule_names,
    help="Leave what these rules find. Repeatable.",
)
@add_spec_options
@click.option(
    "--eval-data",
    multiple=True,
    metavar="PATH",
    help="Evaluation data: with --unsafe, rows that are in it are dropped. Repeatable.",
)
@add_format_options()
@click.option(
    "--allow-unjudged",
    is_flag=True,
    default=None,
    help="Exit with 0, not 3, if something could not be judged.",
)
@quiet_option
@progress_option
def fix(
    out: str | None,
    diff: bool,
    unsafe: bool,
    output_format: str,
    quiet: bool,
    no_progress: bool,
    **options: Any,
) -> int:
    """Fix the rows of DATA (one file, or a settings file that names it) as far as that is mechanical, into a new file.

    Each edit is tried on its row and kept only if the rule then finds less in it and nothing else breaks. What needs no
    fix is copied byte for byte. Without -t only what needs no chat template is fixed.

    The exit code is 1 if something is left for a person, and with --diff also where something would change; 3 if
    something that was asked for could not be judged.

    \b
    Examples:
      truetune fix chats.jsonl -t path/to/model --diff
      truetune fix chats.jsonl -t path/to/model -o fixed.jsonl
      truetune fix chats.jsonl -t path/to/model -o fixed.jsonl --select tool-arguments-double-encoded
      truetune fix chats.jsonl -t path/to/model -o fixed.jsonl --unsafe
    """
    from truetune.fixing.fix_file import fix_data_file as run
    from truetune.report.fix_terminal import fix_result_json, render_fix_result
    from truetune.report.progress_bars import checking_bar

    if out is None and not diff:
        raise UsageError(
            "say where the fixed rows go with -o FILE, or see the changes first with --diff"
        )
    spec = read_settings_of_run_with_data(options, quiet=quiet)
    as_json = output_format == "json"
    show_hunk = _print_no_hunk if as_json else _print_hunk
    try:
        with checking_bar(off=no_progress or quiet or diff, verb="fixing") as progress:
            fixed = run(
                spec, out, unsafe=unsafe, diff=show_hunk if diff else None, progress=progress
            )
    except KeyboardInterrupt:
        click.echo("truetune: interrupted; nothing was written", err=True)
        raise
    if as_json:
        print_json("fix", fix_result_json(fixed))
    elif quiet and not diff:
        click.echo(fixed.output)
    elif not quiet:
        render_fix_result(fixed, make_console(err=diff), spec, dry_run=diff)
    return fixed.exit_code()


def _print_no_hunk(text: str) -> None:
    """Print no hunk: in the JSON the diff is a field, and no hunk is printed by itself."""


def _print_hunk(text: str) -> None:
    """Print a hunk of the diff: into a file or pipe as it is, for `patch`; on a terminal, with what
    would steer it made visible.
    """
    from truetune.report.visible_text import escape_invisible_characters

    if sys.stdout.isatty():
        click.echo(
            "".join(
                f"{escape_invisible_characters(line)}\n" for line in text.rstrip("\n").split("\n")
            ),
            nl=False,
        )
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()
