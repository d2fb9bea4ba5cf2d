"""The command that audits a run as it starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truetune.cli.helping import Command
from truetune.cli.output import NOT_JUDGED, Delivery, report_options
from truetune.errors import UsageError

if TYPE_CHECKING:
    from truetune.auditing.run import Outcome
    from truetune.probe.record import Record


@click.command(
    cls=Command,
    short_help="Run a training command with an audit inside.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--batches", type=click.IntRange(1, 1000), default=8, show_default=True, metavar="N",
              help="Micro-batches of each process to look at.")  # fmt: skip
@click.option("--laws", type=click.Choice(["quick", "all", "none"]), default="quick", show_default=True,
              help="Laws to test on the model: a few forward passes, or copies of it too.")  # fmt: skip
@click.option("--on-error", type=click.Choice(["stop", "warn"]), default="stop", show_default=True,
              help="Stop the run on findings at or above --fail-on, or let it continue: the exit code is "
                   "COMMAND's own then.")  # fmt: skip
@click.option("--canary", is_flag=True, help="Send a marked row through the trainer's own preparation.")
@click.option("--batch-keys", metavar="OURS=YOURS,...",
              help="Which of the batch's tensors are input_ids, labels, ...: input_ids=tokens,labels=1 (a key, or a "
                   "place in a tuple).")  # fmt: skip
@report_options
def run(
    command: tuple[str, ...],
    batches: int,
    laws: str,
    on_error: str,
    canary: bool,
    batch_keys: str | None,
    **options: Any,
) -> int:
    """Run COMMAND unchanged, and audit what reaches the loss when its transformers.Trainer begins to train.

    The first train() of each trainer class in each process is looked at; the report goes to stderr. With findings at
    or above --fail-on the run ends there with exit code 1. Else its exit code is COMMAND's own; where that is 0 and
    something could not be judged it is 3.

    \b
    Examples:
      truetune run -- python train.py
      truetune run --on-error warn -- accelerate launch train.py
      truetune run --html audit.html -- trl sft --config sft.yaml
      truetune run -- axolotl train axolotl.yaml
    """
    from truetune.auditing.run import run as start
    from truetune.checks.audit import audit
    from truetune.spec.files import spec_of

    deliver = Delivery.of(options)
    if deliver.output_format != "terminal" and deliver.output is None:
        raise UsageError(f"--format {deliver.output_format} needs -o FILE: the terminal is the command's own")
    spec = spec_of({name: value for name, value in options.items() if value not in (None, ())}, "command line")
    verdicts: list[int] = []

    def judge(records: Sequence[Record]) -> bool:
        report = audit(records, spec)
        verdicts.append(numbered(deliver, len(verdicts))(report, err=True))
        return verdicts[-1] != 1 or on_error == "warn"

    orders = {"mode": "audit", "batches": batches, "laws": laws, "canary": canary, "keys": pairs_of(batch_keys)}
    outcome = start(command, orders, judge, say)
    if not outcome.reached and not outcome.lost:
        say(f"nothing was audited: {unseen(outcome)}")
    if on_error == "warn":
        return outcome.code
    if 1 in verdicts:
        return 1
    lost = outcome.lost or not verdicts or NOT_JUDGED in verdicts
    return outcome.code or (NOT_JUDGED if lost and not spec.allow_unjudged else 0)


def pairs_of(text: str | None) -> dict[str, str | int]:
    """`input_ids=tokens,labels=1` as a mapping. Raises UsageError where it is none."""
    made: dict[str, str | int] = {}
    for pair in filter(None, (text or "").split(",")):
        name, _, key = (part.strip() for part in pair.partition("="))
        if not name or not key:
            raise UsageError(f"--batch-keys {pair!r}: expected OURS=YOURS, as in input_ids=tokens,labels=1")
        made[name] = int(key) if key.isdecimal() else key
    return made


def say(line: str) -> None:
    """One line on stderr."""
    from truetune.report.text import visible

    with suppress(OSError):  # nobody reads it any more
        click.echo(f"truetune: {visible(line)}", err=True)


def speaker(*, quiet: bool) -> Callable[[str], None]:
    """`say`, or nothing at all."""
    return (lambda line: None) if quiet else say


def unseen(outcome: Outcome) -> str:
    """Why there is no report."""
    if outcome.code >= 128:
        return "the command was ended before"
    before = f" before the command ended with exit code {outcome.code}" if outcome.code and not outcome.loops else ""
    imported = "transformers was imported, but " if outcome.waiting else ""
    return f"{imported}no transformers Trainer reached train(){before}"


def numbered(deliver: Delivery, before: int) -> Delivery:
    """The files of a command's second report are FILE-2, those of its third FILE-3."""
    if not before:
        return deliver
    output, html = (path and str(Path(path).with_stem(f"{Path(path).stem}-{before + 1}"))
                    for path in (deliver.output, deliver.html))  # fmt: skip
    return replace(deliver, output=output, html=html)
