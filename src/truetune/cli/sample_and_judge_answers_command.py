"""`truetune sample`: ask a model held-out rows and judge the answers; with --watch, those of a run as it trains."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.options_opening_finished_model import add_model_options, take_model_options
from truetune.cli.result_output import (
    Delivery,
    add_report_options,
    input_files_named_by_parameters,
    print_status,
    progress_option,
    status_printer,
)
from truetune.cli.shared_options import add_row_options, take_row_settings
from truetune.data.guard_output_file import refuse_unsafe_output_file
from truetune.errors import UsageError

if TYPE_CHECKING:
    from truetune.evaluation.sample_report import SampleReport


@click.command(cls=Command, short_help="Generate answers to some rows: good? ended? If not, why?")
@click.argument("model", required=False, metavar="[MODEL]")
@click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="Rows to generate answers for (default: those that the model's run held out). Repeatable.",
)
@click.option(
    "-n",
    "--prompts",
    "count",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Prompts.",
)
@click.option("--all-rows", is_flag=True, help="Include rows that the model was trained on.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed for choosing rows.",
)
@click.option(
    "--max-new-tokens",
    type=click.IntRange(1, 100_000),
    default=256,
    show_default=True,
    metavar="N",
    help="Longest answer.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 10),
    default=0.0,
    show_default=True,
    metavar="T",
    help="0 is greedy.",
)
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    metavar="P",
    help="Nucleus sampling: share of probability to sample from.",
)
@click.option(
    "--min-p",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="P",
    help=(
        "Never sample a token less likely than this share of the likeliest; needs a --temperature."
    ),
)
@click.option(
    "--parser",
    metavar="NAME",
    help=(
        "Read answers and references: json, json-schema:FILE, number, choice, regex:PATTERN, "
        "python:FILE.py:function."
    ),
)
@click.option(
    "--against",
    "compare",
    metavar="OTHER",
    help="Compare with another model on the same rows: the base, another checkpoint.",
)
@click.option("--watch", metavar="RUN", help="Instead of MODEL: follow the checkpoints of a run.")
@click.option("--once", is_flag=True, help="With --watch: those that are there.")
@click.option(
    "--looks", metavar="DIR", help="With --watch: folder for the answers (default: RUN-sampled)."
)
@click.option(
    "--diagnose/--no-diagnose",
    default=None,
    help="Always look for causes (default: only if an answer is bad).",
)
@click.option(
    "--min-success",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Exit code 1 if the upper bound of the interval for well-formed answers is below SHARE.",
)
@click.option(
    "--save", metavar="FILE", help="Write the samples to this .jsonl or .parquet file as well."
)
@add_row_options
@add_model_options
@add_report_options
@progress_option
def sample(
    model: str | None, save: str | None, watch: str | None, no_progress: bool, **options: Any
) -> int:
    """Generate answers to held-out rows as a server would, and judge each: does it stop by itself, loop, echo the
    question, leak role markers? Where answers fail, findings name the cause.

    MODEL is the folder of a model or an adapter, a .gguf file, or the URL of a server. The exit code is 1 if a
    finding is an error, or if --min-success is missed.

    \b
    Examples:
      truetune sample outputs/adapter --data held-out.jsonl
      truetune sample outputs/adapter --data held-out.jsonl --against path/to/base
      truetune sample --watch outputs --data held-out.jsonl
      truetune sample http://localhost:8000 --tokenizer outputs/merged --data held-out.jsonl
    """
    if (model is None) == (watch is None):
        raise UsageError("expected either MODEL or --watch RUN")
    if watch is not None and options["compare"] is not None:
        raise UsageError("--against and --watch exclude each other")
    if watch is None and (options["once"] or options["looks"]):
        raise UsageError("--once and --looks are for --watch RUN")
    if save is not None and not save.endswith((".jsonl", ".parquet")):
        raise UsageError(f"--save {save}: expected a .jsonl or .parquet file")
    inputs = input_files_named_by_parameters()
    if save is not None:
        from truetune.evaluation.sample_report import SAMPLES_FORM

        refuse_unsafe_output_file(Path(save), SAMPLES_FORM, inputs)
    deliver = Delivery.of(options)
    settings = take_row_settings(options)
    report = _sample_model_or_run(
        model,
        watch,
        quiet=deliver.quiet,
        bar=not no_progress,
        settings=settings,
        options=take_model_options(options),
        **options,
    )
    try:
        return deliver(report)
    finally:
        if save is not None:
            report.save(save, inputs)


def _sample_model_or_run(
    model: str | None,
    watch: str | None,
    *,
    quiet: bool,
    bar: bool,
    settings: dict[str, Any],
    once: bool,
    looks: str | None,
    compare: str | None,
    **given: Any,
) -> SampleReport:
    """Sample a finished model, or with --watch the checkpoints of a run as it trains."""
    from truetune.evaluation.sample_checkpoints_as_they_appear import follow_checkpoints
    from truetune.evaluation.sample_model import sample_model as ask
    from truetune.report.progress_bars import generation_bar

    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    with generation_bar(off=quiet or not bar) as progress:
        if model is not None:
            return ask(model, compare=compare, progress=progress, **given, **settings)
        try:
            return follow_checkpoints(
                watch or "",
                once=once,
                looks=looks,
                say=status_printer(quiet=quiet),
                progress=progress,
                **given,
                **settings,
            )
        except KeyboardInterrupt:
            print_status(
                "interrupted: the same command resumes, and asks nothing twice; --once shows what"
                " is there"
            )
            raise
