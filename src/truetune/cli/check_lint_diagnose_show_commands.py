"""The commands that read and judge without running anything: check, lint, diagnose, show.

`check` takes anything and finds out what it is; the others are for one kind of subject and have its options. Each
reads its options, calls one public function, and hands the report over.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import (
    Delivery,
    add_format_options,
    add_report_options,
    make_console,
    print_json,
    print_renamed_rules,
    progress_option,
)
from truetune.cli.shared_options import (
    add_row_options,
    add_spec_options,
    drop_options_not_given,
    read_settings,
    read_settings_of_run_with_data,
    spec_of_options,
    take_row_settings,
)
from truetune.errors import UsageError
from truetune.trainers.trainer_fact_types import TRAINER_NAMES, TrainerName

if TYPE_CHECKING:
    from truetune.checks.lint import LintReport
    from truetune.checks.reports import Report
    from truetune.settings.recognise_input_kind import InputKind


trainer_option = click.option(
    "--trainer",
    "trained_by",
    type=click.Choice(TRAINER_NAMES),
    help=(
        "The trainer that will read the rows (default: the one of the settings or script among the paths)."
    ),
)


@click.command(cls=Command, short_help="Check data, configs, scripts, logs and checkpoints.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@add_spec_options
@click.option(
    "--eval-data",
    multiple=True,
    metavar="PATH",
    help="Evaluation data, compared with the data for leaks. Repeatable.",
)
@trainer_option
@click.option(
    "--base", metavar="DIR", help="The base model of an adapter or a tuned model, to compare with."
)
@add_report_options
@progress_option
def check(paths: tuple[str, ...], base: str | None, no_progress: bool, **options: Any) -> int:
    """Check whatever PATH is: what will this fine-tune really learn, or what did it?

    \b
    data (files, folders, globs), with -t TOKENIZER; a tokenizer or model folder
    settings: truetune.yaml, Axolotl, LLaMA-Factory, TRL, torchtune, ms-swift
    settings of RL: TRL, ms-swift, verl, OpenRLHF, NeMo RL, prime-rl
    Python scripts, notebooks, shell scripts and job files, folders of them
    a run's folder or log; an adapter or a saved model

    Which tokens the loss is on, and how bad a finding is, depends on the trainer. The first line names it, or says that
    it is unknown. docs/trainers-facts.md lists what is known of each.

    The exit code is 1 if a finding is at or above --fail-on.

    \b
    Examples:
      truetune check chats.jsonl -t path/to/model --trainer trl
      truetune check data/*.parquet -t path/to/model --max-length 4096 --html report.html
      truetune check axolotl.yaml
      truetune check train.py outputs/run-3
      truetune check                            (settings from truetune.yaml)
    """
    deliver = Delivery.of(options)
    no_bar = no_progress or deliver.quiet
    return deliver(
        check_paths_as_asked(paths, base, options, quiet=deliver.quiet, no_progress=no_bar)
    )


def check_paths_as_asked(
    paths: tuple[str, ...],
    base: str | None,
    options: dict[str, Any],
    *,
    quiet: bool,
    no_progress: bool,
) -> Report:
    """Check paths under the options of `truetune check` and the settings file of the current folder.

    Args:
        paths: what the command names.
        base: the base model that a checkpoint is compared with.
        options: the parameters of `add_spec_options`, `eval_data`, `trained_by` and those that choose rules; emptied
            of those that are no field of RunSpec.
        quiet: say nothing about the settings file.
        no_progress: draw no progress bar.

    Raises:
        TruetuneError: a path is nothing that can be judged, or can't be read; or a setting is not valid.
    """
    from truetune.report.progress_bars import checking_bar
    from truetune.troubleshooting.check_project import check_project

    kinds = {path: _input_kinds_if_known(path, options["trained_by"]) for path in paths}
    paths = _move_settings_file_to_config(paths, kinds, options)
    config_is_given = options["config"] is not None
    firsts = {kinds[path][0] for path in paths if kinds[path]}
    about_data = not paths or bool(firsts & {"data", "encoded", "tokenizer"})
    spec, settings = read_settings(options, quiet=quiet, whole=about_data)
    if paths and not config_is_given:
        # The file of the current folder chose rules alone: it is not what was asked to be checked.
        settings = None
    with checking_bar(off=no_progress) as progress:
        return check_project(paths, spec, settings=settings, base=base, progress=progress)


def _move_settings_file_to_config(
    paths: tuple[str, ...], kinds: Mapping[str, tuple[InputKind, ...]], options: dict[str, Any]
) -> tuple[str, ...]:
    """Our own settings among the paths become --config, unless that is given; gives the other paths.

    A folder that is something else as well (it holds a script, a run) stays among the paths.
    """
    from truetune.settings.read_truetune_settings import CONFIG_NAME

    own = next((path for path in paths if kinds[path][:1] == ("truetune",)), None)
    if own is None or options["config"] is not None:
        return paths
    options["config"] = str(Path(own, CONFIG_NAME) if Path(own).is_dir() else own)
    return tuple(path for path in paths if path != own or kinds[path][1:])


def _input_kinds_if_known(path: str, trained_by: TrainerName | None) -> tuple[InputKind, ...]:
    """The kinds of input that a path is; none for one that is there and of no known kind, which the
    check itself says.
    """
    from truetune.checks.paths.path_kinds import kinds_of_path

    try:
        return kinds_of_path(path, trained_by)
    except UsageError:
        if Path(path).exists():
            return ()
        raise


@click.command(cls=Command, short_help="Check and fix Python sources, notebooks, shell scripts.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--fix", is_flag=True, help="Fix what can be fixed without a change of meaning elsewhere."
)
@click.option("--unsafe-fixes", is_flag=True, help="Also make changes that may need a review.")
@click.option(
    "--diff",
    is_flag=True,
    help="Print the changes as a patch instead of findings, and write nothing.",
)
@progress_option
@add_report_options
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

    The exit code is 1 if a finding that is left is at or above --fail-on. `# truetune: ignore[RULE]` on a line keeps
    a finding there quiet.

    \b
    Examples:
      truetune lint train.py
      truetune lint --diff src notebooks
      truetune lint --fix train.py
    """
    from truetune.checks.lint import lint as run
    from truetune.report.progress_bars import linting_bar

    deliver = Delivery.of(options)
    settings = drop_options_not_given(options)
    print_renamed_rules((*options["select"], *options["ignore"]))
    with linting_bar(off=no_progress or deliver.quiet) as progress:
        report = run(
            paths or (".",), fix=fix, unsafe=unsafe_fixes, diff=diff, progress=progress, **settings
        )
    if diff:
        for change in report.changes:
            click.echo(change.diff, nl=False)
        code = report.exit_code()
    else:
        code = deliver(report)
    summary = _lint_summary(report, diff=diff)
    if summary and not deliver.quiet:
        click.echo(summary, err=True)
    return code


def _lint_summary(report: LintReport, *, diff: bool) -> str:
    """What was fixed and what was kept quiet, in a line; empty where there is neither."""
    from truetune.report.visible_text import count_noun

    parts = []
    if report.changes:
        fixed = count_noun(sum(len(change.fixed) for change in report.changes), "finding")
        verb = "would be fixed" if diff else "fixed"
        parts.append(
            f"{fixed} {verb} in {len(report.changes):,} of {count_noun(report.files, 'file')}"
        )
    if report.suppressed:
        quiet = count_noun(report.suppressed, "finding")
        parts.append(f"{quiet} kept quiet by `# truetune: ignore`")
    return "; ".join(parts)


@click.command(cls=Command, short_help="Diagnose the log of a training run.")
@click.argument("run", metavar="RUN")
@click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="The run's training data: what its loss should be. Repeatable.",
)
@click.option("-t", "--tokenizer", metavar="DIR", help="The run's tokenizer folder, for --data.")
@add_row_options
@add_report_options
def diagnose(run: str, **options: Any) -> int:
    """Look at the log of RUN: a run's folder or checkpoint (trainer_state.json), TensorBoard files, JSONL, CSV, W&B; or
    what it printed (run.log, nohup.out, slurm-1.out, a notebook), which says how it ended too.

    The exit code is 1 if a finding is at or above --fail-on.

    \b
    Examples:
      truetune diagnose outputs/run-3
      truetune diagnose nohup.out
      truetune diagnose trainer_log.jsonl --data chats.jsonl -t path/to/model
    """
    from truetune.checks.diagnose_log import diagnose as check_paths

    deliver = Delivery.of(options)
    if options["data"] and options["tokenizer"] is None:
        raise UsageError("--data needs the run's tokenizer: name its folder with -t")
    settings = take_row_settings(options)
    return deliver(check_paths(run, spec=spec_of_options({**settings, **options})))


@click.command(cls=Command, short_help="Show a row token by token.")
@click.argument("data", nargs=-1, metavar="[DATA]...")
@add_spec_options
@click.option(
    "--row",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Which row, counted from 0 over all files.",
)
@click.option("--ids", is_flag=True, help="Show the id of each token.")
@add_format_options()
def show(row: int, ids: bool, output_format: str, **options: Any) -> int:
    """Show a row of DATA as the model sees it: every token, where it came from, and which are learned.

    Supervised tokens are in [brackets]; a line separates the tokens that --max-length drops. DATA may be a place as
    findings name it: the file, a colon and the line.

    \b
    Examples:
      truetune show chats.jsonl -t path/to/model --row 3 --ids
      truetune show chats.jsonl:46 -t path/to/model
      truetune show truetune.yaml --json
    """
    from truetune.checks.check_data import view_row_tokens
    from truetune.checks.inspect_tokenized import is_tokenized, view_tokenized_row
    from truetune.checks.tokens_with_text_source_and_label import range_of_tokens_kept_by_limit
    from truetune.report.token_view_terminal import render_token_view, token_view_json

    line = None
    # FILE:46, as findings name a place; a file may really be called so.
    if len(options["data"]) == 1 and not Path(options["data"][0]).exists():
        name, _, number_of_line = options["data"][0].rpartition(":")
        if name and number_of_line.isdecimal():
            options["data"], line = (name,), int(number_of_line)
    spec = read_settings_of_run_with_data(options)
    if spec.data and is_tokenized(spec.data[0], spec):
        views = [view_tokenized_row(spec, spec.data[0], row, line=line)]
    else:
        views = view_row_tokens(spec, row, line=line)
    kept = [range_of_tokens_kept_by_limit(len(view.ids), view.example.row, spec) for view in views]
    if output_format == "json":
        print_json("show", {"examples": list(map(token_view_json, views, kept))})
        return 0
    terminal = make_console()
    for number, token_view in enumerate(views):
        if number:
            terminal.print()
        render_token_view(token_view, terminal, ids=ids, number=number, kept=kept[number])
    return 0
