"""`truetune run` on programs of Python, as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.preloaded import commands_python, libraries_python

ROOT = Path(__file__).parents[2]


def run(
    *arguments: str,
    options: list[str] | None = None,
    python: str = sys.executable,
    launcher: str | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """`truetune run OPTIONS -- python ARGUMENTS`; `launcher` is the Python of truetune itself, by default one that has
    imported the command's modules already."""
    command = [*filter(None, [python]), *arguments]
    command = [
        launcher or commands_python(),
        "-m",
        "truetune",
        "run",
        *(options or []),
        "--",
        *command,
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment() | variables
    )


def run_training(
    *arguments: str, options: list[str] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """`run` on a program that trains, by a Python that has imported the libraries already."""
    python = libraries_python()
    # The processes that torchrun starts are such ones, too.
    variables = {"PYTHON_EXEC": python, **variables}
    return run(*arguments, options=options, python=python, **variables)


def plain(
    *arguments: str, python: str = sys.executable, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The same without truetune."""
    command = [python, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment() | variables
    )


def environment() -> dict[str, str]:
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
    }
