"""`truetune score`: judge answers that somebody else generated and wrote to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import Delivery, add_report_options, input_files_named_by_parameters
from truetune.cli.shared_options import (
    RULE_SETTINGS,
    drop_options_not_given,
    parse_name_value_pairs,
)
from truetune.data.guard_output_file import refuse_unsafe_output_file
from truetune.errors import UsageError


@click.command(cls=Command, short_help="Judge answers that your own code made.")
@click.argument("predictions", metavar="PREDICTIONS")
@click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="The rows that were answered: their prompts and references. Repeatable.",
)
@click.option(
    "--map",
    "columns",
    multiple=True,
    metavar="OURS=THEIRS",
    help=(
        "Column names: --map prediction=resp. Ours: prediction, prompt, reference, step, stopped. "
        "Repeatable."
    ),
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
    metavar="N",
    help="Limit at which the answers were cut.",
)
@click.option(
    "--min-success",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Exit code 1 if the upper bound of the interval for well-formed answers is below SHARE.",
)
@click.option(
    "--save",
    metavar="FILE",
    help="Write the answers with their verdicts to this .jsonl or .parquet file.",
)
@add_report_options
def score(predictions: str, save: str | None, columns: tuple[str, ...], **options: Any) -> int:
    """Judge the answers in PREDICTIONS, as `truetune sample` judges those of a model: empty, looping, in another
    language, repeating the question, far too long, all alike; by step, where the rows have one.

    PREDICTIONS is a JSONL, JSON, CSV or Parquet file with a column of answers, and with prompts (or messages),
    references,
    steps and what ended each answer (finish_reason, stopped) as far as they are known. No model is needed. The exit
    code is 1 if a finding is an error, or if --min-success is missed.

    \b
    Examples:
      truetune score preds.jsonl
      truetune score generated_predictions.jsonl --data held-out.jsonl
      truetune score preds.csv --map prediction=resp --map reference=gold --parser number
    """
    from truetune.evaluation.score_predictions import score as judge_answers

    if save is not None and not save.endswith((".jsonl", ".parquet")):
        raise UsageError(f"--save {save}: expected a .jsonl or .parquet file")
    inputs = input_files_named_by_parameters()
    if save is not None:
        from truetune.evaluation.sample_report import SAMPLES_FORM

        refuse_unsafe_output_file(Path(save), SAMPLES_FORM, inputs)
    deliver = Delivery.of(options)
    settings = drop_options_not_given({name: options.pop(name) for name in RULE_SETTINGS})
    report = judge_answers(
        predictions, columns=dict(parse_name_value_pairs(columns, "--map")), **options, **settings
    )
    try:
        return deliver(report)
    finally:
        if save is not None:
            report.save(save, inputs)
