"""Run training programs in forks of one process that has imported their stack: importing it is what takes long.

The stack's own Python runs this file, so it needs the standard library alone:

    PYTHON fork_server.py MODULE,...

It reads one JSON request a line from standard input: {"folder", "program", "arguments", "seconds", "tracker"}.
`program` is a script (`train.py`), a module (`trl.scripts.sft`) or a function (`axolotl.cli.main:main`). It answers
with one line: {"exit_code", "output"}, where output is all that the program wrote to its standard output and error.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from typing import Any

TIMED_OUT = -9
"""The exit code that is reported for a program that was stopped for its time"""


def serve(modules: list[str]) -> None:
    """Answer requests until standard input ends.

    Args:
        modules: Imported once, before the first request.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for module in modules:
        importlib.import_module(module)
    print("ready", file=answers)
    for line in sys.stdin:
        print(json.dumps(run_in_fork(json.loads(line))), file=answers)


def run_in_fork(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a program in a fork and wait for its end.

    Args:
        request: As the module describes it.

    Returns:
        The exit code and all output.
    """
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.setsid()
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            _end(_run_program(request))
        exit_code = _wait(child, request["seconds"])
        output.seek(0)
        return {"exit_code": exit_code, "output": output.read().decode("utf-8", "replace")}


def _run_program(request: Mapping[str, Any]) -> int:
    os.chdir(request["folder"])
    program = request["program"]
    sys.argv = [program, *request["arguments"]]
    sys.path.insert(0, "" if ":" in program else request["folder"])
    try:
        if request["tracker"]:
            _track_with_wandb()
        if ":" in program:
            module, _, function = program.partition(":")
            getattr(importlib.import_module(module), function)()
        elif program.endswith(".py"):
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        if request["tracker"]:
            importlib.import_module("wandb").finish()
    return 0


def _track_with_wandb() -> None:
    """Give every trainer of transformers the callback that `report_to="wandb"` would add, and print W&B's alerts."""
    trainer = importlib.import_module("transformers.trainer")
    integrations = importlib.import_module("transformers.integrations")
    run_class = importlib.import_module("wandb").Run
    trainer.DEFAULT_CALLBACKS.append(integrations.WandbCallback)
    run_class.alert = lambda run, title, text, *args, **settings: print(f"alert: {title}: {text}")


def _end(exit_code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def _wait(child: int, seconds: float) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TIMED_OUT


if __name__ == "__main__":
    serve([name for name in sys.argv[1].split(",") if name])
