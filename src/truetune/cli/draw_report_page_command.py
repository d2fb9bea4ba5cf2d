"""`truetune report`: draws one page of runs, and of results that were written as JSON.

Results come from files that anybody may have edited, so what is read of them is checked as it is used, and a page that
cannot be drawn names the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import (
    NOT_JUDGED,
    SEVERITIES,
    refuse_unsafe_result_file,
    write_result_file,
)
from truetune.cli.shell_completion import complete_rule_names
from truetune.errors import DataError, UsageError

if TYPE_CHECKING:
    from truetune.settings.run_spec import Severity

MAX_RUNS = 2
"""The page has two columns: three would be too narrow for the token views (chosen)"""


@click.command(cls=Command, short_help="Draw a page of runs and results.")
@click.argument("paths", nargs=-1, required=True, metavar="RUN_OR_RESULT...")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="The page; with .json the same as JSON.  [default: report.html]",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Write JSON instead of a page; printed if -o names no file.",
)
@click.option(
    "--select",
    multiple=True,
    metavar="RULE",
    shell_complete=complete_rule_names,
    help="Only these rules on runs, by name, code, beginning of a code, or fault. Repeatable.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="RULE",
    shell_complete=complete_rule_names,
    help="Not these rules on runs. Repeatable.",
)
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES),
    default="error",
    show_default=True,
    help="Lowest severity that makes the exit code 1.",
)
@click.option(
    "--allow-unjudged",
    is_flag=True,
    help="Exit with 0, not 3, if something could not be judged.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
def report(
    paths: tuple[str, ...],
    output: str | None,
    as_json: bool,
    fail_on: str,
    quiet: bool,
    allow_unjudged: bool,
    **chosen: Any,
) -> int:
    """Draw one page of a RUN (the folder of a training run, or its log), of two runs side by side, or of a RESULT: a
    JSON file that truetune wrote. Results are folded into the page of the runs.

    \b
    Examples:
      truetune report outputs
      truetune report outputs/run-3 outputs/run-4 -o both.html
      truetune report outputs check.json sample.json evaluate.json
      truetune check chats.jsonl -t path/to/model --json > check.json; truetune report check.json
    """
    result = _join_runs_and_results(paths, fail_on, chosen)
    if result["failed"]:
        code = 1
    elif _is_part_unjudged_or_nothing_to_judge(result) and not allow_unjudged:
        code = NOT_JUDGED
    else:
        code = 0
    if as_json and output is None:
        click.echo(json.dumps(result, indent=2))
        return code
    target = Path(output or "report.html")
    form = "json" if as_json or target.suffix == ".json" else "html"
    refuse_unsafe_result_file(str(target), form)
    body = json.dumps(result, indent=2) if form == "json" else _draw_page(result, paths)
    write_result_file(str(target), body, form)
    if not quiet:
        click.echo(
            f"{target}: {_format_file_size(target.stat().st_size)}; {_outcome_in_one_line(result)}"
        )
    return code


def _is_part_unjudged_or_nothing_to_judge(result: dict[str, Any]) -> bool:
    """Was something that was asked for not judged, or nothing there to judge?"""
    missing = any(
        isinstance(part, dict) and part.get("asked") for part in result.get("not_judged", ())
    )
    return missing or result.get("outcome") == "not judged"


def _join_runs_and_results(
    paths: tuple[str, ...], fail_on: str, chosen: dict[str, Any]
) -> dict[str, Any]:
    """The JSON of one report with all that the paths hold."""
    from truetune.evaluation.training_run_report import build_run_report
    from truetune.report.as_json import report_as_dict
    from truetune.report.load_results import is_truetune_json, join_results, read_result_for_page
    from truetune.settings.run_spec import RunSpec

    written = [path for path in paths if is_truetune_json(path)]
    runs = [path for path in paths if path not in written]
    if len(runs) > MAX_RUNS:
        raise UsageError(f"{len(runs)} runs; at most {MAX_RUNS} fit side by side on one page")
    spec = RunSpec.model_validate({**chosen, "fail_on": fail_on})
    of_files = [(path, read_result_for_page(path)) for path in written]
    of_runs = [("the run", report_as_dict(build_run_report(runs, spec)))] if runs else []
    result = join_results([*of_runs, *of_files])
    result["failed"] = _has_failing_finding_or_part(
        result, [one for _, one in of_files], spec.fail_on
    )
    return result


def _has_failing_finding_or_part(
    result: dict[str, Any], parts: list[dict[str, Any]], fail_on: Severity
) -> bool:
    """Has the page a finding that fails, or a part that is no report on findings and failed by its own measure?"""
    from truetune.checks.findings import RANK
    from truetune.report.as_json import SCHEMA

    if any(part.get("failed") is True for part in parts if part["schema"] != SCHEMA):
        return True
    failing = {severity for severity, rank in RANK.items() if rank >= RANK[fail_on]}
    return any(
        _severity_of_any_finding(finding) in failing for finding in result.get("findings", ())
    )


def _draw_page(result: dict[str, Any], paths: tuple[str, ...]) -> str:
    """The HTML of the page. Raises DataError where a part of a result is not as its schema says."""
    from jinja2 import TemplateError

    from truetune.report.page import html_page_of_json

    try:
        return html_page_of_json(result)
    except (
        LookupError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        TemplateError,
    ) as error:
        raise DataError(
            f"{', '.join(paths)}: not as its schema says ({type(error).__name__}: {error}); let the"
            " command write it again"
        ) from error


def _format_file_size(count: int) -> str:
    """A file size in words: `1.2 MB`, `340 kB`"""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"


def _severity_of_any_finding(finding: Any) -> str:
    """The severity of a finding in a result that anybody may have edited: empty where it is no
    finding.
    """
    return str(finding.get("severity")) if isinstance(finding, dict) else ""


def _outcome_in_one_line(result: dict[str, Any]) -> str:
    """How many findings of each severity a result has, or else its outcome, in one line."""
    from truetune.report.page.findings_section import describe_outcome_without_findings
    from truetune.report.visible_text import count_noun

    if (result["failed"] and not result.get("findings")) or "findings" not in result:
        return str(result.get("summary"))
    severities = [_severity_of_any_finding(finding) for finding in result["findings"]]
    counts = []
    for severity, noun in zip(SEVERITIES, ("error", "warning", "note"), strict=True):
        count = severities.count(severity)
        if count:
            counts.append(count_noun(count, noun))
    return ", ".join(counts) or describe_outcome_without_findings(result)[0]
