"""The commands that look: check, lint, diagnose, show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truetune.cli.helping import Command
from truetune.cli.options import row_options, row_settings, run_of, settings_of, spec_options
from truetune.cli.output import (
    Delivery,
    console,
    emit,
    form_options,
    progress_option,
    report_options,
)
from truetune.errors import UsageError
from truetune.trainers.facts import NAMES, TrainerName

if TYPE_CHECKING:
    from truetune.spec.kind import Kind


@click.command(cls=Command, short_help="Check data, configs, scripts, logs and checkpoints.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@spec_options
@click.option(
    "--eval-data",
    multiple=True,
    metavar="PATH",
    help="Evaluation data, compared with the data for leaks. Repeatable.",
)
@click.option(
    "--trainer",
    "trained_by",
    type=click.Choice(NAMES),
    help=(
        "Whose trainer will read the rows; else that of the settings or the script among the paths."
    ),
)
@click.option(
    "--base", metavar="DIR", help="The base model of an adapter or a tuned model, to compare with."
)
@report_options
@progress_option
def check(paths: tuple[str, ...], base: str | None, no_progress: bool, **options: Any) -> int:
    """Check whatever PATH is: what will this fine-tune really learn, or what did it?

    \b
    data (files, folders, globs), with -t TOKENIZER; a tokenizer or model folder
    settings: truetune.yaml, Axolotl, LLaMA-Factory, TRL
    Python scripts, notebooks, shell scripts and job files, folders of them
    a run's folder or log; an adapter or a saved model

    What is learned, and how bad a finding is, depends on the trainer: the first line names it, and says so where it is
    not known. docs/trainers-facts.md lists what is known of each.

    The exit code is 1 where a finding is at or above --fail-on.

    \b
    Examples:
      truetune check chats.jsonl -t path/to/model --trainer trl
      truetune check data/*.parquet -t path/to/model --max-length 4096 --html report.html
      truetune check axolotl.yaml
      truetune check train.py outputs/run-3
      truetune check                            (settings from truetune.yaml)
    """
    from truetune.checks.look import look
    from truetune.fixing.tried_edits import with_tried_edits
    from truetune.report.progress_bars import checking_bar
    from truetune.spec.files import CONFIG

    deliver = Delivery.of(options)
    kinds = {path: _kinds_if_known(path, options["trained_by"]) for path in paths}
    if options["config"] is None and (
        own := next((path for path in paths if kinds[path][:1] == ("truetune",)), None)
    ):
        options["config"] = str(Path(own, CONFIG) if Path(own).is_dir() else own)
        paths = tuple(path for path in paths if path != own or kinds[path][1:])
    given = options["config"] is not None
    about_data = not paths or any(
        kinds[path] and kinds[path][0] in ("data", "encoded", "tokenizer") for path in paths
    )
    spec, settings = settings_of(options, quiet=deliver.quiet, whole=about_data)
    settings = settings if given or not paths else None
    with checking_bar(off=no_progress or deliver.quiet) as progress:
        report = with_tried_edits(
            look(paths, spec, settings=settings, base=base, progress=progress)
        )
    return deliver(report)


def _kinds_if_known(path: str, trained_by: TrainerName | None) -> tuple[Kind, ...]:
    """What a path is; nothing for one that is there and of no known kind, which the check itself says."""
    from truetune.checks.look import kinds_of

    try:
        return kinds_of(path, trained_by)
    except UsageError:
        if Path(path).exists():
            return ()
        raise


@click.command(
    cls=Command, short_help="Check Python sources, notebooks and shell scripts, and fix them."
)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--fix", is_flag=True, help="Fix what can be fixed without a change of meaning elsewhere."
)
@click.option("--unsafe-fixes", is_flag=True, help="Fix also where the change may need a review.")
@click.option(
    "--diff",
    is_flag=True,
    help="Print the changes as a patch instead of findings, and write nothing.",
)
@progress_option
@report_options
def lint(
    paths: tuple[str, ...],
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    no_progress: bool,
    **options: Any,
) -> int:
    """Check Python files, notebooks and shell scripts (PATH: files, or folders of them; default: here) for code and
    commands that spoil training or serving.

    The exit code is 1 where a finding that is left is at or above --fail-on. `# truetune: ignore[RULE]` on a line keeps
    a finding there quiet.

    \b
    Examples:
      truetune lint train.py
      truetune lint --diff src notebooks
      truetune lint --fix train.py
    """
    from truetune.checks.lint import lint as run
    from truetune.report.progress_bars import linting_bar
    from truetune.report.visible_text import count_noun

    deliver = Delivery.of(options)
    settings = {name: value for name, value in options.items() if value not in (None, ())}
    with linting_bar(off=no_progress or deliver.quiet) as progress:
        report = run(
            paths or (".",), fix=fix, unsafe=unsafe_fixes, diff=diff, progress=progress, **settings
        )
    for change in report.changes if diff else ():
        click.echo(change.diff, nl=False)
    code = report.exit_code() if diff else deliver(report)
    said = []
    if report.changes:
        done = count_noun(sum(len(change.mended) for change in report.changes), "finding")
        verb = "would be fixed" if diff else "fixed"
        said.append(
            f"{done} {verb} in {len(report.changes):,} of {count_noun(report.files, 'file')}"
        )
    if report.suppressed:
        said.append(
            f"{count_noun(report.suppressed, 'finding')} kept quiet by `# truetune: ignore`"
        )
    if said and not deliver.quiet:
        click.echo("; ".join(said), err=True)
    return code


@click.command(cls=Command, short_help="Find out from a run's log what went wrong.")
@click.argument("run", metavar="RUN")
@click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="The run's training data: what its loss should be. Repeatable.",
)
@click.option("-t", "--tokenizer", metavar="DIR", help="The run's tokenizer folder, for --data.")
@row_options
@report_options
def diagnose(run: str, **options: Any) -> int:
    """Look at the log of RUN: a run's folder or checkpoint (trainer_state.json), TensorBoard files, JSONL, CSV, W&B; or
    what it printed (run.log, nohup.out, slurm-1.out, a notebook), which says how it ended too.

    The exit code is 1 where a finding is at or above --fail-on.

    \b
    Examples:
      truetune diagnose outputs/run-3
      truetune diagnose nohup.out
      truetune diagnose trainer_log.jsonl --data chats.jsonl -t path/to/model
    """
    from truetune.checks.diagnose import diagnose as look
    from truetune.spec.files import spec_of

    deliver = Delivery.of(options)
    if options["data"] and options["tokenizer"] is None:
        raise UsageError("--data needs the run's tokenizer: name its folder with -t")
    settings = row_settings(options)
    settings |= {name: value for name, value in options.items() if value not in (None, ())}
    return deliver(look(run, spec=spec_of(settings, "command line")))


@click.command(cls=Command, short_help="Show a row token by token.")
@click.argument("data", nargs=-1, metavar="[DATA]...")
@spec_options
@click.option(
    "--row",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Which row, counted from 0 over all files.",
)
@click.option("--ids", is_flag=True, help="Show the id of each token.")
@form_options()
def show(row: int, ids: bool, output_format: str, **options: Any) -> int:
    """Show a row of DATA as the model sees it: every token, where it came from, and which are learned.

    Supervised tokens stand in [brackets]. DATA may be a place as findings name it, with the line behind a colon.

    \b
    Examples:
      truetune show chats.jsonl -t path/to/model --row 3 --ids
      truetune show chats.jsonl:46 -t path/to/model
      truetune show truetune.yaml --json
    """
    from truetune.checks.inspect_tokenized import is_tokenized, view_of_ids
    from truetune.checks.run import view
    from truetune.report.token_view_terminal import render_view, view_json

    line = None
    if len(options["data"]) == 1 and not Path(options["data"][0]).exists():
        name, _, number_of_line = options["data"][0].rpartition(":")
        if name and number_of_line.isdecimal():
            options["data"], line = (name,), int(number_of_line)
    spec = run_of(options)
    if spec.data and is_tokenized(spec.data[0], spec):
        views = [view_of_ids(spec, spec.data[0], row, line=line)]
    else:
        views = view(spec, row, line=line)
    if output_format == "json":
        emit("show", {"examples": [view_json(example) for example in views]})
        return 0
    terminal = console()
    for number, token_view in enumerate(views):
        if number:
            terminal.print()
        render_view(token_view, terminal, ids=ids, number=number)
    return 0
