"""The command that audits a run as it starts."""

from __future__ import annotations

import shlex
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
    from truetune.probe.run_record import Record
    from truetune.spec.run import RunSpec

SIGNALS = 128
"""Exit codes from here on say which signal ended a command, as shells number them"""
LAST_LINES = 8
"""Of what a command printed before it failed"""
READ_LINES = 60
"""Of what it printed, in which the cause is looked for: what stands further up did not end it"""
ENDED_FROM_OUTSIDE = (137, 139)
"""SIGKILL and SIGSEGV, as shells number them: no process could leave a traceback"""


@click.command(
    cls=Command,
    short_help="Run a training command with an audit inside.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "--batches",
    type=click.IntRange(1, 1000),
    default=8,
    show_default=True,
    metavar="N",
    help="Micro-batches of each process to look at.",
)
@click.option(
    "--laws",
    type=click.Choice(["quick", "all", "none"]),
    default="quick",
    show_default=True,
    help="Laws to test on the model: a few forward passes, or copies of it too.",
)
@click.option(
    "--on-error",
    type=click.Choice(["stop", "warn"]),
    default="stop",
    show_default=True,
    help=(
        "Stop the run on findings at or above --fail-on, or let it continue: the exit code is "
        "COMMAND's own then."
    ),
)
@click.option(
    "--canary", is_flag=True, help="Send a marked row through the trainer's own preparation."
)
@click.option(
    "--batch-keys",
    metavar="OURS=YOURS,...",
    help=(
        "Which of the batch's tensors are input_ids, labels, ...: input_ids=tokens,labels=1 (a key,"
        " or a place in a tuple)."
    ),
)
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
    """Run COMMAND unchanged, and audit what reaches the loss: when its transformers.Trainer begins to train, or after
    the first steps of a loop of its own.

    The first train() of each trainer class in each process is looked at, or the first loop that trains a model of
    transformers; the report goes to stderr. With findings at or above --fail-on the run ends there with exit code 1.
    Else its exit code is COMMAND's own; where that is 0 and something could not be judged it is 3. Where the command
    ends in an exception or is killed, a second report says what is known of that.

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
        raise UsageError(
            f"--format {deliver.output_format} needs -o FILE: the terminal is the command's own"
        )
    spec = spec_of(
        {name: value for name, value in options.items() if value not in (None, ())}, "command line"
    )
    verdicts: list[int] = []

    def judge(records: Sequence[Record]) -> bool:
        report = audit(records, spec)
        verdicts.append(numbered(deliver, len(verdicts))(report, err=True))
        return verdicts[-1] != 1 or on_error == "warn"

    orders = {
        "mode": "audit",
        "batches": batches,
        "laws": laws,
        "canary": canary,
        "keys": pairs_of(batch_keys),
    }
    outcome = start(command, orders, judge, say)
    if not outcome.reached and not outcome.lost:
        say(f"nothing was audited: {unaudited(outcome)}")
    stopped = 1 in verdicts and on_error == "stop"
    if outcome.code and not stopped:
        tell_the_end(outcome, command, spec, numbered(deliver, len(verdicts)), seen=bool(verdicts))
    if on_error == "warn":
        return outcome.code
    if stopped:
        return 1
    lost = outcome.lost or not verdicts or NOT_JUDGED in verdicts
    return outcome.code or (NOT_JUDGED if lost and not spec.allow_unjudged else 0)


def tell_the_end(
    outcome: Outcome, command: Sequence[str], spec: RunSpec, deliver: Delivery, *, seen: bool
) -> None:
    """What is known of a command that failed: the report on what ended it, and what it printed last.

    `seen`: was a batch of it judged? Where none was, a report that is asked for says so: it is never clean.
    """
    from truetune.checks.diagnose import diagnose_end

    if outcome.code >= SIGNALS and outcome.code not in ENDED_FROM_OUTSIDE:
        return
    printed = lines_of(outcome.printed)
    text = outcome.tracebacks or "\n".join(printed)
    report = diagnose_end(text, shlex.join(command), outcome.code, spec=spec, seen=seen)
    if printed and not outcome.tracebacks and not report.findings:
        say(f"the command ended with exit code {outcome.code}; it printed last:")
        for line in printed[-LAST_LINES:]:
            say(f"  {line}")
    if report.findings or (not seen and (deliver.output or deliver.html)):
        deliver(report, err=True)


def lines_of(printed: str) -> list[str]:
    """The last lines that were printed, without empty ones; of a progress bar what stands there at its end."""
    lines = [
        line.rstrip().rpartition("\r")[2] for line in printed.replace("\r\n", "\n").split("\n")
    ]
    return [line for line in lines if line.strip()][-READ_LINES:]


def pairs_of(text: str | None) -> dict[str, str | int]:
    """`input_ids=tokens,labels=1` as a mapping. Raises UsageError where it is none."""
    made: dict[str, str | int] = {}
    for pair in filter(None, (text or "").split(",")):
        name, _, key = (part.strip() for part in pair.partition("="))
        if not name or not key:
            raise UsageError(
                f"--batch-keys {pair!r}: expected OURS=YOURS, as in input_ids=tokens,labels=1"
            )
        made[name] = int(key) if key.isdecimal() else key
    return made


def say(line: str) -> None:
    """One line on stderr."""
    from truetune.report.visible_text import visible

    with suppress(OSError):  # nobody reads it any more
        click.echo(f"truetune: {visible(line)}", err=True)


def speaker(*, quiet: bool) -> Callable[[str], None]:
    """`say`, or nothing at all."""
    return (lambda line: None) if quiet else say


def unaudited(outcome: Outcome) -> str:
    """Why nothing was audited, and what to do."""
    if outcome.own_loops:
        return (
            "the script's own loop ended with its first step; the audit looks at what comes behind"
            " that"
        )
    if not outcome.waiting or outcome.code:
        return unseen(outcome)
    return (
        f"{unseen(outcome)}, and no loop of its own trained a model of transformers; for another"
        " one call truetune.audit(model, loader, tokenizer) in the script"
    )


def unseen(outcome: Outcome) -> str:
    """Why there is no report."""
    if outcome.code >= 128:
        return "the command was ended before"
    before = (
        f" before the command ended with exit code {outcome.code}"
        if outcome.code and not outcome.loops
        else ""
    )
    imported = "transformers was imported, but " if outcome.waiting else ""
    return f"{imported}no transformers Trainer reached train(){before}"


def numbered(deliver: Delivery, before: int) -> Delivery:
    """The files of a command's second report are FILE-2, those of its third FILE-3."""
    if not before:
        return deliver
    output, html = (
        path and str(Path(path).with_stem(f"{Path(path).stem}-{before + 1}"))
        for path in (deliver.output, deliver.html)
    )
    return replace(deliver, output=output, html=html)
