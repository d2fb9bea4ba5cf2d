"""`truetune rehearse`: a run in miniature, confined to a temporary folder.

The command is started unchanged under a guard that the system enforces; a hook gives it a small model of the same
class. What came out is judged here, then the command is ended: nothing is trained or saved.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import NOT_JUDGED, Delivery, add_report_options, print_status
from truetune.cli.run_training_with_audit_command import (
    describe_why_no_report,
    refuse_machine_format_on_terminal,
)
from truetune.cli.shared_options import spec_of_options
from truetune.errors import TruetuneError, UsageError
from truetune.probe.orders_from_launcher_to_hook import HookOrders

if TYPE_CHECKING:
    from truetune.auditing.run_with_hook import CommandOutcome
    from truetune.probe.run_record import Record

OFFLINE = (
    "a rehearsal makes no connection: models' config.json, tokenizers and data of the hub must be"
    " in its cache (hf download NAME --exclude '*.safetensors')"
)


@click.command(
    cls=Command,
    short_help="The whole run in miniature, on a CPU.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument(
    "target", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SETTINGS | -- COMMAND..."
)
@click.option(
    "--rows",
    type=click.IntRange(1, 64),
    default=6,
    show_default=True,
    metavar="N",
    help="Rows to memorise and recite.",
)
@click.option(
    "--batches",
    type=click.IntRange(1, 1000),
    default=4,
    show_default=True,
    metavar="N",
    help="Micro-batches to look at.",
)
@click.option(
    "--laws",
    type=click.Choice(["quick", "all", "none"]),
    default="quick",
    show_default=True,
    help="Laws to test on the miniature.",
)
@click.option(
    "--mutate",
    is_flag=True,
    help="Put known faults into the batches, and count those that your logs would show.",
)
@click.option(
    "--endpoint",
    "serve",
    metavar="URL",
    help="Compare the prompts with those of this running server, an OpenAI-compatible one.",
)
@click.option(
    "--served-model",
    "serve_model",
    metavar="NAME",
    help="The server's name for the model, if it can't say.",
)
@click.option(
    "--guard",
    type=click.Choice(["kernel", "python"]),
    default="kernel",
    show_default=True,
    help=(
        "What keeps the command from writing and connecting. Python's own hook alone is weaker: it"
        " is for systems whose kernel has no means."
    ),
)
@add_report_options
def rehearse(
    target: tuple[str, ...],
    rows: int,
    batches: int,
    laws: str,
    mutate: bool,
    serve: str | None,
    serve_model: str | None,
    guard: str,
    **options: Any,
) -> int:
    """Rehearse a run in miniature, on a CPU, before any weight is downloaded.

    COMMAND is started unchanged; as it loads its model, a miniature takes the model's place: the same class, few and
    small layers, random weights. Where training begins, a few rows are memorised by the run's own collator and loss,
    and recited from the prompts as they will be served. Then the command ends: nothing is trained or saved. It can
    write nowhere but in a temporary folder, and reaches no other machine. SETTINGS of truetune, Axolotl, LLaMA-Factory
    or TRL start the program that they are for.

    \b
    Examples:
      truetune rehearse -- python train.py
      truetune rehearse truetune.yaml
      truetune rehearse axolotl.yaml
      truetune rehearse --endpoint http://localhost:8000 -- python train.py
    """
    from truetune.auditing.run_with_hook import run_with_hook
    from truetune.confinement.confined_launcher import REFUSED_EXIT_CODE, remove_overlay_folder
    from truetune.rehearsal.ask_server_for_prompt_ids import (
        ask_server_for_recited_rows_prompts,
        find_prompt_server,
    )
    from truetune.rehearsal.confined_command import confine_command, read_refusals
    from truetune.rehearsal.find_command_to_rehearse import find_training_command
    from truetune.rehearsal.rehearsal_report import judge_rehearsal as judge_records

    deliver = Delivery.of(options)
    refuse_machine_format_on_terminal(deliver)
    spec = spec_of_options(options)
    _refuse_served_model_without_server(serve, serve_model)
    # Before the command is started: a server that is not there should not be found out after minutes.
    server = find_prompt_server(serve, serve_model) if serve else None
    exit_codes: list[int] = []
    server_errors: list[TruetuneError] = []

    def judge(records: Sequence[Record]) -> bool:
        """Report on one process; False ends the command: nothing more is wanted of it."""
        if server is not None:
            try:
                ask_server_for_recited_rows_prompts(records[0], server)
            except TruetuneError as error:
                # The report on the rehearsal comes first; the server's error is raised behind it.
                server_errors.append(error)
        exit_codes.append(deliver(judge_records(records, spec), err=True))
        return False

    orders: HookOrders = {
        "mode": "rehearse",
        "rows": rows,
        "batches": batches,
        "laws": laws,
        "canary": False,
        "mutate": mutate,
    }
    work = tempfile.mkdtemp(prefix="truetune-")
    try:
        command = find_training_command(target, Path(work))
        _refuse_isolated_python(command)
        outcome = run_with_hook(
            confine_command(command, Path(work), python_only=guard == "python"),
            orders,
            judge,
            print_status,
        )
        refusals = read_refusals(Path(work))
    finally:
        remove_overlay_folder(work)
    for line in refusals.lines():
        print_status(line)
    unjudged_code = 0 if spec.allow_unjudged else NOT_JUDGED
    # A hook that failed may have let the command run as it is: no report of it counts.
    if refusals.failure or outcome.code == REFUSED_EXIT_CODE:
        return _print_missing_guard_or_hook(refusals.failure, unjudged_code)
    if server_errors:
        raise server_errors[0]
    return (
        _worst_exit_code(exit_codes)
        if exit_codes
        else _print_why_nothing_was_rehearsed(outcome, unjudged_code)
    )


def _refuse_served_model_without_server(serve: str | None, serve_model: str | None) -> None:
    """Raise UsageError where a model of a server is named, and no server."""
    if serve_model and not serve:
        raise UsageError(
            "--served-model names a model of the server of --endpoint URL, which is not given"
        )


def _print_missing_guard_or_hook(failure: str | None, unjudged_code: int) -> int:
    """Print that the guard or the hook was not there; gives the exit code."""
    why = f": the hook failed ({failure})" if failure else ""
    print_status(f"nothing was rehearsed{why}")
    return unjudged_code


def _worst_exit_code(exit_codes: Sequence[int]) -> int:
    """The worst exit code of the reports on several processes: findings (1) outweigh what was not
    judged (3).
    """
    return 1 if 1 in exit_codes else max(exit_codes)


def _print_why_nothing_was_rehearsed(outcome: CommandOutcome, unjudged_code: int) -> int:
    """Say why there is no verdict; gives the exit code."""
    if not outcome.reached and not outcome.lost:
        hint = f"; {OFFLINE}" if outcome.code else ""
        why = describe_why_no_report(outcome)
        print_status(
            f"nothing was rehearsed: {why}{_describe_program_without_trainer(outcome)}{hint}"
        )
    if outcome.loops:
        # A loop of its own was ended by us: its exit code is ours, and says nothing.
        return unjudged_code
    return outcome.code or unjudged_code


def _refuse_isolated_python(command: Sequence[str]) -> None:
    """Raise UsageError for a Python that is told to load no hook: it would train the whole model."""
    if not Path(command[0]).name.startswith(("python", "pypy")):
        return
    for argument in command[1:]:
        if (
            not argument.startswith("-")
            or argument.startswith("--")
            or argument[:2] in ("-c", "-m")
        ):
            return
        if set(argument[1:]) & set("IES"):
            raise UsageError(
                f"{argument}: with this option Python loads no hook, and the whole model would be"
                " trained; rehearse without it"
            )


def _describe_program_without_trainer(outcome: CommandOutcome) -> str:
    """What became of a program without a transformers Trainer, and what looks at such a one."""
    if outcome.loops:
        became = (
            "a loop of its own, with a miniature of the model, was ended before its optimizer's"
            " first step"
        )
    else:
        became = "the command ran as it is, with miniatures for models of transformers"
    return (
        f"; {became}. For a loop of your own, or Lightning: truetune.audit(model, loader,"
        " tokenizer, given=rows)"
    )
