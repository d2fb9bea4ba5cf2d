"""Where results go: the terminal, a file, a form for programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truetune.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from truetune.checks.report import Report

SEVERITIES = ("error", "warning", "info")


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that ends in a report; `Delivery.of` takes them."""
    options = [
        click.option("--select", multiple=True, metavar="RULE", help="Only these rules, by name or code. Repeatable."),
        click.option("--ignore", multiple=True, metavar="RULE", help="Not these rules. Repeatable."),
        click.option(
            "--fail-on", type=click.Choice(SEVERITIES), help="Lowest severity that makes the exit code 1 (error)."
        ),
        click.option(
            "--format",
            "output_format",
            type=click.Choice(["terminal", "json", "sarif"]),
            default="terminal",
            help="What to print.",
        ),
        click.option("-o", "--output", metavar="FILE", help="Write it to this file and not to the terminal."),
        click.option("--html", metavar="FILE", help="Write a page to this file as well."),
        click.option("-v", "--verbose", is_flag=True, help="Show notes (info) as fully as errors, and all facts."),
        click.option("-q", "--quiet", is_flag=True, help="Print findings alone."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a report is handed over."""

    output_format: str
    output: str | None
    html: str | None
    verbose: bool
    quiet: bool

    @classmethod
    def of(cls, options: dict[str, Any]) -> Delivery:
        """Taken out of a command's options. Raises UsageError for a file that can't be written."""
        made = cls(**{name: options.pop(name) for name in cls.__slots__})
        for path in (made.output, made.html):
            if path is not None and not (folder := Path(path).resolve().parent).is_dir():
                raise UsageError(f"{path}: can't be written: there is no folder {folder}")
        return made

    def __call__(self, report: Report, *, err: bool = False) -> int:
        """Draw the report where it should go (`err`: stderr is the terminal); gives the exit code.

        Where a file can't be written the terminal shows it, for it may have cost hours; raises UsageError then."""
        try:
            self._write(report)
        except UsageError:
            self._draw(report, err=err)
            raise
        if self.output is None:
            self._draw(report, err=err)
        return int(report.failed())

    def _write(self, report: Report) -> None:
        """Into files, as far as they are asked for."""
        if self.html is not None:
            from truetune.report.html import page

            _write(self.html, page(report))
        if self.output is not None:
            _write(self.output, self._drawn(report))

    def _draw(self, report: Report, *, err: bool) -> None:
        if self.output_format == "terminal":
            from truetune.report.terminal import render_report

            render_report(report, console(err=err), verbose=self.verbose, quiet=self.quiet)
        else:
            click.echo(_encoded(self._drawn(report)), err=err)

    def _drawn(self, report: Report) -> str:
        if self.output_format == "json":
            from truetune.report.as_json import to_json

            return to_json(report)
        if self.output_format == "sarif":
            from truetune.report.sarif import to_sarif

            return to_sarif(report)
        from truetune.report.terminal import as_text

        return as_text(report, verbose=self.verbose, quiet=self.quiet)


def console(*, err: bool = False) -> Console:
    """The terminal."""
    from rich.console import Console

    return Console(stderr=err, highlight=False, markup=False, emoji=False)


def _encoded(text: str) -> bytes:
    """UTF-8; half a surrogate pair (of a file's name) as an escape."""
    return text.encode("utf-8", "backslashreplace")


def _write(path: str, text: str) -> None:
    """Whole or not at all; straight into a device or a pipe."""
    from truetune.data import atomic

    try:
        if Path(path).exists() and not Path(path).is_file():
            Path(path).write_bytes(_encoded(text))
            return
        atomic.write(Path(path).resolve(), _encoded(text))
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from None
