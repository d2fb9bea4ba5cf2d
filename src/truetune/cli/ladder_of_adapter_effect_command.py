"""`truetune ladder`: the stage at which an adapter's effect is lost (merged, exported, served)."""

from __future__ import annotations

from typing import Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.options_opening_finished_model import add_model_options, take_model_options
from truetune.cli.result_output import (
    add_format_options,
    html_option,
    make_console,
    print_json,
    quiet_option,
    status_printer,
    write_html_page,
)


@click.command(
    cls=Command, short_help="Where an adapter's effect is lost: merged, exported, served?"
)
@click.argument("adapter", metavar="ADAPTER")
@click.option("--merged", metavar="DIR", help="The merged model.")
@click.option(
    "--export",
    "exported",
    multiple=True,
    metavar="PATH",
    help="An exported folder or .gguf file. Repeatable.",
)
@click.option("--endpoint", metavar="URL", help="A server that serves it.")
@click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="Take the prompts from these rows (default: built-in questions). Repeatable.",
)
@click.option(
    "-n",
    "--prompts",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    metavar="N",
    help="Prompts.",
)
@add_model_options
@add_format_options()
@html_option
@quiet_option
def ladder(
    adapter: str,
    output_format: str,
    html: str | None,
    quiet: bool,
    tokenizer: str | None,
    **options: Any,
) -> int:
    """Score the same answers at every stage of ADAPTER: on its base, saved and reloaded, merged in memory, and, if you
    name them, merged on the disk, exported, served.

    The adapter must change their log-probabilities alike at every stage, in size and direction. The first stage that
    differs is where its effect is lost; the exit code is then 1, also if a stage can't be measured.

    \b
    Examples:
      truetune ladder outputs --html ladder.html
      truetune ladder outputs --merged merged --export gguf/model.gguf --endpoint http://localhost:8000
    """
    from truetune.report.adapter_effect_ladder_terminal import ladder_page_values, render_ladder
    from truetune.serving.compare_adapter_forms import compare_adapter_forms as climb
    from truetune.training.prove_merge_or_export import quiet_transformers_bars_and_warnings as hush

    hush()
    made = climb(
        adapter,
        tokenizer=tokenizer,
        options=take_model_options(options),
        say=status_printer(quiet=quiet),
        **options,
    )
    value = ladder_page_values(made)
    write_html_page(html, "ladder", value)
    if output_format == "json":
        print_json("ladder", value)
    else:
        render_ladder(made, make_console(), quiet=quiet)
    return int(value["failed"])
