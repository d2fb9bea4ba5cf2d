"""`truetune train`: checks, rehearses, trains and samples a run; with --launch, in several
processes.

Each process of a launch runs this same command; the first one speaks for all, the others only where they alone fail.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import (
    Delivery,
    add_format_options,
    html_option,
    make_console,
    print_json,
    quiet_option,
)
from truetune.errors import FindingsError, FirstProcessFailed, TruetuneError, UsageError

RANK = int(os.environ.get("RANK") or 0)
"""Which process of a run this is"""
NOT_LAUNCHED_PARAMETERS = ("launch", "config_file", "output_format")
"""Parameters that the processes of a launch do not get"""
LAUNCHER_GRACE_SECONDS = 3
"""Seconds in which a launcher ends this process, where the first one has failed too and has said why"""


@click.command(
    cls=Command, short_help="Train (SFT, LoRA, DPO, ORPO, KTO, GRPO), checked and watched."
)
@click.argument("settings", metavar="SETTINGS")
@click.option(
    "-o",
    "--output",
    "out",
    metavar="DIR",
    help="Folder of the run (default: training.output_dir, then ./outputs).",
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting over those of SETTINGS: --set training.learning_rate=1e-4. Repeatable.",
)
@click.option("--force", is_flag=True, help="Train in spite of findings; the record says so.")
@click.option("--no-rehearsal", is_flag=True, help="Do not rehearse the run in miniature first.")
@click.option(
    "--stop-on",
    type=click.Choice(["error", "warning"]),
    help="End the run early if its answers show a finding of this severity.",
)
@click.option(
    "--fit",
    is_flag=True,
    help="Change settings until the run goes into the GPU's memory, and say which.",
)
@click.option(
    "--gpu", metavar="SIZE", help="Memory of one GPU, such as 24GB (default: this machine's)."
)
@click.option(
    "--launch", type=click.IntRange(min=1), metavar="N", help="Train in N processes, one a GPU."
)
@click.option(
    "--accelerate-config",
    "config_file",
    metavar="FILE",
    help="accelerate's own file, for --launch: FSDP, DeepSpeed.",
)
@add_format_options()
@html_option
@quiet_option
def train(
    settings: str,
    out: str | None,
    pairs: tuple[str, ...],
    force: bool,
    no_rehearsal: bool,
    stop_on: str | None,
    fit: bool,
    gpu: str | None,
    launch: int | None,
    config_file: str | None,
    output_format: str,
    html: str | None,
    quiet: bool,
) -> int:
    """Train as SETTINGS (a truetune.yaml, see `truetune init`) says.

    Nothing is trained, and the exit code is 1, where a preflight check finds an error. It is 1 too where the
    answers show an error while it trains; the weights are still saved then.

    \b
    Examples:
      truetune train truetune.yaml --html run.html
      truetune train truetune.yaml -o outputs/second --set training.learning_rate=1e-4
      truetune train truetune.yaml --launch 2
    """
    if launch is not None:
        if output_format == "json":
            raise UsageError("--json and --launch exclude each other")
        return _launch_same_command(launch, config_file)
    if config_file is not None:
        raise UsageError(
            f"--accelerate-config {config_file} is for several processes: add --launch N"
        )
    import truetune
    from truetune.cli.plan_gpu_memory_command import parse_nested_settings
    from truetune.report.as_json import findings_json, not_judged_json
    from truetune.report.live_training_progress_terminal import TrainingTerminal
    from truetune.settings.read_truetune_settings import merge_settings

    over = parse_nested_settings(pairs) | ({"rehearsal": False} if no_rehearsal else {})
    over = merge_settings(over, {"watch": {"stop_on": stop_on}} if stop_on else {})
    if html is not None:
        _refuse_page_in_run_folder(html, settings, out, over)
    listener = TrainingTerminal(make_console(err=True), quiet=quiet)
    machine = output_format == "json" and RANK == 0
    with (
        _print_errors_with_process_number(),
        _silence_libraries_and_handle_ctrl_c(),
        _print_refusing_findings_as_json(machine),
    ):
        done = truetune.train(
            settings, out=out, force=force, fit=fit, gpu_memory=gpu, listener=listener, **over
        )
    if html is not None and RANK == 0:
        _write_report_page(str(done.folder), html)
    if machine:
        print_json(
            "train",
            {
                "folder": done.folder,
                "steps": done.steps,
                "loss": done.loss,
                "seconds": done.seconds,
                "failed": done.failed,
                "findings": findings_json(done.findings),
                "not_judged": not_judged_json(done.not_judged),
            },
        )
    elif RANK == 0:
        click.echo(done.folder)
    return done.exit_code


def _refuse_page_in_run_folder(
    html: str, settings: str, out: str | None, over: dict[str, Any]
) -> None:
    """Raise UsageError where the page would lie in the folder of the run, which the settings may name."""
    from truetune.data.guard_output_folder import Output, refuse_overlapping_outputs
    from truetune.settings.read_truetune_settings import (
        find_own_settings_and_file,
        merge_settings,
        validate_settings,
    )
    from truetune.training.run_training import DEFAULT_OUTPUT

    if out is None:
        spec = validate_settings(
            merge_settings(find_own_settings_and_file(settings, Path())[0], over), settings
        )
        out = spec.training.output_dir or DEFAULT_OUTPUT
    refuse_overlapping_outputs([Output("the run", Path(out)), Output("--html", Path(html))])


def _write_report_page(folder: str, html: str) -> None:
    """Write the page of `truetune report` on a run."""
    from truetune.evaluation.training_run_report import build_run_report
    from truetune.settings.run_spec import RunSpec

    Delivery("terminal", output=None, html=html, verbose=False, quiet=True).write(
        build_run_report([folder], RunSpec())
    )


@contextmanager
def _print_refusing_findings_as_json(machine: bool) -> Iterator[None]:
    """While this lasts: the findings that keep a run from its first step are printed as JSON, for a
    `machine`.
    """
    try:
        yield
    except FindingsError as error:
        if machine:
            from truetune.report.as_json import findings_json

            print_json(
                "train", {"folder": None, "failed": True, "findings": findings_json(error.findings)}
            )
        raise


@contextmanager
def _silence_libraries_and_handle_ctrl_c() -> Iterator[None]:
    """While this lasts: no progress bars and announcements of libraries; Ctrl-C is answered by a
    word.
    """
    os.environ |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    warnings.filterwarnings("ignore", category=FutureWarning)
    try:
        yield
    except KeyboardInterrupt as error:
        if RANK == 0:
            click.echo(
                f"truetune: {error or 'interrupted: the same command begins again'}", err=True
            )
        raise


@contextmanager
def _print_errors_with_process_number() -> Iterator[None]:
    """While this lasts: an error of the first process is printed there alone; that of another, with
    its number.
    """
    try:
        yield
    except TruetuneError as error:
        if RANK == 0:
            raise
        time.sleep(LAUNCHER_GRACE_SECONDS)
        click.echo(f"truetune: error in process {RANK}: {error}", err=True)
        raise click.exceptions.Exit(2) from None
    except FirstProcessFailed:
        raise click.exceptions.Exit(0) from None


def _launch_same_command(processes: int, config_file: str | None) -> int:
    """Start the same command, without NOT_PASSED, in several processes; gives the exit code."""
    from truetune.training.launch_processes import launch_processes

    context = click.get_current_context()
    given = [
        _parameter_as_arguments(param, value)
        for param in context.command.params
        if param.name not in NOT_LAUNCHED_PARAMETERS
        and (value := context.params.get(param.name or ""))
    ]
    return launch_processes(
        processes, config_file, ["train", *chain(*given)], lambda line: click.echo(line, err=True)
    )


def _parameter_as_arguments(param: click.Parameter, value: Any) -> list[str]:
    """A parameter as arguments of a command line."""
    if isinstance(param, click.Argument) or value is True:
        return [value if value is not True else param.opts[-1]]
    values = value if param.multiple else [value]
    return [text for item in values for text in (param.opts[-1], str(item))]
