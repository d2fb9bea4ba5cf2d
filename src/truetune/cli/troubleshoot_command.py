"""`truetune troubleshoot`: which of the causes of a symptom is it, by the files that are there?"""

from __future__ import annotations

from typing import Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import Delivery, add_report_options, progress_option
from truetune.cli.shared_options import add_spec_options, read_settings


@click.command(cls=Command, short_help="Find the cause of a symptom in the files of a run.")
@click.argument("symptom", metavar="SYMPTOM")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@add_spec_options
@click.option("--base", metavar="DIR", help="The base model of an adapter or a tuned model.")
@add_report_options
@progress_option
def troubleshoot(
    symptom: str, paths: tuple[str, ...], base: str | None, no_progress: bool, **options: Any
) -> int:
    """Find what explains SYMPTOM, said in your own words, in PATH: scripts, settings, jobs, rows, logs, predictions,
    checkpoints, or the folder that holds them.

    All checks are run. What proves a cause of this symptom is shown first, then what else was found, then the causes
    that nothing here proves, by how well they fit your words and files. -v lists all of them.

    The exit code is 1 if a finding is at or above --fail-on.

    \b
    Examples:
      truetune troubleshoot "the loss does not fall" .
      truetune troubleshoot "it never stops" train.py chats.jsonl -t path/to/model
      truetune troubleshoot "CUDA out of memory after 200 steps" train.py train.log
    """
    from truetune.report.progress_bars import checking_bar
    from truetune.troubleshooting.troubleshoot import troubleshoot as find

    deliver = Delivery.of(options)
    spec, _ = read_settings(options, quiet=deliver.quiet, whole=False)
    with checking_bar(off=no_progress or deliver.quiet) as progress:
        report = find(symptom, paths, spec, base=base, progress=progress)
    return deliver(report)
