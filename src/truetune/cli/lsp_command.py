"""`truetune lsp`: findings in editors, by the Language Server Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from truetune.cli.check_lint_diagnose_show_commands import check_paths_as_asked, trainer_option
from truetune.cli.help_layout import Command
from truetune.cli.shared_options import add_spec_options
from truetune.errors import UsageError

if TYPE_CHECKING:
    from truetune.checks.reports import Report

PACKAGES = ("pygls", "lsprotocol", "cattrs", "attrs")


@click.command(cls=Command, short_help="Show findings in an editor (LSP, stdio).")
@add_spec_options
@trainer_option
def lsp(**options: Any) -> int:
    """Serve findings to an editor, by the Language Server Protocol on stdin and stdout.

    A file is checked when it is opened and when it is saved, as `truetune check FILE` checks it in the folder that the
    editor starts the server in. Where a finding has an edit, it is offered as a quick fix. Nothing is written.

    It needs the extra lsp: pip install 'truetune[lsp]'.

    \b
    Examples:
      truetune lsp
      truetune lsp -t path/to/model --trainer trl
    """
    try:
        from truetune.editors.language_server import serve_over_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        raise UsageError(
            "truetune lsp needs the package pygls: pip install 'truetune[lsp]'"
        ) from None

    def check_file(path: str) -> Report:
        # A check takes options out of what it is given, so each file has a copy of its own.
        return check_paths_as_asked((path,), None, dict(options), quiet=True, no_progress=True)

    serve_over_stdio(check_file)
    return 0
