"""`truetune view`: every row in the browser, by a small server that answers this machine alone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.shared_options import add_spec_options, read_settings_of_run_with_data
from truetune.errors import UsageError

if TYPE_CHECKING:
    from truetune.settings.run_spec import RunSpec
    from truetune.viewing.local_server import ViewServer


@click.command(
    cls=Command, short_help="Look at the rows of any data in the browser, token by token."
)
@click.argument("data", nargs=-1)
@add_spec_options
@click.option(
    "--row",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Open with this row, counted from 0 over all files.",
)
@click.option(
    "--report",
    "result",
    metavar="FILE",
    help="Mark the rows that findings of this result cite: of `truetune check --json` on DATA.",
)
@click.option(
    "--check",
    "checks",
    is_flag=True,
    help="Check DATA first, and mark the rows that findings cite.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port of the local server; a free one when not given.",
)
@click.option("--no-open", is_flag=True, help="Print the address and open no browser.")
def view(
    row: int, result: str | None, checks: bool, port: int, no_open: bool, **options: Any
) -> int:
    """Show every row of DATA as the model sees it, in the browser: which tokens are learned, and where each came from.

    DATA is what `truetune check` takes (files, folders, globs, caches of token ids), a folder that `truetune encode`
    wrote (with -t), or settings. A small server reads rows when they are looked at, so the data may be of any size; it
    answers this machine alone, at an address that holds a random token. Ctrl-C ends it.

    The page has the totals of all rows, and filters and sorts them by role, file, length and supervised share. With
    --check, or --report of a check that was made before, rows with findings are marked, and can be listed alone.

    \b
    Examples:
      truetune view chats.jsonl -t path/to/model
      truetune view "data/*.parquet" -t path/to/model --row 120000
      truetune view chats.jsonl -t path/to/model --check
      truetune view encoded/ -t path/to/model
      truetune view truetune.yaml --no-open --port 8765     (then: ssh -L 8765:127.0.0.1:8765 this-machine)
    """
    with _exit_at_once_on_ctrl_c():
        from truetune.viewing.view import start_view_server

        spec = read_settings_of_run_with_data(options)
        server = start_view_server(
            spec, port=port, row=row, result=_load_or_check_findings(spec, result, checks=checks)
        )
    try:
        _print_address(server, server.url + (f"#row={row}" if row else ""), opens=not no_open)
        server.serve_forever()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    finally:
        server.server_close()
    return 0


def _load_or_check_findings(
    spec: RunSpec, name: str | None, *, checks: bool
) -> dict[str, Any] | None:
    """The result with the findings that are marked, read or checked now; None where none is asked
    for. Raises a TruetuneError.
    """
    if name is not None and checks:
        raise UsageError("--report and --check: give one of them")
    if name is not None:
        from truetune.report.load_results import read_result_for_page

        return read_result_for_page(name)
    if not checks:
        return None
    from truetune.checks.check_data import check
    from truetune.report.as_json import report_as_dict
    from truetune.report.progress_bars import checking_bar

    with checking_bar(off=False) as progress:
        return report_as_dict(check(spec, progress=progress))


@contextmanager
def _exit_at_once_on_ctrl_c() -> Iterator[None]:
    """While this lasts: Ctrl-C ends the process at once, since an interrupt that Python raises
    within an import may be lost.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print_address(server: ViewServer, url: str, *, opens: bool) -> None:
    """Print where the view is, and open it in the browser if there is one."""
    click.echo(url)
    if notice := server.row_service.notice:
        click.echo(notice, err=True)
    if opens and _has_terminal_and_browser_window():
        import webbrowser

        webbrowser.open(url)


def _has_terminal_and_browser_window() -> bool:
    """Is there a terminal, and a browser with a window: neither a pipe, nor a machine at the other
    end of ssh?
    """
    import os
    import sys

    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("win32", "darwin") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
