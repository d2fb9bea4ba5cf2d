"""The command line: parse, call one public function, draw, exit.

Exit codes: 0 clean, 1 findings at or above --fail-on, 2 usage or input error, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import truetune
from truetune.errors import TruetuneError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from truetune.checks.run import Progress
    from truetune.spec.run import RunSpec

SEVERITIES = ("error", "warning", "info")


def main() -> None:
    """Run the command line and exit."""
    try:
        code = commands.main(standalone_mode=False)
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = 2
    except TruetuneError as error:
        if os.environ.get("TRUETUNE_DEBUG"):
            raise
        for line in str(error).splitlines():
            click.echo(f"truetune: error: {line}", err=True)
        code = 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 130
    except OSError as error:
        click.echo(f"truetune: error: {error.filename or 'output'}: {error.strerror}", err=True)
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(truetune.__version__, prog_name="truetune")
def commands() -> None:
    """Show, prove and guarantee what an LLM fine-tune really learns."""


def spec_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that describe a run; each has its field in RunSpec, and in truetune.yaml."""
    options = [
        click.argument("data", nargs=-1),
        click.option("-t", "--tokenizer", help="Tokenizer folder, or a model of the local hub cache."),
        click.option("--model", help="Folder of config.json and weights, where it is not the tokenizer's."),
        click.option("--eval-data", multiple=True, help="Evaluation data, compared with DATA for leaks. Repeatable."),
        click.option("--data-format", "format", help="Format of the rows: messages, sharegpt, alpaca, "
                     "prompt-completion, text, preference or kto. Found by the columns when not given."),
        click.option("--map", "pairs", multiple=True, metavar="OURS=THEIRS",
                     help="Column names: --map answer=output. Repeatable."),
        click.option("--template", help="Name of one of the tokenizer's chat templates, or a .jinja file."),
        click.option("--template-kwarg", "variables", multiple=True, metavar="NAME=JSON",
                     help="Variable for the template: --template-kwarg enable_thinking=false. Repeatable."),
        click.option("--learn", type=click.Choice(["assistant", "last", "completion", "all"]),
                     help="What is supervised: every assistant turn (default), the last, the completion, or all."),
        click.option("--no-reasoning", is_flag=True, help="Do not supervise reasoning."),
        click.option("--no-tool-calls", is_flag=True, help="Do not supervise tool calls."),
        click.option("--history", type=click.Choice(["as-served", "single"]),
                     help="One example per turn where the template rewrites history (as-served, default), or one "
                     "in all."),
        click.option("--mask-by", type=click.Choice(["contract", "generation-tags", "response-marker"]),
                     help="How the trainer finds the supervised tokens."),
        click.option("--response-marker", help="The text before each answer, for a trainer that masks by it."),
        click.option("--append-eos", is_flag=True, help="The trainer appends EOS to plain text (TRL does)."),
        click.option("--max-length", type=int, help="Longest example of the run, in tokens."),
        click.option("--select", multiple=True, metavar="RULE", help="Only these rules, by name or code. Repeatable."),
        click.option("--ignore", multiple=True, metavar="RULE", help="Not these rules. Repeatable."),
        click.option("--fail-on", type=click.Choice(SEVERITIES), help="Lowest severity that makes the exit code 1."),
        click.option("--config", help="Settings file; else truetune.yaml here, else [tool.truetune] in "
                     "pyproject.toml."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@commands.command()
@spec_options
@click.option("--format", "output_format", type=click.Choice(["terminal", "json", "sarif"]), default="terminal",
              help="What to print.")  # fmt: skip
@click.option("-o", "--output", help="Write it to this file and not to the terminal.")
@click.option("--html", help="Write a page to this file as well.")
@click.option("-v", "--verbose", is_flag=True, help="Show notes (info) as fully as errors.")
@click.option("-q", "--quiet", is_flag=True, help="Print findings alone.")
@click.option("--no-progress", is_flag=True, help="No progress bar.")
def check(
    output_format: str, output: str | None, html: str | None, verbose: bool, quiet: bool, no_progress: bool,
    **options: Any,
) -> int:  # fmt: skip
    """Check DATA (files, folders, globs) with a tokenizer: what will this fine-tune really learn?

    \b
    Examples:
      truetune check chats.jsonl -t path/to/model
      truetune check data/*.parquet -t path/to/model --max-length 4096 --html report.html
      truetune check                            (settings from truetune.yaml)
    """
    from truetune.checks.run import check as run

    spec, source = _spec(options)
    if not spec.data:
        raise UsageError("no data is named; give files after `truetune check`, or `data:` in truetune.yaml")
    if source is not None and not quiet:
        click.echo(f"settings from {source}", err=True)
    with _Bar(no_progress or quiet) as progress:
        report = run(spec, progress=progress)
    if html is not None:
        from truetune.report.html import page

        _write(html, page(report))
    if output_format == "json":
        from truetune.report.as_json import to_json as draw
    elif output_format == "sarif":
        from truetune.report.sarif import to_sarif as draw
    else:
        from truetune.report.terminal import render_report

        if output is None:
            render_report(report, _console(), verbose=verbose, quiet=quiet)
            return int(report.failed())

        from truetune.report.terminal import as_text as draw
    if output is None:
        click.echo(draw(report))
    else:
        _write(output, draw(report))
    return int(report.failed())


@commands.command()
@spec_options
@click.option("--row", type=int, default=0, show_default=True, help="Which row, counted from 0 over all files.")
@click.option("--ids", is_flag=True, help="Show the id of each token.")
def show(row: int, ids: bool, **options: Any) -> int:
    """Show a row of DATA as the model sees it: every token, where it came from, and which are learned."""
    from truetune.checks.run import view
    from truetune.report.show import render_view

    spec, _ = _spec(options)
    if not spec.data:
        raise UsageError("no data is named; give a file after `truetune show`")
    for number, token_view in enumerate(view(spec, row)):
        render_view(token_view, _console(), ids=ids, number=number)
    return 0


@commands.command()
def rules() -> int:
    """List the rules."""
    from truetune.report.terminal import render_rules

    render_rules(_console())
    return 0


@commands.command()
@click.argument("rule")
def explain(rule: str) -> int:
    """Show the page of a rule, by name or code: what it does, why it is bad, and how to mend it."""
    from truetune.report.terminal import render_page

    render_page(rule, _console())
    return 0


@commands.command()
def demo() -> int:
    """Check a small data set with planted faults and its mended twin, and prove by training what a pad token can do."""
    from truetune.demo.run import demo as run

    return run(_console())


def _spec(options: dict[str, Any]) -> tuple[RunSpec, Path | None]:
    """Command line over settings file."""
    from truetune.spec.files import find_settings, spec_of

    settings, source = find_settings(options.pop("config"), Path.cwd())
    learn = settings.get("learn", {})
    learn = {"what": learn} if isinstance(learn, str) else dict(learn)
    if options["learn"] is not None:
        learn["what"] = options["learn"]
    learn |= {name: False for name in ("reasoning", "tool_calls") if options.pop(f"no_{name}")}
    given = {
        "map": _pairs(options.pop("pairs"), "--map"),
        "template_kwargs": {k: _value(v) for k, v in _pairs(options.pop("variables"), "--template-kwarg").items()},
        **options,
        "learn": learn,
    }
    for name in ("map", "template_kwargs"):
        given[name] = {**settings.get(name, {}), **given[name]}
    settings |= {name: value for name, value in given.items() if value not in (None, (), {}, False)}
    return spec_of(settings, str(source or "command line")), source


def _pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = {}
    for pair in given:
        name, found, value = pair.partition("=")
        if not found:
            raise UsageError(f"{option} {pair}: expected NAME=VALUE")
        pairs[name] = value
    return pairs


def _value(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


class _Bar:
    """A progress bar on stderr, on a terminal alone."""

    def __init__(self, off: bool) -> None:
        self.off = off or not sys.stderr.isatty()

    def __enter__(self) -> Progress | None:
        if self.off:
            return None
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("checking"), BarColumn(), TextColumn("{task.fields[rows]:,} rows"), TimeRemainingColumn()
        )  # fmt: skip
        self.shown = Progress(*columns, console=Console(stderr=True), transient=True)
        self.shown.start()
        task = self.shown.add_task("", total=None, rows=0)
        return lambda rows, done, total: self.shown.update(task, completed=done, total=total, rows=rows)

    def __exit__(self, *_: object) -> None:
        if not self.off:
            self.shown.stop()


def _write(path: str, text: str) -> None:
    """To a temporary name, to the disk, then to its place."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageError(f"{target}: can't be written: {error.strerror}") from None
