"""The command that draws pages of what is there already: runs, and results that were written as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from truetune.cli.completing import rule_names
from truetune.cli.helping import Command
from truetune.cli.output import NOT_JUDGED, SEVERITIES, check_file, write_file
from truetune.errors import DataError, UsageError

RUNS = 2
"""At most so many side by side"""


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
    help="The same as JSON, printed where no file is named with -o.",
)
@click.option(
    "--select",
    multiple=True,
    metavar="RULE",
    shell_complete=rule_names,
    help="Of rules on runs only these, by name, code or beginning of a code. Repeatable.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="RULE",
    shell_complete=rule_names,
    help="Of rules on runs not these. Repeatable.",
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
    help="Exit with 0, not 3, where something could not be judged.",
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
    result = _result(paths, fail_on, chosen)
    code = 1 if result["failed"] else NOT_JUDGED if _lacks(result) and not allow_unjudged else 0
    if as_json and output is None:
        click.echo(json.dumps(result, indent=2))
        return code
    target = Path(output or "report.html")
    form = "json" if as_json or target.suffix == ".json" else "html"
    check_file(str(target), form)
    body = json.dumps(result, indent=2) if form == "json" else _page(result, paths)
    write_file(str(target), body, form)
    if not quiet:
        click.echo(f"{target}: {_size(target.stat().st_size)}; {_counted(result)}")
    return code


def _lacks(result: dict[str, Any]) -> bool:
    """Is something that was asked for not judged, or was there nothing to judge?"""
    missing = any(
        isinstance(part, dict) and part.get("asked") for part in result.get("not_judged", ())
    )
    return missing or result.get("outcome") == "not judged"


def _result(paths: tuple[str, ...], fail_on: str, chosen: dict[str, Any]) -> dict[str, Any]:
    """All that the paths hold, as one report's JSON."""
    from truetune.checks.findings import RANK
    from truetune.evaluation.run_report import run_report
    from truetune.report.as_json import SCHEMA, as_dict
    from truetune.report.load_results import is_result, join_results, read_result
    from truetune.spec.run import RunSpec

    written = [path for path in paths if is_result(path)]
    runs = [path for path in paths if path not in written]
    if len(runs) > RUNS:
        raise UsageError(f"{len(runs)} runs; at most {RUNS} stand side by side on one page")
    spec = RunSpec.model_validate({**chosen, "fail_on": fail_on})
    found = [("the run", as_dict(run_report(runs, spec)))] if runs else []
    read = [(path, read_result(path)) for path in written]
    result, severe = (
        join_results([*found, *read]),
        {name for name, rank in RANK.items() if rank >= RANK[spec.fail_on]},
    )
    others = any(one.get("failed") is True for _, one in read if one["schema"] != SCHEMA)
    result["failed"] = others or any(
        _severity(finding) in severe for finding in result.get("findings", ())
    )
    return result


def _page(result: dict[str, Any], paths: tuple[str, ...]) -> str:
    """Raises DataError where a part of a result is not as its schema says."""
    from jinja2 import TemplateError

    from truetune.report.page import page_of

    try:
        return page_of(result)
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


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"


def _severity(finding: Any) -> str:
    return str(finding.get("severity")) if isinstance(finding, dict) else ""


def _counted(result: dict[str, Any]) -> str:
    from truetune.report.page.findings_section import outcome_in_words
    from truetune.report.visible_text import count_noun

    if (result["failed"] and not result.get("findings")) or "findings" not in result:
        return str(result.get("summary"))
    severities = [_severity(finding) for finding in result["findings"]]
    counts = {
        noun: severities.count(name)
        for name, noun in zip(SEVERITIES, ("error", "warning", "note"), strict=True)
    }
    return (
        ", ".join(count_noun(count, noun) for noun, count in counts.items() if count)
        or outcome_in_words(result)[0]
    )
