"""The command line: parse, call one public function, draw, exit.

Exit codes: 0 judged and no finding at or above --fail-on, 1 findings, 2 usage or unreadable input, 3 something that was
asked for could not be judged, 130 interrupted, 141 the reader of the output has gone, 143 terminated.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from signal import SIGINT
from typing import Any

import click
from click.shell_completion import shell_complete

from truetune.cli.check_lint_diagnose_show_commands import check, diagnose, lint, show
from truetune.cli.doctor_command import doctor
from truetune.cli.draw_report_page_command import report
from truetune.cli.encode_command import encode
from truetune.cli.evaluate_command import evaluate
from truetune.cli.fix_command import fix
from truetune.cli.help_layout import Group
from truetune.cli.init_run_settings_command import init
from truetune.cli.ladder_of_adapter_effect_command import ladder
from truetune.cli.lsp_command import lsp
from truetune.cli.merge_export_movement_commands import export, merge, movement
from truetune.cli.plan_gpu_memory_command import plan
from truetune.cli.rehearse_command import rehearse
from truetune.cli.reward_command import reward
from truetune.cli.rules_explain_demo_commands import completion, demo, explain, rules
from truetune.cli.run_training_with_audit_command import run
from truetune.cli.sample_and_judge_answers_command import sample
from truetune.cli.score_given_answers_command import score
from truetune.cli.serve_check_command import serve_check
from truetune.cli.shell_completion import COMPLETION_VARIABLE, let_shell_complete_paths
from truetune.cli.skill_and_mcp_commands import mcp, skill
from truetune.cli.train_command import train
from truetune.cli.troubleshoot_command import troubleshoot
from truetune.cli.view_rows_in_browser_command import view
from truetune.errors import FindingsError, TruetuneError
from truetune.package import __version__
from truetune.render.silence_tokenizer_panic_messages import is_panic

TRAIN_EXTRA_MODULES = {
    "torch",
    "transformers",
    "peft",
    "trl",
    "accelerate",
    "datasets",
    "safetensors",
    "psutil",
}
"""Modules of the extra `train`"""


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run_and_return_exit_code())


def _run_and_return_exit_code() -> int:
    """Run the command line; every error becomes one line on stderr and an exit code."""
    question = os.environ.get(COMPLETION_VARIABLE)
    if question:
        return shell_complete(truetune_group, {}, "truetune", COMPLETION_VARIABLE, question)
    undecodable = _first_argument_not_utf8(sys.argv[1:])
    if undecodable:
        return _print_error(f"{undecodable!r}: not UTF-8; write it as UTF-8, or rename the file")
    try:
        return int(truetune_group.main(prog_name="truetune", standalone_mode=False) or 0)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        return 128 + int(getattr(error.__cause__ or error, "signal", SIGINT))
    except (BrokenPipeError, SystemExit):
        # click and rich turn a broken pipe into SystemExit. Stdout becomes /dev/null: Python would fail once more as it
        # flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except (click.ClickException, TruetuneError, OSError, ModuleNotFoundError) as error:
        return _print_known_error(error)
    except Exception as error:
        return _print_bug(error)
    except BaseException as error:
        # A panic of the tokenizer's Rust library is a BaseException of its own.
        if not is_panic(error):
            raise
        return _print_error(
            f"the tokenizer's own library failed: {error}; is the pattern in its tokenizer.json"
            " sound?"
        )


def _print_known_error(error: Exception) -> int:
    """Print an error that the user can act on; gives the exit code."""
    debug = bool(os.environ.get("TRUETUNE_DEBUG"))
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        help_on = f" (see {context.command_path} --help)" if context else ""
        return _print_error(" ".join(error.format_message().split()) + help_on)
    if isinstance(error, FindingsError):
        _print_error(str(error))
        return 1
    if isinstance(error, TruetuneError):
        return _print_error(str(error), debug=debug)
    if isinstance(error, OSError):
        return _print_error(f"{error.filename or 'output'}: {error.strerror}", debug=debug)
    name = getattr(error, "name", None) or ""
    if name.partition(".")[0] not in TRAIN_EXTRA_MODULES:
        return _print_bug(error)
    return _print_error(
        f"this command needs {name}, which is not installed here: pip install"
        " 'truetune[train]' (in a clone: pip install '.[train]'), or use your trainer's"
        " environment; see truetune doctor",
        debug=debug,
    )


def _print_bug(error: Exception) -> int:
    """Print an error that nobody foresaw, with its traceback; gives the exit code."""
    return _print_error(f"this is a bug of truetune, please report it: {error!r}", debug=True)


def _first_argument_not_utf8(arguments: list[str]) -> str | None:
    """The first argument whose bytes are no UTF-8, which no tokenizer takes; a file may be called so."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            if not os.path.exists(argument):
                return argument
    return None


def _print_error(message: str, *, debug: bool = False) -> int:
    """Print an error on stderr, each line visible; gives the exit code."""
    from truetune.report.visible_text import escape_invisible_characters

    if debug:
        traceback.print_exc()
    for line in message.split("\n"):
        click.echo(f"truetune: error: {escape_invisible_characters(line)}", err=True)
    return 2


CONTEXT_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def _switch_colours_off(context: click.Context, option: click.Parameter, is_given: bool) -> None:
    """Set NO_COLOR, which click, rich and the programs that a command starts all heed."""
    if is_given:
        os.environ["NO_COLOR"] = "1"


def _no_color_option(*, hidden: bool) -> click.Option:
    """`--no-color`, for before and behind the name of a command.

    Args:
        hidden: keep it out of the help, where it would stand in that of each command.
    """
    return click.Option(
        ["--no-color"],
        is_flag=True,
        expose_value=False,
        # Before other options, whose errors are printed too.
        is_eager=True,
        hidden=hidden,
        callback=_switch_colours_off,
        help="Print without colours, as with NO_COLOR=1; after COMMAND too.",
    )


@click.group(cls=Group, context_settings=CONTEXT_SETTINGS, invoke_without_command=True)
@click.version_option(__version__, "-V", "--version", prog_name="truetune")
@click.pass_context
def truetune_group(context: click.Context) -> None:
    """A linter, auditor and test harness for LLM fine-tuning."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (
    check,
    fix,
    lint,
    diagnose,
    troubleshoot,
    run,
    plan,
    show,
    encode,
    rules,
    explain,
    demo,
    completion,
    doctor,
    rehearse,
    init,
    train,
    merge,
    export,
    movement,
    sample,
    score,
    evaluate,
    reward,
    serve_check,
    ladder,
    report,
    view,
    skill,
    mcp,
    lsp,
):
    command.context_settings = {**CONTEXT_SETTINGS, **command.context_settings}
    let_shell_complete_paths(command)
    command.params.append(_no_color_option(hidden=True))
    truetune_group.add_command(command)
truetune_group.params.append(_no_color_option(hidden=False))
