"""`truetune doctor`: is this environment, or another one, fit for training?"""

from __future__ import annotations

from typing import Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import Delivery, add_report_options
from truetune.cli.shared_options import spec_of_options


@click.command(cls=Command, short_help="Is this environment fit to train? Versions, GPUs, limits.")
@click.option(
    "--python",
    metavar="PATH",
    help="Interpreter of another environment (default: the one that runs truetune).",
)
@click.option("--no-imports", is_flag=True, help="Only read versions; import nothing.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Limit for one import.",
)
@add_report_options
def doctor(python: str | None, no_imports: bool, timeout: float, **options: Any) -> int:
    """Examine the environment that trains: versions that are known to misbehave together, packages that can't be
    imported, GPUs that torch can't use, bf16, flash attention, the cache, limits and variables.

    Imports happen in separate processes, so a broken torch is a finding and not a crash. The exit code is 1 if
    a finding is an error.

    \b
    Examples:
      truetune doctor
      truetune doctor --python axolotl-env/bin/python
      truetune doctor --no-imports --json
    """
    from truetune.checks.check_environment import doctor as examine
    from truetune.report.progress_bars import waiting_line

    deliver = Delivery.of(options)
    spec = spec_of_options(options)
    with waiting_line(off=deliver.quiet) as say:
        report = examine(python, spec=spec, load=not no_imports, timeout=timeout, say=say)
    return deliver(report)
