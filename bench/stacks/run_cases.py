"""Run a stack on both copies of its cases, and keep what it said."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bench.bugs.case import CASES, Case, inputs
from bench.bugs.inputs.rows import chats, write
from bench.bugs.warm import QUIET, ROOT
from bench.stacks.declared import Stack
from bench.stacks.message_difference import MAX_CHARACTERS, messages_only_of
from tests.parts.shelf import Missing

RUN_TIMEOUT_S = 900
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
"""Of the models whose weights the bench leaves out: small enough to train on a processor"""

_PLACES = re.compile(r"/\S*?/site-packages/|/\S*?(?=/bench/)")
"""Where packages lie on the machine"""
_EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception|NotFound)\w*:")


@dataclass(frozen=True, slots=True)
class StackResult:
    """What a stack said about one case."""

    stack: str
    version: str
    case: str
    broken_exit_code: int
    clean_exit_code: int
    messages: tuple[str, ...]
    """What the stack printed of the broken copy alone"""
    clean_error: str
    """The last line of a clean copy that did not run through"""


class ForkServer:
    """A process that has imported a stack, and runs programs in forks of itself."""

    def __init__(self, stack: Stack) -> None:
        """Start it and wait until the stack is imported.

        Args:
            stack: Whose Python and imports it has.

        Raises:
            Missing: The stack is not installed or can't be imported.
        """
        self._stack = stack
        self._process = subprocess.Popen(
            [
                stack.python,
                str(Path(__file__).with_name("fork_server.py")),
                ",".join(stack.imports),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            _, errors = self._process.communicate()
            raise Missing(f"{stack.package}: {(errors.strip().splitlines() or ['?'])[-1]}")

    def run(self, program: str, folder: Path) -> tuple[int, str]:
        """Run one command line.

        Args:
            program: The program, then its arguments.
            folder: Where it runs.

        Returns:
            Its exit code and all that it printed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        name, *arguments = shlex.split(program)
        request = {
            "folder": str(folder),
            "program": name,
            "arguments": arguments,
            "seconds": RUN_TIMEOUT_S,
            "tracker": self._stack.tracker,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer["exit_code"], answer["output"]

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate()


def run_stack(
    stack: Stack, patterns: Sequence[str] = ("*",), skipped: Set[str] = frozenset()
) -> Iterator[StackResult]:
    """Run the cases of a stack.

    Args:
        stack: One of stacks.yaml.
        patterns: Only cases whose names fit one of them.
        skipped: Not these cases.

    Yields:
        A result for each case.

    Raises:
        Missing: The stack is not installed here.
    """
    version = installed_version(stack)
    server = ForkServer(stack)
    try:
        for case, selection in stack.selected():
            fits = any(fnmatchcase(case.name, pattern) for pattern in patterns)
            if fits and case.name not in skipped:
                yield _run_case(server, stack, version, case, selection.programs_of(case))
    finally:
        server.close()


def installed_version(stack: Stack) -> str:
    """The version of the stack's package in its own environment.

    Args:
        stack: One of stacks.yaml.

    Returns:
        The version.

    Raises:
        Missing: It is not installed there.
    """
    question = f"from importlib.metadata import version; print(version({stack.package!r}))"
    answer = subprocess.run([stack.python, "-c", question], capture_output=True, text=True)
    if answer.returncode:
        raise Missing(f"{stack.package}: {answer.stderr.strip().splitlines()[-1]}")
    return answer.stdout.strip()


def _run_case(
    server: ForkServer, stack: Stack, version: str, case: Case, programs: tuple[str, ...]
) -> StackResult:
    broken = _run_copy(server, case, "broken", programs)
    clean = _run_copy(server, case, "clean", programs)
    messages = messages_only_of(broken[1], clean[1])
    if stack.tracker:
        messages = tuple(line for line in messages if line.startswith("alert:"))
    return StackResult(
        stack=stack.name,
        version=version,
        case=case.name,
        broken_exit_code=broken[0],
        clean_exit_code=clean[0],
        messages=messages,
        clean_error=_why_it_failed(clean[1]) if clean[0] else "",
    )


def _run_copy(
    server: ForkServer, case: Case, side: str, programs: tuple[str, ...]
) -> tuple[int, str]:
    """(exit code, output) of the programs up to the first that fails."""
    twins = inputs(case, next(iter(case.families), None))
    with tempfile.TemporaryDirectory() as scratch:
        # The settings of the cases name ../../../inputs, so the copy keeps the bench's layout.
        folder = Path(scratch, "cases", case.name, side)
        shutil.copytree(getattr(twins, side), folder)
        made = Path(scratch, "inputs")
        shutil.copytree(CASES.parent / "inputs" / "llama", made / "llama")
        _write_rows(made)
        _write_missing_weights(Path(scratch))
        exit_code, output = 0, ""
        for program in programs:
            line = program.replace("{inputs}", "../../../inputs")
            exit_code, printed = server.run(line, folder)
            output += printed
            if exit_code:
                break
        return exit_code, _PLACES.sub("", output.replace(f"{folder}/", "").replace(scratch, ""))


def _write_rows(folder: Path) -> None:
    """Rows for settings that name none."""
    for name, rows in (("chats", chats(32, system=False)), ("pairs", _pairs())):
        (folder / name).mkdir()
        write(folder / name / "train.jsonl", rows)
        write(folder / name / "test.jsonl", rows[:8])


def _pairs() -> list[dict[str, Any]]:
    refusal = [{"role": "assistant", "content": "I will not say."}]
    return [
        {
            "prompt": row["messages"][:1],
            "chosen": row["messages"][1:2],
            "rejected": refusal,
        }
        for row in chats(32, system=False)
    ]


def _write_missing_weights(folder: Path) -> None:
    """Give every model folder without weights random ones of a small shape."""
    from transformers import AutoConfig, AutoModelForCausalLM

    for config_path in folder.rglob("config.json"):
        if not list(config_path.parent.glob("*.safetensors")):
            config = AutoConfig.from_pretrained(config_path.parent)
            config.update(SHAPE)
            model = AutoModelForCausalLM.from_config(config)
            with contextlib.redirect_stderr(io.StringIO()):
                model.save_pretrained(config_path.parent)


def _environment() -> dict[str, str]:
    paths = (str(ROOT / "src"), str(ROOT))
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HF_HUB_OFFLINE": "1"}
    return {
        **os.environ,
        **QUIET,
        **offline,
        "NO_COLOR": "1",
        "COLUMNS": "240",
        "PYTHONPATH": os.pathsep.join(paths),
    }


def _why_it_failed(output: str) -> str:
    """The last exception that a program printed, or its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    exceptions = [line for line in lines if _EXCEPTION.match(line)]
    return (exceptions or lines or [""])[-1][:MAX_CHARACTERS]
