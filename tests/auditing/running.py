"""`truetune run` on programs of Python, as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(
    *arguments: str,
    options: list[str] | None = None,
    python: str = sys.executable,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """`truetune run OPTIONS -- python ARGUMENTS`."""
    command = [*filter(None, [python]), *arguments]
    command = [sys.executable, "-m", "truetune", "run", *(options or []), "--", *command]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment() | variables
    )


def plain(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The same without truetune."""
    command = [sys.executable, *arguments]
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
