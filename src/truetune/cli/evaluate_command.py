"""`truetune evaluate`: a model's losses, stops and answers on held-out rows, alone or against another model."""

from __future__ import annotations

from typing import Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.options_opening_finished_model import add_model_options, take_model_options
from truetune.cli.result_output import Delivery, add_report_options, progress_option
from truetune.cli.shared_options import add_row_options, take_row_settings


@click.command(cls=Command, short_help="Measure a model on held-out rows, against its base.")
@click.argument("model", metavar="MODEL")
@click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="Rows to measure on (default: those that the model's run held out). Repeatable.",
)
@click.option(
    "--against",
    metavar="OTHER",
    help="Compare with another model on the same rows, pair by pair; base: the adapter's base.",
)
@click.option(
    "--answers",
    type=click.IntRange(0, 100_000),
    default=0,
    show_default=True,
    metavar="N",
    help="Number of answers to generate, for metrics of answers.",
)
@click.option(
    "--parser",
    metavar="NAME",
    help=(
        "Read answers and references, and try that first: json, json-schema:FILE, number, choice, "
        "regex:PATTERN, python:FILE.py:function."
    ),
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
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Largest number of rows, chosen by --seed; also for tasks.",
)
@click.option(
    "--trained-on",
    multiple=True,
    metavar="PATH",
    help="Rows that the model was trained on, if its run does not say. Repeatable.",
)
@click.option(
    "--tasks", metavar="NAMES", help="Tasks of lm-eval, with commas between: arc_easy,gsm8k."
)
@click.option("--include", metavar="DIR", help="Folder of lm-eval task files of your own.")
@click.option(
    "--fewshot",
    type=click.IntRange(0),
    metavar="N",
    help="Examples before each question of a task.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, max_open=True),
    default=0.95,
    show_default=True,
    metavar="SHARE",
    help="Confidence of intervals.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed for choosing rows and for the bootstrap.",
)
@click.option(
    "--max-length",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="Longest example (default: the run's, and at most what the model has positions for).",
)
@add_row_options
@add_model_options
@add_report_options
@progress_option
def evaluate(
    model: str, tasks: str | None, max_length: int | None, no_progress: bool, **options: Any
) -> int:
    """Measure MODEL on held-out rows, rendered and encoded as in its training: the loss of each kind of token with its
    interval, whether the model knows where answers end, and with --answers what its answers are worth.

    MODEL is the folder of a model or an adapter, a .gguf file, or the URL of a server. Rows that it was trained on are
    measured apart. The exit code is 1 if a finding is an error.

    \b
    Examples:
      truetune evaluate outputs/adapter --data held-out.jsonl --against base
      truetune evaluate outputs/adapter --data sums.jsonl --answers 200 --parser number
      truetune evaluate outputs/merged --tasks arc_easy --limit 200
    """
    from truetune.evaluation.evaluate_losses_and_answers import evaluate_model as measure
    from truetune.report.progress_bars import generation_bar
    from truetune.training.prove_merge_or_export import quiet_transformers_bars_and_warnings

    deliver = Delivery.of(options)
    settings = take_row_settings(options) | ({"max_length": max_length} if max_length else {})
    opened = take_model_options(options)
    names = [name for name in (tasks or "").split(",") if name]
    quiet_transformers_bars_and_warnings()
    with generation_bar(off=no_progress or deliver.quiet) as progress:
        report = measure(
            model, tasks=names, options=opened, progress=progress, **options, **settings
        )
    return deliver(report)
