"""`truetune reward`: what does a reward function of GRPO or RLOO pay for?"""

from __future__ import annotations

from typing import Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import Delivery, add_report_options
from truetune.cli.shared_options import spec_of_options


@click.command(cls=Command, short_help="Attack a reward function of GRPO: what does it pay for?")
@click.argument("function", metavar="FUNCTION")
@click.option(
    "--data",
    multiple=True,
    required=True,
    metavar="PATH",
    help="Rows with the prompts and right answers. Repeatable.",
)
@click.option(
    "--reference",
    metavar="COLUMN",
    help="The column with the right answers (default: what FUNCTION takes, as answer or solution).",
)
@click.option(
    "--golden",
    metavar="COLUMN",
    help="A column of whole completions that FUNCTION should pay, for code and the like.",
)
@click.option(
    "--answer-form",
    "forms",
    multiple=True,
    metavar="TEXT",
    help="A further form of an answer, with {} in its place: '<a>{}</a>'. Repeatable.",
)
@click.option(
    "--completions",
    "completions_as",
    type=click.Choice(["auto", "text", "messages"]),
    default="auto",
    show_default=True,
    help="What FUNCTION gets as completions; auto: as the prompts are.",
)
@click.option(
    "--rows",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    metavar="N",
    help="Rows that are tried.",
)
@click.option(
    "--call-seconds",
    type=click.FloatRange(0.1, 600),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="That one completion may take; more in one call get more.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="After which nothing more is tried.",
)
@click.option(
    "--guard",
    type=click.Choice(["system", "python"]),
    default="system",
    show_default=True,
    help="python: run FUNCTION although the system can't confine it.",
)
@add_report_options
def reward(
    function: str,
    data: tuple[str, ...],
    reference: str | None,
    golden: str | None,
    forms: tuple[str, ...],
    completions_as: Any,
    rows: int,
    call_seconds: float,
    max_seconds: float,
    guard: str,
    **options: Any,
) -> int:
    """Call a reward function as TRL does, and see what it pays for.

    FUNCTION is FILE.py:NAME or MODULE:NAME. It gets right answers in some 30 forms, then wrong, empty and repeated
    ones, lists of all answers, prompts, and right answers in thoughts; the same completions again, in another order and
    alone; and texts that make functions raise or hang. It runs in a process that can write nowhere but in a temporary
    folder and reaches no other machine. Where math-verify is installed, its verdicts on the same completions are shown
    beside those of FUNCTION. The exit code is 1 where a finding is an error.

    \b
    Examples:
      truetune reward rewards.py:correct --data train.jsonl
      truetune reward train_grpo.py:format_reward --data train.jsonl --rows 5
      truetune reward rewards.py:runs_code --data tasks.jsonl --golden solution_text
    """
    from truetune.errors import UsageError
    from truetune.rewards.check_reward import check_reward
    from truetune.rewards.trial_in_progress import TrialOptions
    from truetune.rewards.verifiers import VERIFIERS

    bad = next((form for form in forms if form.count("{}") != 1), None)
    if bad is not None:
        raise UsageError(f"--answer-form {bad}: expected one {{}}, the place of the answer")
    deliver = Delivery.of(options)
    report = check_reward(
        function,
        data,
        rows=rows,
        options=TrialOptions(
            seconds=call_seconds,
            max_seconds=max_seconds,
            reference=reference,
            golden=golden,
            own_forms=forms,
            completions_as=completions_as,
            python_only=guard == "python",
            verifiers=VERIFIERS,
        ),
        spec=spec_of_options(options),
    )
    return deliver(report)
