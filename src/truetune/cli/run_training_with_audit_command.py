"""`truetune run`: starts a training command with an audit inside.

The command is started unchanged; a hook in its process sends records of what reaches the loss. Each process is judged
here, and the answer lets it continue or ends it. The terminal stays the command's own: reports go to stderr. Where
the command fails, what it printed is searched for the cause.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import NOT_JUDGED, Delivery, add_report_options, print_status
from truetune.cli.shared_options import spec_of_options
from truetune.errors import UsageError
from truetune.probe.orders_from_launcher_to_hook import HookOrders

if TYPE_CHECKING:
    from truetune.auditing.run_with_hook import CommandOutcome
    from truetune.probe.run_record import Record
    from truetune.settings.run_spec import RunSpec

FIRST_SIGNAL_CODE = 128
"""Exit codes from here on say which signal ended a command, as shells number them: 128 + its number"""
PRINTED_LINES = 8
"""Of what a command printed before it failed"""
SEARCHED_LINES = 60
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
@add_report_options
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
    transformers. Of TRL's trainers that sample answers (GRPO, RLOO, online
    DPO, distillation) the first rollouts are judged as well, after the first steps.
    The report goes to stderr, and names the function that computes the loss. With findings at or above
    --fail-on the run ends there with exit code 1. Else its exit code is COMMAND's own; where that is 0 and something
    could not be judged it is 3. Where the command ends in an exception or is killed, a second report says what is known
    of that.

    \b
    Examples:
      truetune run -- python train.py
      truetune run --on-error warn -- accelerate launch train.py
      truetune run --html audit.html -- trl sft --config sft.yaml
      truetune run -- axolotl train axolotl.yaml
    """
    from truetune.auditing.run_with_hook import run_with_hook as start
    from truetune.checks.judge_audit import audit
    from truetune.checks.judge_rollouts import judge_recorded_rollouts

    deliver = Delivery.of(options)
    refuse_machine_format_on_terminal(deliver)
    spec = spec_of_options(options)
    exit_codes: list[int] = []
    judged_rollouts: list[bool] = []

    def judge(records: Sequence[Record]) -> bool:
        """Report on one process; True lets the command continue."""
        has_rollouts = any(record.rollouts for record in records)
        report = judge_recorded_rollouts(records, spec) if has_rollouts else audit(records, spec)
        judged_rollouts.append(has_rollouts)
        exit_codes.append(number_report_files(deliver, len(exit_codes))(report, err=True))
        return exit_codes[-1] != 1 or on_error == "warn"

    orders: HookOrders = {
        "mode": "audit",
        "batches": batches,
        "laws": laws,
        "canary": canary,
        "keys": parse_batch_keys(batch_keys),
    }
    outcome = start(command, orders, judge, print_status)
    lacks_rollouts = bool(outcome.watched_rollouts) and not any(judged_rollouts)
    _print_why_unaudited(outcome, lacks_rollouts=lacks_rollouts)
    if 1 in exit_codes and on_error == "stop":
        # We have ended the command: how it ended says nothing.
        return 1
    if outcome.code:
        numbered = number_report_files(deliver, len(exit_codes))
        report_failed_command(outcome, command, spec, numbered, seen=bool(exit_codes))
    if on_error == "warn" or outcome.code:
        return outcome.code
    is_incomplete = _is_audit_incomplete(outcome, exit_codes, lacks_rollouts=lacks_rollouts)
    return NOT_JUDGED if is_incomplete and not spec.allow_unjudged else 0


def _is_audit_incomplete(
    outcome: CommandOutcome, exit_codes: Sequence[int], *, lacks_rollouts: bool
) -> bool:
    """Was something not judged, or nothing seen? Exit code 0 would read as a clean audit then."""
    return bool(outcome.lost) or lacks_rollouts or not exit_codes or NOT_JUDGED in exit_codes


def _print_why_unaudited(outcome: CommandOutcome, *, lacks_rollouts: bool) -> None:
    """Say why nothing was audited, or no rollouts that were watched, where that is so."""
    if outcome.lost:
        return
    if not outcome.reached:
        print_status(f"nothing was audited: {describe_why_not_audited(outcome)}")
    if lacks_rollouts:
        print_status("the rollouts were not judged: the training ended before the first one")


