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

from truetune.cli.auditing import run
from truetune.cli.checking import check, diagnose, lint, show
from truetune.cli.climbing import ladder
from truetune.cli.completing import VARIABLE, complete_paths
from truetune.cli.doctoring import doctor
from truetune.cli.encoding import encode
from truetune.cli.evaluating import evaluate
from truetune.cli.fixing import fix
from truetune.cli.helping import Group
from truetune.cli.learning import completion, demo, explain, rules
from truetune.cli.merging import export, merge, movement
from truetune.cli.planning import plan
from truetune.cli.rehearsing import rehearse
from truetune.cli.reporting import report
from truetune.cli.sampling import sample
from truetune.cli.scoring import score
from truetune.cli.serving import serve_check
from truetune.cli.starting import init
from truetune.cli.training import train
from truetune.cli.viewing import view
from truetune.errors import FindingsError, TruetuneError
from truetune.package import __version__
from truetune.render.tokenizer_panics import is_panic

TRAIN = {
    "torch",
    "transformers",
    "peft",
    "trl",
    "accelerate",
    "datasets",
    "safetensors",
    "psutil",
    "py3langid",
}
"""Modules of the extra `train`"""


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run())


def _run() -> int:
    if question := os.environ.get(VARIABLE):
        return shell_complete(commands, {}, "truetune", VARIABLE, question)
    if broken := _not_text(sys.argv[1:]):
        return _failed(f"{broken!r}: not UTF-8; write it as UTF-8, or rename the file")
    try:
        return int(commands.main(prog_name="truetune", standalone_mode=False) or 0)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        return 128 + int(getattr(error.__cause__ or error, "signal", SIGINT))
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        help_on = f" (see {context.command_path} --help)" if context else ""
        return _failed(" ".join(error.format_message().split()) + help_on)
    except FindingsError as error:
        return _failed(str(error)) - 1
    except TruetuneError as error:
        return _failed(str(error), debug=bool(os.environ.get("TRUETUNE_DEBUG")))
    except (BrokenPipeError, SystemExit):  # click and rich turn a broken pipe into SystemExit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except OSError as error:
        return _failed(
            f"{error.filename or 'output'}: {error.strerror}",
            debug=bool(os.environ.get("TRUETUNE_DEBUG")),
        )
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in TRAIN:
            return _failed(f"this is a bug of truetune, please report it: {error!r}", debug=True)
        return _failed(
            f"this command needs {error.name}, which is not installed here: pip install"
            " 'truetune[train]' (in a clone: pip install '.[train]'), or use your trainer's"
            " environment; see truetune doctor",
            debug=bool(os.environ.get("TRUETUNE_DEBUG")),
        )
    except Exception as error:
        return _failed(f"this is a bug of truetune, please report it: {error!r}", debug=True)
    except BaseException as error:
        if not is_panic(error):
            raise
        return _failed(
            f"the tokenizer's own library failed: {error}; is the pattern in its tokenizer.json"
            " sound?"
        )


def _not_text(arguments: list[str]) -> str | None:
    """The first argument whose bytes are no UTF-8, which no tokenizer takes; a file may be called so."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            if not os.path.exists(argument):
                return argument
    return None


def _failed(message: str, *, debug: bool = False) -> int:
    from truetune.report.visible_text import visible

    if debug:
        traceback.print_exc()
    for line in message.split("\n"):
        click.echo(f"truetune: error: {visible(line)}", err=True)
    return 2


SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(cls=Group, context_settings=SETTINGS, invoke_without_command=True)
@click.version_option(__version__, prog_name="truetune")
@click.pass_context
def commands(context: click.Context) -> None:
    """Show, prove and guarantee what an LLM fine-tune really learns."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (
    check,
    fix,
    lint,
    diagnose,
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
    serve_check,
    ladder,
    report,
    view,
):
    command.context_settings = {**SETTINGS, **command.context_settings}
    complete_paths(command)
    commands.add_command(command)
