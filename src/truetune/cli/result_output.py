"""Writes results where the user wants them: to the terminal, a file, or in a form for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truetune.cli.shell_completion import complete_rule_names
from truetune.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from truetune.checks.reports import Report
    from truetune.settings.run_spec import RunSpec

NOT_JUDGED = 3
"""The exit code where something that was asked for could not be judged"""
SEVERITIES = ("error", "warning", "info")
ENDINGS = {".json": "json", ".sarif": "sarif"}
"""What a file is to hold, by its name, where --format does not say"""
OUTPUTS = (
    "output",
    "out",
    "html",
    "save",
    "looks",
    "schema",
    "cache",
    "file",
    "rows_out",
    "install",
)
"""Parameters that name what is written; every other one that names a path is an input"""
NAMED_ONLY = {("init", "out")}
"""Commands and parameters that name what a later command writes"""


class CaseCount(click.ParamType[int]):
    """A parameter type: how many cases are shown, a number or `all`."""

    name = "cases"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> int:
        """Read a number, or `all`."""
        if value == "all":
            return sys.maxsize
        if isinstance(value, int) or (str(value).isascii() and str(value).isdecimal()):
            return int(value)
        self.fail(f"{value!r}: expected a number or `all`", param, context)


CASES = CaseCount()
SHOWN_CASES = 3  # as checks.findings.SHOWN_CASES, which is not imported for --help


def add_format_options(*forms: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--format`, and `--json`, which is short for one of its values; both give
    `output_format`.
    """

    def chosen(context: click.Context, _: click.Parameter, value: str | None) -> str:
        if context.meta.pop(f"{__name__}.json", False):
            if value not in (None, "json"):
                raise click.UsageError(f"--json and --format {value} exclude each other")
            return "json"
        return value or _format_by_file_name(context) or "terminal"

    def short(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.meta[f"{__name__}.json"] = value

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option(
            "--json",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=short,
            help="Short for --format json.",
        )(command)
        return click.option(
            "--format",
            "output_format",
            type=click.Choice(["terminal", "json", *forms]),
            callback=chosen,
            help="What to print (terminal).",
        )(command)

    return add


def _format_by_file_name(context: click.Context) -> str | None:
    """The format that the name of --output asks for, as in `report.json`."""
    name = context.params.get("output")
    return ENDINGS.get(Path(name).suffix) if isinstance(name, str) else None


quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only the outcome.")
progress_option = click.option("--no-progress", is_flag=True, help="No progress bar.")


def print_json(kind: str, value: Mapping[str, Any]) -> None:
    """Print a JSON object of schema `truetune.KIND/1`, in ASCII; what is no number in JSON becomes null."""
    click.echo(json.dumps(_add_schema_and_version(kind, value), indent=2, default=str))


def _add_schema_and_version(kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """A result with its schema and truetune's version at the head; what is no number in JSON
    becomes null.
    """
    from truetune.package import __version__
    from truetune.report.audit_terminal import replace_non_finite

    made: dict[str, Any] = replace_non_finite(
        {"schema": f"truetune.{kind}/1", "truetune": __version__, **value}
    )
    return made


def _check_html_page_file(
    context: click.Context, _param: click.Parameter, value: str | None
) -> str | None:
    """Check a page's file as the option is read. Raises UsageError."""
    if value is not None:
        refuse_unsafe_result_file(value, "html", context)
    return value


html_option = click.option(
    "--html",
    metavar="FILE",
    callback=_check_html_page_file,
    help="Write a page to this file as well.",
)


def write_html_page(path: str | None, kind: str, value: Mapping[str, Any]) -> None:
    """Write the HTML page of a result, where a file is named for it."""
    if path is not None:
        from truetune.report.page import html_page_of_json

        write_result_file(path, html_page_of_json(_add_schema_and_version(kind, value)), "html")


def add_report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that ends in a report; `Delivery.of` takes them."""
    options: list[Callable[..., Any]] = [
        click.option("--select", multiple=True, metavar="RULE", shell_complete=complete_rule_names,
                     help="Only these rules, by name, code, beginning of a code, or fault; or stable, preview."
                     " Repeatable."),
        click.option("--ignore", multiple=True, metavar="RULE", shell_complete=complete_rule_names,
                     help="Not these rules. Repeatable."),
        click.option("--fail-on", type=click.Choice(SEVERITIES),
                     help="Lowest severity that makes the exit code 1 (error)."),
        click.option("--allow-unjudged", is_flag=True, default=None,
                     help="Exit with 0, not 3, if something could not be judged."),
        add_format_options("sarif"),
        click.option("--brief", is_flag=True,
                     help="With --json: only verdict, counts, findings with first place and fix, for assistants."),
        click.option("-o", "--output", metavar="FILE", is_eager=True,
                     help="Write to this file and not to the terminal; .json and .sarif choose the format."),
        click.option("--html", metavar="FILE", help="Write a page to this file as well."),
        click.option("--cases", type=CASES, default=str(SHOWN_CASES), show_default=True, metavar="N|all",
                     help="Places of each finding that the terminal shows; JSON and SARIF have all."),
        click.option("--rows-out", metavar="FILE", help="Write the rows that findings name to this file (JSON lines)."),
        click.option("--baseline", metavar="FILE",
                     help="An earlier report (--json): only findings that it does not have fail."),
        click.option("-v", "--verbose", is_flag=True, help="Show notes (info) as fully as errors, and all facts."),
        click.option("-q", "--quiet", is_flag=True, help="Print only findings."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a report is handed over: printed, and written into files."""

    output_format: str
    output: str | None
    html: str | None
    verbose: bool
    quiet: bool
    cases: int = SHOWN_CASES
    rows_out: str | None = None
    baseline: str | None = None
    brief: bool = False
    """Is the JSON the brief one (`report.brief_json`)?"""

    @classmethod
    def of(cls, options: dict[str, Any]) -> Delivery:
        """Take the options of the delivery out of a command's options. Raises UsageError for a file
        that can't be written.
        """
        return cls(**{name: options.pop(name) for name in cls.__slots__}).check_output_files()

    def check_output_files(self) -> Delivery:
        """Check the files, and give itself. Raises UsageError for a file that can't be written, or
        is none of ours.
        """
        for path, form in (
            (self.output, self.output_format),
            (self.html, "html"),
            (self.rows_out, "rows"),
        ):
            if path is not None:
                refuse_unsafe_result_file(path, form)
        if self.baseline is not None:
            self._baseline_fingerprints()
        if self.brief and self.output_format != "json":
            raise UsageError("--brief is a form of the JSON: give --json as well")
        if self.output is not None and Path(self.output).suffix in (".html", ".htm"):
            raise UsageError(f"{self.output}: a page is written with --html {self.output}")
        return self

    def __call__(self, report: Report, *, err: bool = False) -> int:
        """Draw the report where it should go (`err`: stderr is the terminal); gives the exit code.

        Where a file can't be written the terminal shows it, for it may have cost hours; raises UsageError then.
        """
        if self.baseline is not None:
            from truetune.checks.fingerprint_findings import accept_known_findings

            report = accept_known_findings(report, self._baseline_fingerprints())
        try:
            self.write(report)
        except UsageError:
            self._print_report(report, err=err)
            raise
        if self.output is None:
            self._print_report(report, err=err)
        return report.exit_code()

    def _baseline_fingerprints(self) -> frozenset[str]:
        """The fingerprints of the findings of the baseline."""
        from truetune.report.load_results import read_baseline_fingerprints

        return read_baseline_fingerprints(self.baseline or "")

    def write(self, report: Report) -> None:
        """Write the report into the files that are asked for."""
        if self.rows_out is not None:
            from truetune.report.cited_rows_as_jsonl import cited_rows_as_jsonl

            write_result_file(self.rows_out, cited_rows_as_jsonl(report), "rows", report.spec)
        if self.html is not None:
            from truetune.report.page import html_page_of_report

            write_result_file(self.html, html_page_of_report(report), "html", report.spec)
        if self.output is not None:
            text = self._as_text_of_format(report)
            if self.output_format == "terminal":
                from truetune.report.recognise_files_truetune_may_replace import (
                    add_truetune_signature_line,
                )

                text = add_truetune_signature_line(text)
            write_result_file(self.output, text, self.output_format, report.spec)

    def _print_report(self, report: Report, *, err: bool) -> None:
        """Print the report in its format."""
        if self.output_format == "terminal":
            from truetune.report.report_terminal import render_report

            render_report(
                report,
                make_console(err=err),
                verbose=self.verbose,
                quiet=self.quiet,
                cases=self.cases,
            )
        else:
            click.echo(_encode_utf8(self._as_text_of_format(report)), err=err)

    def _as_text_of_format(self, report: Report) -> str:
        """The report as text in its format."""
        if self.brief:
            from truetune.report.brief_json import make_brief_report

            return make_brief_report(report).as_json()
        if self.output_format == "json":
            from truetune.report.as_json import to_json

            return to_json(report)
        if self.output_format == "sarif":
            from truetune.report.sarif import report_as_sarif

            return report_as_sarif(report)
        from truetune.report.report_terminal import report_as_text

        return report_as_text(report, verbose=self.verbose, quiet=self.quiet, cases=self.cases)


def refuse_unsafe_result_file(path: str, form: str, context: click.Context | None = None) -> None:
    """Raise UsageError for a file that can't be written, is an input of this command, or is no result of ours.

    `form` is one of `report.forms.FORMS`.
    """
    from truetune.data.guard_output_file import refuse_unsafe_output_file
    from truetune.report.recognise_files_truetune_may_replace import FILE_SIGNATURES

    refuse_unsafe_output_file(
        Path(path), FILE_SIGNATURES[form], input_files_named_by_parameters(context)
    )


def write_result_file(path: str, text: str, form: str, spec: RunSpec | None = None) -> None:
    """Write a file whole or not at all; straight into a device or a pipe. Raises UsageError as
    `refuse_unsafe_result_file` does.

    `spec` names inputs that the command line does not: those of a settings file.
    """
    from truetune.data.guard_output_file import write_output_file
    from truetune.report.recognise_files_truetune_may_replace import FILE_SIGNATURES

    write_output_file(
        Path(path),
        _encode_utf8(text),
        FILE_SIGNATURES[form],
        [*input_files_named_by_parameters(), *files_named_by_settings(spec)],
    )


def input_files_named_by_parameters(context: click.Context | None = None) -> list[Path]:
    """The files that the parameters of the running command name, but for those that it writes."""
    context = context or click.get_current_context(silent=True)
    paths = []
    for name, value in context.params.items() if context is not None else ():
        values = value if isinstance(value, tuple) else (value,)
        paths += [
            Path(text)
            for text in values
            if name not in OUTPUTS and isinstance(text, str) and "\0" not in text
        ]
    return paths


def check_outputs_apart(context: click.Context) -> None:
    """Raise UsageError where two outputs that a command is told of are one, or one lies inside the other.

    What nobody named (a default) is left to the command, which may not write it.
    """
    from truetune.data.guard_output_folder import Output, refuse_overlapping_outputs
    from truetune.data.remote_path import parse_data_path

    found = []
    for param in context.command.params:
        name, value = param.name or "", context.params.get(param.name or "")
        if (
            name not in OUTPUTS
            or (context.command.name, name) in NAMED_ONLY
            or not isinstance(value, str)
        ):
            continue
        if (
            context.get_parameter_source(name) != click.core.ParameterSource.COMMANDLINE
            or "\0" in value
        ):
            continue
        option = max(param.opts, key=len) if isinstance(param, click.Option) else name.upper()
        if value != "-":
            found.append(Output(option, parse_data_path(value)))
    refuse_overlapping_outputs(found)


def files_named_by_settings(spec: RunSpec | None) -> list[Path]:
    """The files that settings name."""
    if spec is None:
        return []
    names = [
        *spec.data,
        *spec.eval_data,
        *filter(None, (spec.tokenizer, spec.model, spec.template)),
    ]
    return [Path(name) for name in names if "://" not in name]


def make_console(*, err: bool = False) -> Console:
    """A rich console on the terminal, on stdout or stderr."""
    from rich.console import Console

    return Console(stderr=err, highlight=False, markup=False, emoji=False)


def print_renamed_rules(names: Iterable[str]) -> None:
    """Say on stderr how the rules are called now that a user or a settings file calls by a former name or code."""
    from truetune.checks.former_rule_codes import FORMER_NAMES
    from truetune.checks.rule_families import current_codes_of_former

    for name in names:
        codes = current_codes_of_former(name)
        if name.lower() in FORMER_NAMES:
            current = FORMER_NAMES[name.lower()]
            print_status(
                f"note: {name} is {current} now; the former name is accepted for one release"
            )
        elif len(codes) == 1:
            print_status(
                f"note: {name} is {codes[0]} now; the former code is accepted for one release"
            )
        elif codes:
            families = sorted({code.rstrip("0123456789") for code in codes})
            print_status(
                f"note: {name} means rules of {', '.join(families)} now; former codes are accepted for"
                " one release"
            )


def print_status(line: str) -> None:
    """Print one line of truetune's own on stderr, which a command that runs beside it does not read."""
    from truetune.report.visible_text import escape_invisible_characters

    # Nobody may read stderr any more; the run that is watched has to continue.
    with suppress(OSError):
        click.echo(f"truetune: {escape_invisible_characters(line)}", err=True)


def status_printer(*, quiet: bool) -> Callable[[str], None]:
    """`print_status`, or a function that prints nothing."""
    return (lambda line: None) if quiet else print_status


def _encode_utf8(text: str) -> bytes:
    """A text as UTF-8; half a surrogate pair (of a file's name) as an escape."""
    return text.encode("utf-8", "backslashreplace")
