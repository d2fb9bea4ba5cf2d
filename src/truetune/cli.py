"""The command line: parse, call one public function, draw, exit.

Exit codes: 0 clean, 1 findings at or above --fail-on, 2 usage or input error, 130 interrupted, 141 the reader of the
output has gone.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import truetune
from truetune.errors import TruetuneError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from truetune.checks.report import DataReport
    from truetune.spec.run import RunSpec

FORMATS = ("messages", "sharegpt", "alpaca", "prompt-completion", "text", "preference", "kto")
LEARN = ("assistant", "last", "completion", "all")
MASKS = ("contract", "generation-tags", "response-marker")
SEVERITIES = ("error", "warning", "info")
OVERFLOWS = ("drop", "error", "truncate-prompt", "split")
ENCODING = ("overflow", "packing", "content_specials", "on_error", "file_format", "loss_weights", "trainer")
TRAINERS = ("transformers", "axolotl", "llama-factory")
SETTINGS = (".yaml", ".yml", ".toml")


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run())


def _run() -> int:
    try:
        return int(commands.main(prog_name="truetune", standalone_mode=False) or 0)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return 130
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        help_on = f" (see {context.command_path} --help)" if context else ""
        return _failed(error.format_message() + help_on)
    except TruetuneError as error:
        return _failed(str(error), debug=bool(os.environ.get("TRUETUNE_DEBUG")))
    except (BrokenPipeError, SystemExit):  # click and rich turn a broken pipe into SystemExit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except OSError as error:
        return _failed(f"{error.filename or 'output'}: {error.strerror}", debug=bool(os.environ.get("TRUETUNE_DEBUG")))
    except Exception as error:
        return _failed(f"this is a bug of truetune, please report it: {error!r}", debug=True)


def _failed(message: str, *, debug: bool = False) -> int:
    from truetune.report.text import visible

    if debug:
        traceback.print_exc()
    for line in message.split("\n"):
        click.echo(f"truetune: error: {visible(line)}", err=True)
    return 2


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, invoke_without_command=True
)
@click.version_option(truetune.__version__, prog_name="truetune")
@click.pass_context
def commands(context: click.Context) -> None:
    """Show, prove and guarantee what an LLM fine-tune really learns."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def spec_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that describe a run; each has its field in RunSpec, and in truetune.yaml."""
    options = [
        click.argument("data", nargs=-1),
        click.option("-t", "--tokenizer", help="Tokenizer folder, or a model of the local hub cache."),
        click.option("--model", help="Folder of config.json and weights, where it is not the tokenizer's."),
        click.option("--data-format", "format", type=click.Choice(FORMATS), metavar="FORMAT",
                     help=f"Format of the rows: {', '.join(FORMATS)}. Found by the columns when not given."),
        click.option("--map", "pairs", multiple=True, metavar="OURS=THEIRS",
                     help="Column names: --map answer=output. Repeatable."),
        click.option("--template", help="Name of one of the tokenizer's chat templates, or a .jinja file."),
        click.option("--template-kwarg", "variables", multiple=True, metavar="NAME=JSON",
                     help="Variable for the template: --template-kwarg enable_thinking=false. Repeatable."),
        click.option("--learn", type=click.Choice(LEARN),
                     help="What is supervised: every assistant turn (default), the last, the completion, or all."),
        click.option("--no-reasoning", is_flag=True, help="Do not supervise reasoning."),
        click.option("--no-tool-calls", is_flag=True, help="Do not supervise tool calls."),
        click.option("--history", type=click.Choice(["as-served", "single"]),
                     help="One example per turn where the template rewrites history (as-served, default), or one "
                     "in all."),
        click.option("--mask-by", type=click.Choice(MASKS), help="How the trainer finds the supervised tokens."),
        click.option("--response-marker", help="The text before each answer, for a trainer that masks by it."),
        click.option("--append-eos", is_flag=True, default=None,
                     help="The trainer appends EOS to plain text (TRL does)."),
        click.option("--max-length", type=click.IntRange(min=1), metavar="TOKENS",
                     help="Longest example of the run, in tokens."),
        click.option("--config", metavar="FILE", help="Settings file; else truetune.yaml here, else [tool.truetune] in "
                     "pyproject.toml."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@commands.command(short_help="Check data with a tokenizer: what will be learned?")
@spec_options
@click.option("--eval-data", multiple=True, help="Evaluation data, compared with DATA for leaks. Repeatable.")
@click.option("--select", multiple=True, metavar="RULE", help="Only these rules, by name or code. Repeatable.")
@click.option("--ignore", multiple=True, metavar="RULE", help="Not these rules. Repeatable.")
@click.option("--fail-on", type=click.Choice(SEVERITIES), help="Lowest severity that makes the exit code 1.")
@click.option("--format", "output_format", type=click.Choice(["terminal", "json", "sarif"]), default="terminal",
              help="What to print.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="Write it to this file and not to the terminal.")
@click.option("--html", metavar="FILE", help="Write a page to this file as well.")
@click.option("-v", "--verbose", is_flag=True, help="Show notes (info) as fully as errors, and the tokenizer's facts.")
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

    spec = _spec(options, quiet=quiet)
    for path in (output, html):
        if path is not None and not (folder := Path(path).resolve().parent).is_dir():
            raise UsageError(f"{path}: can't be written: there is no folder {folder}")
    from truetune.report.progress import checking

    with checking(off=no_progress or quiet) as progress:
        report = run(spec, progress=progress)
    if html is not None:
        from truetune.report.html import page

        _write(html, page(report))
    if output is not None:
        _write(output, _drawn(report, output_format, verbose, quiet))
    elif output_format == "terminal":
        from truetune.report.terminal import render_report

        render_report(report, _console(), verbose=verbose, quiet=quiet)
    else:
        click.echo(_encoded(_drawn(report, output_format, verbose, quiet)))
    return int(report.failed())


@commands.command(short_help="Show a row token by token.")
@spec_options
@click.option("--row", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Which row, counted from 0 over all files.")  # fmt: skip
@click.option("--ids", is_flag=True, help="Show the id of each token.")
def show(row: int, ids: bool, **options: Any) -> int:
    """Show a row of DATA as the model sees it: every token, where it came from, and which are learned.

    DATA may be a place as findings name it: `truetune show chats.jsonl:46 -t path/to/model`.
    """
    from truetune.checks.run import view
    from truetune.report.show import render_view

    line = None
    if len(options["data"]) == 1 and not Path(options["data"][0]).exists():
        name, _, number_of_line = options["data"][0].rpartition(":")
        if name and number_of_line.isdecimal():
            options["data"], line = (name,), int(number_of_line)
    views = view(_spec(options), row, line=line)
    console = _console()
    for number, token_view in enumerate(views):
        if number:
            console.print()
        render_view(token_view, console, ids=ids, number=number)
    return 0


@commands.command(short_help="Encode data once: input_ids and labels for any trainer.")
@spec_options
@click.option(
    "-o",
    "--out",
    metavar="DIR",
    help="Folder to write, or the URI of one (s3://bucket/folder). Without it: a folder of --cache, named by its key.",
)
@click.option("--cache", metavar="DIR", help="Where encoded data is kept and found again (default: the user's cache).")
@click.option(
    "--overflow",
    type=click.Choice(OVERFLOWS),
    help="An example longer than --max-length: leave it out (default), end the run, leave out its oldest turns "
    "and then the beginning of its question, or share its turns out.",
)
@click.option(
    "--packing",
    type=click.Choice(["none", "best-fit"]),
    help="Several examples in one row of at most --max-length tokens.",
)
@click.option(
    "--content-specials",
    type=click.Choice(["error", "keep", "text"]),
    help="Control tokens inside contents: an error (default), encoded as they are, or as plain text.",
)
@click.option(
    "--on-error",
    type=click.Choice(["error", "skip"]),
    help="A row that can't be encoded: end the run (default), or write it to rejected.jsonl and go on.",
)
@click.option(
    "--file-format",
    type=click.Choice(["parquet", "arrow"]),
    help="Parquet (default), or Arrow as datasets.load_from_disk takes it.",
)
@click.option(
    "--for",
    "trainer",
    type=click.Choice(TRAINERS),
    help="Who reads the rows: transformers (default; TRL too), or a trainer that wants other columns.",
)
@click.option("--loss-weights", is_flag=True, default=None, help="Write the messages' weights as a column.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Processes (default: one a core).")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="This machine, or a Ray cluster.",
)
@click.option("--dry-run", is_flag=True, help="Encode the first rows only, write nothing, and say what would be.")
@click.option("-q", "--quiet", is_flag=True, help="Print the folder alone.")
@click.option("--no-progress", is_flag=True, help="No progress bar.")
def encode(
    out: str | None, cache: str | None, jobs: int | None, engine: str, dry_run: bool, quiet: bool, no_progress: bool,
    **options: Any,
) -> int:  # fmt: skip
    """Encode DATA (files, folders, globs, or a settings file) with a tokenizer: ids and labels, ready for any trainer.

    \b
    Examples:
      truetune encode chats.jsonl -t path/to/model -o encoded
      truetune encode chats.jsonl -t path/to/model -o packed --max-length 4096 --packing best-fit
      truetune encode truetune.yaml             (settings from a file)
    """
    from truetune.encoding.run import encode as run
    from truetune.encoding.run import estimate
    from truetune.report.encoded import render_encoded, render_estimate
    from truetune.report.progress import encoding

    spec = _spec(options, quiet=quiet)
    if dry_run:
        render_estimate(estimate(spec, out, cache=cache), _console())
        return 0
    try:
        with encoding(off=no_progress or quiet) as progress:
            encoded = run(spec, out, cache=cache, jobs=jobs, engine=engine, progress=progress)
    except KeyboardInterrupt:
        click.echo("truetune: interrupted; run the same command again, and it goes on from here", err=True)
        raise
    if quiet:
        click.echo(encoded.folder)
    else:
        render_encoded(encoded, _console())
    return 0


@commands.command()
def rules() -> int:
    """List the rules."""
    from truetune.report.terminal import render_rules

    render_rules(_console())
    return 0


@commands.command(short_help="Show the page of a rule.")
@click.argument("rule")
def explain(rule: str) -> int:
    """Show the page of a rule, by name or code: what it does, why it is bad, and how to mend it."""
    from truetune.report.terminal import render_page

    render_page(rule, _console())
    return 0


@commands.command(short_help="See it on a small data set that ships with truetune.")
def demo() -> int:
    """Check a small data set with planted faults and its mended twin, and prove by training what a pad token can do."""
    from truetune.demo.run import demo as run

    return run(_console())


def _spec(options: dict[str, Any], *, quiet: bool = False) -> RunSpec:
    """Command line over settings file."""
    from truetune.spec.files import find_settings, spec_of

    config = options.pop("config")
    if config is None and len(options["data"]) == 1 and Path(options["data"][0]).suffix in SETTINGS:
        (config,), options["data"] = options["data"], ()
    settings, source = find_settings(config, Path())
    learn = settings.get("learn", {})
    learn = {"what": learn} if isinstance(learn, str) else learn
    chosen = {"what": what} if (what := options.pop("learn")) else {}
    chosen |= {name: False for name in ("reasoning", "tool_calls") if options.pop(f"no_{name}")}
    encoding = {name: value for name in ENCODING if (value := options.pop(name, None)) is not None}
    variables = {name: _value(name, text) for name, text in _pairs(options.pop("variables"), "--template-kwarg")}
    given = {
        "learn": {**learn, **chosen},
        "encode": {**settings.get("encode", {}), **encoding},
        "map": {**settings.get("map", {}), **dict(_pairs(options.pop("pairs"), "--map"))},
        "template_kwargs": {**settings.get("template_kwargs", {}), **variables},
        **{name: value for name, value in options.items() if value not in (None, ())},
    }
    spec = spec_of({**settings, **given}, "command line")
    if not spec.data:
        command = click.get_current_context().command_path
        raise UsageError(f"no data is named; give a file after `{command}`, or `data:` in truetune.yaml")
    if source is not None and not quiet:
        click.echo(f"settings from {source}", err=True)
    return spec


def _pairs(given: tuple[str, ...], option: str) -> Iterator[tuple[str, str]]:
    for pair in given:
        name, found, value = pair.partition("=")
        if not found:
            raise UsageError(f"{option} {pair}: expected NAME=VALUE")
        yield name, value


def _value(name: str, text: str) -> Any:
    """JSON, or else the text itself."""
    import json

    if text in ("True", "False", "None"):
        raise UsageError(f"--template-kwarg {name}={text}: expected JSON (true, false or null)")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _drawn(report: DataReport, output_format: str, verbose: bool, quiet: bool) -> str:
    if output_format == "json":
        from truetune.report.as_json import to_json

        return to_json(report)
    if output_format == "sarif":
        from truetune.report.sarif import to_sarif

        return to_sarif(report)
    from truetune.report.terminal import as_text

    return as_text(report, verbose=verbose, quiet=quiet)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


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
