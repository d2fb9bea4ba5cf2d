"""python -m tests: run every check that a change must pass: ruff, its formatter, mypy and all tests.

mypy runs beside the rest: by itself it would leave one of two cores idle for minutes. What it finds is printed at the
end; where it finds nothing, the tests' summary is the last line.

Options are passed on to pytest: `python -m tests -n 8 -m "not slow"`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICK_CHECKS = (("ruff", "check", "."), ("ruff", "format", "--check", "."))
"""They take a second, so they come first and stop the others"""
PARTS = ("tests.parts", "--data", "--model")
TESTS = ("pytest", "-n", "2")


def main(options: list[str]) -> int:
    """Run all checks.

    Args:
        options: those of the command line, for pytest.

    Returns:
        The first exit code that is not 0, of the tests before that of mypy; 0 if all of them pass.
    """
    for check in QUICK_CHECKS:
        if code := _run(*check):
            return code
    print("mypy runs beside the tests", flush=True)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        types = subprocess.Popen(
            _command("mypy"), cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, text=True
        )
        try:
            tests_code = _run(*PARTS) or _run(*TESTS, *options)
            types_code = types.wait()
        finally:
            # Ctrl-C, or a machine without pytest: no process is left behind.
            types.kill()
            types.wait()
        if types_code:
            output.seek(0)
            print(output.read(), end="", flush=True)
    return tests_code or types_code


def _run(*arguments: str) -> int:
    """The exit code of a module that runs with this Python."""
    return subprocess.run(_command(*arguments), cwd=ROOT).returncode


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", *arguments]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