def refuse_machine_format_on_terminal(deliver: Delivery) -> None:
    """Raise UsageError for JSON or SARIF without a file: the output of the command would be mixed
    with it.
    """
    if deliver.output_format != "terminal" and deliver.output is None:
        raise UsageError(
            f"--format {deliver.output_format} needs -o FILE: the terminal is the command's own"
        )


def report_failed_command(
    outcome: CommandOutcome, command: Sequence[str], spec: RunSpec, deliver: Delivery, *, seen: bool
) -> None:
    """Report on a command that failed: what ended it, and what it printed last.

    `seen`: was a batch of it judged? Where none was, a report that is asked for says so: it is never clean.
    """
    from truetune.checks.diagnose_log import diagnose_end_of_command

    if outcome.code >= FIRST_SIGNAL_CODE and outcome.code not in ENDED_FROM_OUTSIDE:
        return
    printed = last_printed_lines(outcome.printed)
    text = outcome.tracebacks or "\n".join(printed)
    report = diagnose_end_of_command(text, shlex.join(command), outcome.code, spec=spec, seen=seen)
    if printed and not outcome.tracebacks and not report.findings:
        print_status(f"the command ended with exit code {outcome.code}; it printed last:")
        for line in printed[-PRINTED_LINES:]:
            print_status(f"  {line}")
    if report.findings or (not seen and (deliver.output or deliver.html)):
        deliver(report, err=True)


def last_printed_lines(printed: str) -> list[str]:
    """The last lines of some output, without empty ones; of a progress bar its state at the end."""
    lines = []
    for line in printed.replace("\r\n", "\n").split("\n"):
        # A bar draws itself again behind each carriage return.
        last_drawn = line.rstrip().rpartition("\r")[2]
        if last_drawn.strip():
            lines.append(last_drawn)
    return lines[-SEARCHED_LINES:]


def parse_batch_keys(text: str | None) -> dict[str, str | int]:
    """`input_ids=tokens,labels=1` as a mapping. Raises UsageError where it is none."""
    keys: dict[str, str | int] = {}
    for pair in filter(None, (text or "").split(",")):
        name, _, key = (part.strip() for part in pair.partition("="))
        if not name or not key:
            raise UsageError(
                f"--batch-keys {pair!r}: expected OURS=YOURS, as in input_ids=tokens,labels=1"
            )
        # A number is a place in a batch that is a tuple.
        keys[name] = int(key) if key.isdecimal() else key
    return keys


def describe_why_not_audited(outcome: CommandOutcome) -> str:
    """Why nothing was audited, and what to do."""
    if outcome.own_loops:
        return "the script's own loop ended with its first step; the audit looks at what follows it"
    if not outcome.waiting or outcome.code:
        return describe_why_no_report(outcome)
    return (
        f"{describe_why_no_report(outcome)}, and no loop of its own trained a model of transformers; for another"
        " one call truetune.audit(model, loader, tokenizer) in the script"
    )


def describe_why_no_report(outcome: CommandOutcome) -> str:
    """Why there is no report on a command."""
    if outcome.code >= FIRST_SIGNAL_CODE:
        return "the command was ended before"
    reason = "no transformers Trainer reached train()"
    if outcome.waiting:
        reason = f"transformers was imported, but {reason}"
    if outcome.code and not outcome.loops:
        reason = f"{reason} before the command ended with exit code {outcome.code}"
    return reason


def number_report_files(deliver: Delivery, before: int) -> Delivery:
    """Where a command's next report goes: the files of its second report are FILE-2, those of its
    third FILE-3.

    Args:
        deliver: Where the first report goes.
        before: How many reports were written.
    """
    if not before:
        return deliver
    return replace(
        deliver,
        output=_number_file_name(deliver.output, before + 1),
        html=_number_file_name(deliver.html, before + 1),
    )


def _number_file_name(path: str | None, number: int) -> str | None:
    """The name of a file with a number: `audit.json` as `audit-2.json`."""
    if path is None:
        return None
    return str(Path(path).with_stem(f"{Path(path).stem}-{number}"))
