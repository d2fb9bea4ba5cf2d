"""`truetune plan`: will the run fit into the GPU's memory, and what would make it fit?"""

from __future__ import annotations

from typing import Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import (
    add_format_options,
    html_option,
    make_console,
    print_json,
    quiet_option,
    write_html_page,
)
from truetune.errors import UsageError
from truetune.parsing.input_limits import FLAG
from truetune.parsing.parse_json_within_limits import JSONDecodeError, parse_json


@click.command(cls=Command, short_help="Does the run fit the GPU? If not, what to change.")
@click.argument("path", metavar="PATH")
@click.option(
    "--model", metavar="DIR", help="The model's folder or config.json, if PATH does not name it."
)
@click.option("--gpu", metavar="SIZE", help="Memory of one GPU: 24GB.")
@click.option("--gpus", type=click.IntRange(min=1), metavar="N", help="GPUs, one process each.")
@click.option(
    "--max-length",
    "length",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="Longest row (default: the run's max_length).",
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help=(
        "A training setting over those of PATH: --set training.lora.r=16, or lora.r=16. Repeatable."
    ),
)
@add_format_options()
@html_option
@quiet_option
def plan(
    path: str,
    model: str | None,
    gpu: str | None,
    gpus: int | None,
    length: int | None,
    pairs: tuple[str, ...],
    output_format: str,
    html: str | None,
    quiet: bool,
) -> int:
    """Estimate the peak GPU memory of the run that PATH describes: settings of any stack, a script, or a model folder.

    With --gpu, the exit code is 1 if the run does not fit, and remedies are listed in order; -q prints the verdict
    alone. A run that fits without the margin for fragments alone is a warning: exit code 0.

    \b
    Examples:
      truetune plan axolotl.yaml --gpu 24GB
      truetune plan train.py --gpu 24GB --html plan.html
      truetune plan path/to/model --gpu 80GB --gpus 2 --max-length 4096 --set training.lora.r=16
    """
    from truetune.checks.plan_memory import config_with_changed_training, plan_of_config
    from truetune.report.memory_plan_terminal import plan_page_values, render_plan
    from truetune.settings.read_truetune_settings import merge_settings

    memory_plan = plan_of_config(
        config_with_changed_training(
            path, merge_settings(*_training_and_other_settings(parse_nested_settings(pairs)))
        ),
        model=model,
        gpu_memory=gpu,
        gpus=gpus,
        length=length,
    )
    value = plan_page_values(memory_plan)
    write_html_page(html, "plan", value)
    if output_format == "json":
        print_json("plan", value)
    else:
        render_plan(memory_plan, make_console(), quiet=quiet)
    return int(memory_plan.verdict == "too large")


def _training_and_other_settings(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(settings of the training, other settings): the first may be under `training`, or named
    without it.
    """
    return settings.pop("training", {}), settings


def parse_nested_settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Parse NAME=VALUE pairs with dotted names: `lora.r=16` as {"lora": {"r": 16}}."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals_sign, text = pair.partition("=")
        if not equals_sign:
            raise UsageError(f"--set {pair}: expected NAME=VALUE")
        *parents, last = name.replace("-", "_").split(".")
        place = settings
        for parent in parents:
            place = place.setdefault(parent, {})
        try:
            place[last] = parse_json(
                text, FLAG, unique_keys=True, surrogates="refuse", exact_integers=True
            )
        except JSONDecodeError:
            place[last] = text
        except ValueError as error:
            raise UsageError(f"--set {name}: {error}") from None
    return settings
